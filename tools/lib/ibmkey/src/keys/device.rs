// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Device memory.

use core::{
    ffi::c_int,
    marker::PhantomData,
    ops::Range, //
};

use super::{
    memory::{
        bytes,
        bytes_mut, //
    },
    Access,
    Pd,
    Slice, //
};
use crate::{
    dm::calls,
    errno::{
        Errno,
        Result, //
    },
    ioctl::Plain,
    object, sys,
};

/// Device memory and an MR over all of it, whose addresses begin at 0.
///
/// Device memory is not memory of the process. [`Self::read`] and [`Self::write`] copy its bytes.
///
/// # Invariants
///
/// `memory` and `mr` are device memory and an MR that only this object frees.
pub struct DeviceMemory<'pd> {
    fd: c_int,
    memory: u32,
    mr: object::Region,
    pd: PhantomData<&'pd ()>,
}

impl<'pd> Pd<'pd> {
    /// Allocates device memory and registers it.
    ///
    /// Returns `ENOMEM` if a limit is reached, and `EOPNOTSUPP` if the device has no device memory.
    pub fn alloc_dm(&self, length: u64, access: Access) -> Result<DeviceMemory<'pd>> {
        let size = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        let access = access.bits() | sys::IBV_ACCESS_ZERO_BASED;
        let memory = calls::allocate(self.fd, length, 0, 0)?;
        let mr = calls::register(self.fd, self.handle, memory, 0, size, access);
        let mr = mr.inspect_err(|_| {
            // Nothing refers to the memory yet, so this succeeds.
            let _ = calls::release(self.fd, memory);
        })?;

        // INVARIANT: The memory and the MR were created above, so there is no other owner.
        Ok(DeviceMemory {
            fd: self.fd,
            memory,
            mr,
            pd: PhantomData,
        })
    }
}

impl DeviceMemory<'_> {
    /// Returns all bytes, for a layout.
    pub fn all(&self) -> Slice<'_> {
        Slice {
            lkey: self.mr.lkey,
            address: 0,
            length: self.mr.length as u64,
            owner: PhantomData,
        }
    }

    /// Returns some bytes, for a layout. Returns `ERANGE` if `range` reaches outside the memory.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'_>> {
        self.all().slice(range)
    }

    /// Returns the lkey, for requests of this side.
    pub const fn lkey(&self) -> u32 {
        self.mr.lkey
    }

    /// Returns the rkey, for requests of peers.
    pub const fn rkey(&self) -> u32 {
        self.mr.rkey
    }

    /// Copies elements out of the memory, from byte `at` on. Returns `EINVAL` if they reach
    /// outside.
    pub fn read<T: Plain>(&self, at: u64, to: &mut [T]) -> Result {
        calls::read(self.fd, self.memory, at, bytes_mut(to))
    }

    /// Copies elements into the memory, from byte `at` on. Returns `EINVAL` if they reach outside.
    pub fn write<T: Plain>(&self, at: u64, from: &[T]) -> Result {
        calls::write(self.fd, self.memory, at, bytes(from))
    }
}

impl Drop for DeviceMemory<'_> {
    fn drop(&mut self) {
        // If a leaked key refers to the MR, the MR and the memory stay until the context is closed.
        if object::destroy(self.fd, self.mr.handle).is_ok() {
            let _ = calls::release(self.fd, self.memory);
        }
    }
}
