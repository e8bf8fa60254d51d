// SPDX-License-Identifier: GPL-2.0

//! The messages of the block device over RDMA. All numbers are big-endian.
//!
//! The client connects and gives its name. The server tells its capacity when it accepts. The
//! client sends commands, each with the rkey of the memory that the data are in or go to. The server
//! reads that memory, then replies by a message, which invalidates the rkey if the client allows
//! that. Or it writes that memory by WRITE with immediate data: this is the reply, and the number is
//! the tag. If it fails, it replies by a message. A command stays with the client until its rkey is
//! invalid.

use crate::kernel_ext::rdma::ulp::HostBuffer;
use core::borrow::Borrow;
use kernel::prelude::*;

/// The port at which the server listens.
pub(crate) const PORT: u16 = 18517;
/// The number of commands in flight.
pub(crate) const DEPTH: u32 = 128;
/// The largest number of bytes of a command.
pub(crate) const MAX_BYTES: u32 = 1 << 20;
/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// Returns the value of a parameter. Linux 7.2 returns a reference to it, 7.3 the value.
pub(crate) fn value(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

/// Returns `N` bytes of a message from `at` on.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at.checked_add(N).ok_or(EINVAL)?;
    let part = bytes.get(at..end).ok_or(EINVAL)?;
    part.try_into().map_err(|_| EINVAL)
}

/// A command.
#[derive(Clone, Copy, Default)]
pub(crate) struct Command {
    /// The server reads the client's memory, and writes to its store.
    pub(crate) write: bool,
    /// A message with the reply may invalidate the rkey.
    pub(crate) invalidate: bool,
    /// The number of the command, which the reply repeats.
    pub(crate) tag: u32,
    /// The first byte on the disk.
    pub(crate) at: u64,
    /// The number of bytes.
    pub(crate) len: u32,
    /// The rkey and the address of the client's memory.
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
}

impl Command {
    /// Bytes of the message.
    pub(crate) const LEN: usize = 32;

    /// Writes the message.
    pub(crate) fn put(&self, to: &HostBuffer) -> Result {
        let flags = u32::from(self.write) | u32::from(self.invalidate) << 1;
        to.write(0, &flags.to_be_bytes())?;
        to.write(4, &self.tag.to_be_bytes())?;
        to.write(8, &self.at.to_be_bytes())?;
        to.write(16, &self.len.to_be_bytes())?;
        to.write(20, &self.rkey.to_be_bytes())?;
        to.write(24, &self.addr.to_be_bytes())
    }

    /// Reads a message of `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no command.
    pub(crate) fn get(from: &HostBuffer, len: u32) -> Result<Self> {
        let mut bytes = [0; Self::LEN];
        from.read(0, &mut bytes)?;
        let flags = u32::from_be_bytes(part(&bytes, 0)?);
        if len as usize != Self::LEN || flags > 3 {
            return Err(EINVAL);
        }
        Ok(Self {
            write: flags & 1 != 0,
            invalidate: flags & 2 != 0,
            tag: u32::from_be_bytes(part(&bytes, 4)?),
            at: u64::from_be_bytes(part(&bytes, 8)?),
            len: u32::from_be_bytes(part(&bytes, 16)?),
            rkey: u32::from_be_bytes(part(&bytes, 20)?),
            addr: u64::from_be_bytes(part(&bytes, 24)?),
        })
    }
}

/// A reply.
pub(crate) struct Reply {
    /// The number of the command.
    pub(crate) tag: u32,
    /// 0, or a positive errno.
    pub(crate) status: u32,
}

impl Reply {
    /// Bytes of the message.
    pub(crate) const LEN: usize = 8;

    /// Writes the message.
    pub(crate) fn put(&self, to: &HostBuffer) -> Result {
        to.write(0, &self.tag.to_be_bytes())?;
        to.write(4, &self.status.to_be_bytes())
    }

    /// Reads a message of `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no reply.
    pub(crate) fn get(from: &HostBuffer, len: u32) -> Result<Self> {
        let mut bytes = [0; Self::LEN];
        from.read(0, &mut bytes)?;
        if len as usize != Self::LEN {
            return Err(EINVAL);
        }
        Ok(Self {
            tag: u32::from_be_bytes(part(&bytes, 0)?),
            status: u32::from_be_bytes(part(&bytes, 4)?),
        })
    }
}

/// Returns the private data with which a side connects or accepts: one number. A client gives its
/// name, which is random, other than 0, and the same until its module is unloaded. The name is no
/// proof: a peer that knows it can end the connection of the client. It gives no access. The server
/// gives its capacity in sectors.
pub(crate) fn private(number: u64) -> [u8; PRIVATE] {
    number.to_be_bytes()
}

/// Bytes of the private data.
pub(crate) const PRIVATE: usize = 8;

/// Returns the number in private data of `len` bytes, of which `bytes` are the first.
///
/// # Errors
///
/// `EINVAL` if there are too few, or for 0: `rdma_cm` appends zeros.
pub(crate) fn number(bytes: &[u8; PRIVATE], len: usize) -> Result<u64> {
    match u64::from_be_bytes(*bytes) {
        0 => Err(EINVAL),
        _ if len < PRIVATE => Err(EINVAL),
        number => Ok(number),
    }
}
