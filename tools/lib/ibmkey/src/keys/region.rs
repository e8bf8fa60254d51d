// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Registered memory.

use core::{
    ffi::c_int,
    marker::PhantomData,
    ops::Range,
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
    iov, object,
};

/// Registered memory. The device and peers may read and write it at any time, so there are no
/// references to its bytes.
///
/// # Invariants
///
/// `memory` is a leaked box that is registered as the MR `handle`. Only this object frees them.
pub struct Region<'pd> {
    memory: NonNull<[u8]>,
    fd: c_int,
    handle: u32,
    lkey: u32,
    rkey: u32,
    pd: PhantomData<&'pd Pd<'pd>>,
}

impl Region<'_> {
    pub(super) fn new(
        fd: c_int,
        pd_handle: u32,
        contents: Vec<u8>,
        access: Access,
    ) -> Result<Self> {
        let memory = NonNull::from(Box::leak(contents.into_boxed_slice()));
        let start = memory.cast::<u8>().as_ptr() as u64;

        match iov::register(fd, pd_handle, start, memory.len() as u64, access.bits()) {
            // INVARIANT: Leaked and registered above; there is no other owner.
            Ok([handle, lkey, rkey]) => Ok(Self {
                memory,
                fd,
                handle,
                lkey,
                rkey,
                pd: PhantomData,
            }),
            Err(errno) => {
                // SAFETY: It was leaked above, and is not registered.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
                Err(errno)
            }
        }
    }

    /// Returns all bytes, for a layout.
    pub fn all(&self) -> Slice<'_> {
        Slice {
            lkey: self.lkey,
            address: self.address(),
            length: self.memory.len() as u64,
            owner: PhantomData,
        }
    }

    /// Returns some bytes, for a layout; `ERANGE` if they reach outside.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'_>> {
        self.all().slice(range)
    }

    /// Returns the address of the first byte, for work requests.
    pub fn address(&self) -> u64 {
        self.memory.cast::<u8>().as_ptr() as u64
    }

    /// Returns the key for requests of this side.
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the key for requests of peers.
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns a pointer to `length` bytes from `at` on, or `ERANGE`.
    fn at(&self, at: usize, length: usize) -> Result<*mut u8> {
        match at.checked_add(length) {
            Some(end) if end <= self.memory.len() => {
                // SAFETY: The offset is within the memory.
                Ok(unsafe { self.memory.cast::<u8>().as_ptr().add(at) })
            }
            _ => Err(Errno::ERANGE),
        }
    }

    /// Copies bytes of the region from `at` on. If the device writes meanwhile, some are old and some
    /// are new.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result {
        let from = self.at(at, to.len())?;

        // SAFETY: Both have as many bytes, and `to` is not a part of the region.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    /// Copies bytes into the region from `at` on.
    pub fn write(&self, at: usize, from: &[u8]) -> Result {
        let to = self.at(at, from.len())?;

        // SAFETY: As above.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
        Ok(())
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // A key that was leaked may still refer to the memory. Then it stays registered, and is not
        // freed.
        if object::destroy(self.fd, self.handle).is_ok() {
            // SAFETY: By the type's invariant.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}
