// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Keys for programs in Rust.
//!
//! A key describes bytes of [regions](Region) and of other keys. Lifetimes ensure that a region is
//! not dropped while a key may describe it, and a protection domain not before its keys. Only the
//! functions that take objects of other verbs crates, as raw pointers or numbers, need `unsafe`.
//! This module does not link to libibverbs.
//!
//! Memory belongs to a [`Region`], is borrowed for a [`Scope`], or is [`DeviceMemory`].
//!
//! ```no_run
//! use ibmkey::keys::{Access, Key, Pd};
//!
//! # fn example(raw: *mut ibmkey::sys::ibv_pd) -> ibmkey::Result {
//! // SAFETY: `raw` comes from another crate, which keeps it until `pd` is dropped.
//! let pd = unsafe { Pd::from_raw(raw) }?;
//! // A matrix of 4 rows of 48 bytes. The key is column 1 of its 8-byte elements.
//! let matrix = pd.register(vec![0u8; 4 * 48], Access::REMOTE_READ)?;
//! let key = Key::of_strided(&pd, matrix.slice(8..16)?, &[4], &[48], Access::REMOTE_READ)?;
//! println!("a peer reads {} bytes by rkey {:#x}", key.length(), key.rkey());
//! # Ok(())
//! # }
//! ```
//!
//! A key cannot outlive what it describes:
//!
//! ```compile_fail,E0505
//! # use ibmkey::keys::{Access, Key, Pd};
//! # fn example(pd: &Pd<'_>) -> ibmkey::Result {
//! let region = pd.register(vec![0u8; 100], Access::REMOTE_READ)?;
//! let mut key = Key::new(pd, 1)?;
//! key.bind_list(&[region.slice(10..20)?], Access::REMOTE_READ)?;
//! drop(region); // error: `region` is still borrowed by `key`
//! println!("{}", key.length());
//! # Ok(())
//! # }
//! ```
//!
//! A key cannot be bound again while another key describes it:
//!
//! ```compile_fail,E0502
//! # use ibmkey::keys::{Access, Key, Pd, Region};
//! # fn example<'r>(pd: &'r Pd<'_>, region: &'r Region<'_>) -> ibmkey::Result {
//! let mut inner = Key::new(pd, 1)?;
//! inner.bind_list(&[region.all()], Access::REMOTE_READ)?;
//! let mut outer = Key::new(pd, 1)?;
//! outer.bind_list(&[inner.all()], Access::REMOTE_READ)?;
//! inner.bind_list(&[region.all()], Access::REMOTE_READ)?; // error: `inner` is borrowed
//! println!("{}", outer.length());
//! # Ok(())
//! # }
//! ```

use core::{
    ffi::c_int,
    marker::PhantomData,
    ops::{
        BitOr,
        Range, //
    },
};
use std::os::fd::{
    AsRawFd,
    BorrowedFd, //
};

mod device;
mod key;
mod layout;
mod memory;
mod region;
mod scope;

/// Returns a sentence for the last bind that failed in this thread. It names the part of the layout
/// that is the reason: an entry, a block, a dimension or an index.
pub use crate::explain::last_text as last_error;
/// A type of elements that a device may read and write: a number, or an array of numbers.
pub use crate::ioctl::Plain;
pub use device::DeviceMemory;
pub use key::Key;
pub use layout::{
    Indexed,
    Interleaved, //
};
pub use memory::{
    bytes,
    bytes_mut, //
};
pub use region::Region;
pub use scope::{
    Lent,
    Scope, //
};

use crate::{
    alloc::Memory,
    errno::{
        Errno,
        Result, //
    },
    iov,
    object,
    sys, //
};

/// Access flags, as `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Local reads, which need no flag.
    pub const LOCAL_READ: Self = Self(0);
    /// Local writes, such as those of a receive.
    pub const LOCAL_WRITE: Self = Self(sys::IBV_ACCESS_LOCAL_WRITE);
    /// Reads by peers.
    pub const REMOTE_READ: Self = Self(sys::IBV_ACCESS_REMOTE_READ);
    /// Writes by peers. Needs [`Self::LOCAL_WRITE`], too.
    pub const REMOTE_WRITE: Self = Self(sys::IBV_ACCESS_REMOTE_WRITE);
    /// Atomic operations by peers. Needs [`Self::LOCAL_WRITE`], too.
    pub const REMOTE_ATOMIC: Self = Self(sys::IBV_ACCESS_REMOTE_ATOMIC);

    /// The flags that allow writing.
    pub(crate) const ALL_WRITES: u32 =
        sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;

    /// Returns the flags as a number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the flags of an MR that only keys with these flags use.
    pub(crate) fn of_leaves(self) -> Self {
        Self(iov::of_leaves(self.0))
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A protection domain of the module `verbs` or of another verbs crate. It exists during `'c`.
#[derive(Clone, Copy, Debug)]
pub struct Pd<'c> {
    fd: c_int,
    handle: u32,
    owner: PhantomData<&'c ()>,
}

