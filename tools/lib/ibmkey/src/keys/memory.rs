// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Registered memory of the process, which a region owns or the program lends.

use core::{
    ffi::c_int,
    marker::PhantomData,
    mem::size_of_val,
    ptr::NonNull, //
};

use super::{
    Access,
    Pd,
    Slice, //
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Plain,
    iov, object,
};

/// Registered bytes of this process. The device and peers may read and write the bytes at any time,
/// so Rust code must not have references to them.
///
/// # Invariants
///
/// The `length` bytes at `start` may be read and written until the owner of this object frees or
/// returns them, after [`Self::deregister`].
#[derive(Clone, Copy)]
pub(super) struct Memory {
    start: NonNull<u8>,
    length: usize,
    fd: c_int,
    handle: u32,
    lkey: u32,
    rkey: u32,
}

impl Memory {
    /// Registers `length` bytes.
    ///
    /// # Safety
    ///
    /// The bytes are initialised. If this succeeds, they may be read until the MR is deregistered.
    /// If `access` allows writing, the bytes may also be written until then, and there are no
    /// references to them.
    pub(super) unsafe fn register(
        pd: Pd<'_>,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self> {
        let at = start.as_ptr() as u64;
        let [handle, lkey, rkey] =
            iov::register(pd.fd, pd.handle, at, length as u64, access.bits())?;

        // INVARIANT: By the caller's promise.
        Ok(Self {
            start,
            length,
            fd: pd.fd,
            handle,
            lkey,
            rkey,
        })
    }

    /// Deregisters the memory. Returns `EBUSY` while a key or a window refers to the MR.
    pub(super) fn deregister(&self) -> Result {
        object::destroy(self.fd, self.handle)
    }

    pub(super) fn all<'r>(&self) -> Slice<'r> {
        Slice {
            lkey: self.lkey,
            address: self.address(),
            length: self.length as u64,
            owner: PhantomData,
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(super) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns a pointer to `length` bytes from `at` on, or `ERANGE` if they reach outside.
    fn at(&self, at: usize, length: usize) -> Result<*mut u8> {
        match at.checked_add(length) {
            Some(end) if end <= self.length => {
                // SAFETY: The offset is within the memory.
                Ok(unsafe { self.start.as_ptr().add(at) })
            }
            _ => Err(Errno::ERANGE),
        }
    }

    pub(super) fn read<T: Plain>(&self, at: usize, to: &mut [T]) -> Result {
        let length = size_of_val(to);
        let from = self.at(at, length)?;

        // SAFETY: `from` and `to` have `length` bytes each. They do not overlap, because `to` is a
        // reference and the registered memory has none. Any bytes are valid elements.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast(), length) }
        Ok(())
    }

    /// Copies elements into the memory. The owner of this object allows this only if the program
    /// may write the memory.
    pub(super) fn write<T: Plain>(&self, at: usize, from: &[T]) -> Result {
        let length = size_of_val(from);
        let to = self.at(at, length)?;

        // SAFETY: `from` and `to` have `length` bytes each, and do not overlap, because the
        // registered memory has no references. Elements have no padding, so all their bytes are
        // initialised.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr().cast(), to, length) }
        Ok(())
    }
}

/// Returns the bytes of elements, for a list of parts of several types.
pub fn bytes_mut<T: Plain>(items: &mut [T]) -> &mut [u8] {
    let length = size_of_val(items);

    // SAFETY: Elements have no padding, so all their bytes are initialised. Any bytes are valid
    // elements.
    unsafe { core::slice::from_raw_parts_mut(items.as_mut_ptr().cast(), length) }
}

/// Returns the bytes of elements, for a list of parts of several types.
pub fn bytes<T: Plain>(items: &[T]) -> &[u8] {
    // SAFETY: Elements have no padding, so all their bytes are initialised.
    unsafe { core::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}