impl<'c> Pd<'c> {
    /// Uses a `struct ibv_pd`. Each crate has its own type for this structure; `.cast()` converts
    /// the pointer.
    ///
    /// Returns `EINVAL` for NULL.
    ///
    /// # Safety
    ///
    /// `pd` is NULL or a protection domain, which stays allocated during `'c`.
    pub unsafe fn from_raw(pd: *mut sys::ibv_pd) -> Result<Self> {
        if pd.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: By the caller's promise.
        let (context, handle) = unsafe { ((*pd).context, (*pd).handle) };

        Ok(Self {
            // SAFETY: A protection domain's context stays open as long as the domain exists.
            fd: unsafe { object::cmd_fd(context) }?,
            handle,
            owner: PhantomData,
        })
    }

    /// Uses the command file descriptor of a context and the handle of a protection domain.
    ///
    /// # Safety
    ///
    /// During `'c`, the handle is that of one protection domain.
    pub unsafe fn from_handle(cmd_fd: BorrowedFd<'c>, handle: u32) -> Self {
        Self {
            fd: cmd_fd.as_raw_fd(),
            handle,
            owner: PhantomData,
        }
    }

    /// Registers memory with these contents.
    pub fn register<T: Plain>(&self, contents: Vec<T>, access: Access) -> Result<Region<'c>> {
        Region::new(*self, contents, access)
    }

    /// Allocates zeroed memory, of huge pages if possible, and registers it.
    ///
    /// The memory is shared with child processes. Returns `EINVAL` if `length` is 0, and `ENOMEM`
    /// if a limit is reached.
    pub fn allocate(&self, length: usize, access: Access) -> Result<Region<'c>> {
        Region::of_library(*self, Memory::new(length)?, access)
    }

    /// Registers memory that another process shares by [`Region::share`], or another memfd with the
    /// seal `F_SEAL_SHRINK`.
    ///
    /// Returns `EINVAL` for another file, and `EACCES` if `access` allows writing memory that is
    /// shared for reading only.
    pub fn register_shared(&self, fd: BorrowedFd<'_>, access: Access) -> Result<Region<'c>> {
        Region::of_library(*self, Memory::open(fd.as_raw_fd(), access.bits())?, access)
    }
}

#[cfg(feature = "verbs")]
impl<'p> From<&'p crate::verbs::Pd<'_>> for Pd<'p> {
    fn from(pd: &'p crate::verbs::Pd<'_>) -> Self {
        let (fd, handle) = pd.numbers();

        Self {
            fd,
            handle,
            owner: PhantomData,
        }
    }
}

/// Bytes of a region, of a key, or of an MR of another crate. A layout consists of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'r> {
    lkey: u32,
    address: u64,
    length: u64,
    owner: PhantomData<&'r ()>,
}

impl Slice<'_> {
    /// Uses bytes of an MR of another crate. `address` is an address in the MR.
    ///
    /// # Safety
    ///
    /// The MR that `lkey` names, and its memory, exist as long as the slice. While a key over the
    /// slice allows writing, the program has no reference to that memory.
    pub const unsafe fn from_raw(lkey: u32, address: u64, length: u64) -> Self {
        Self {
            lkey,
            address,
            length,
            owner: PhantomData,
        }
    }

    /// Returns a part of the slice, or `ERANGE` if `range` reaches outside the slice.
    pub fn slice(self, range: Range<u64>) -> Result<Self> {
        let length = range.end.checked_sub(range.start).ok_or(Errno::ERANGE)?;

        if range.end > self.length {
            return Err(Errno::ERANGE);
        }
        Ok(Self {
            address: self
                .address
                .checked_add(range.start)
                .ok_or(Errno::EOVERFLOW)?,
            length,
            ..self
        })
    }

    /// Returns the number of bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
#[path = "keys/tests.rs"]
mod tests;
