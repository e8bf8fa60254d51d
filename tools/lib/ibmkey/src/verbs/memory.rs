// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Protection domains, registered memory and keys.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use super::Context;
use crate::{
    errno::{
        Errno,
        Result, //
    },
    ffi,
    sys::{
        self,
        ibmkey_block, //
    },
};

/// A protection domain.
///
/// # Invariants
///
/// `raw` is a protection domain that only this object deallocates.
pub struct Pd<'a> {
    raw: NonNull<sys::ibv_pd>,
    context: PhantomData<&'a Context>,
}

impl Context {
    /// Allocates a protection domain.
    pub fn alloc_pd(&self) -> Result<Pd<'_>> {
        // SAFETY: An open context.
        let pd = unsafe { sys::ibv_alloc_pd(self.as_raw()) };

        // INVARIANT: Allocated above; there is no other owner.
        Ok(Pd {
            raw: NonNull::new(pd).ok_or_else(Errno::last)?,
            context: PhantomData,
        })
    }
}

impl Pd<'_> {
    /// The domain, for libibverbs's functions.
    pub fn as_raw(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> *mut sys::ibv_context {
        // SAFETY: By the type's invariant; the field is never written.
        unsafe { (*self.raw.as_ptr()).context }
    }

    /// Registers memory with these contents. What may be done to it are flags
    /// of `enum ibv_access_flags`.
    pub fn register(&self, contents: Vec<u8>, access: u32) -> Result<Buffer<'_>> {
        let access = access.try_into().map_err(|_| Errno::EINVAL)?;
        let memory = NonNull::from(Box::leak(contents.into_boxed_slice()));

        // SAFETY: A protection domain, and memory that is there until the
        // region is not.
        let mr =
            unsafe { sys::ibv_reg_mr(self.as_raw(), memory.as_ptr().cast(), memory.len(), access) };
        match NonNull::new(mr) {
            // INVARIANT: Leaked and registered above; there is no other owner.
            Some(mr) => Ok(Buffer {
                memory,
                mr,
                pd: PhantomData,
            }),
            None => {
                let errno = Errno::last();
                // SAFETY: Leaked above, and not registered.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
                Err(errno)
            }
        }
    }

    /// Creates a key for that many entries or blocks.
    pub fn alloc_key(&self, max_entries: u32) -> Result<Key<'_>> {
        // SAFETY: A protection domain.
        let mr = unsafe { ffi::ibmkey_alloc(self.as_raw(), max_entries) };

        // INVARIANT: Created above; there is no other owner.
        Ok(Key {
            mr: NonNull::new(mr).ok_or_else(Errno::last)?,
            pd: PhantomData,
        })
    }
}

impl Drop for Pd<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. One that is in use stays.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// What a request names: an address, and the keys that it is valid for.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Of the first byte.
    pub addr: u64,
    /// For the device's own requests.
    pub lkey: u32,
    /// For the requests of others.
    pub rkey: u32,
}

impl Span {
    /// # Safety
    ///
    /// `mr` is a region.
    unsafe fn of(mr: NonNull<sys::ibv_mr>, addr: u64) -> Self {
        // SAFETY: By the caller's promise; neither field is ever written.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };

        Self { addr, lkey, rkey }
    }
}

/// Registered memory. The device reads and writes it at any time, so there are
/// no references into it.
///
/// # Invariants
///
/// `memory` is a leaked box, registered as `mr`; only this object frees them.
pub struct Buffer<'a> {
    memory: NonNull<[u8]>,
    mr: NonNull<sys::ibv_mr>,
    pd: PhantomData<&'a Pd<'a>>,
}

impl Buffer<'_> {
    /// All of it.
    pub fn span(&self) -> Span {
        // SAFETY: By the type's invariant.
        unsafe { Span::of(self.mr, self.memory.as_ptr().cast::<u8>() as u64) }
    }

    /// What is in it now.
    pub fn contents(&self) -> Vec<u8> {
        let mut copy = vec![0; self.memory.len()];

        // SAFETY: As many bytes are in both. The device may write meanwhile:
        // then some are those of before, and some those of after.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.memory.as_ptr().cast::<u8>(),
                copy.as_mut_ptr(),
                copy.len(),
            );
        }
        copy
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        if unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) } == 0 {
            // SAFETY: By the type's invariant. Memory that is still registered,
            // since a key describes it, has to stay.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

/// A key.
///
/// # Invariants
///
/// `mr` is a key that only this object destroys.
pub struct Key<'a> {
    mr: NonNull<sys::ibv_mr>,
    pd: PhantomData<&'a Pd<'a>>,
}

impl Key<'_> {
    /// Binds it to blocks that repeat with a stride, each as often in each
    /// dimension as `repeat_count` says, outermost first.
    pub fn bind_interleaved(
        &mut self,
        access: u32,
        repeat_count: &[u64],
        blocks: &[ibmkey_block],
    ) -> Result {
        let count = |len: usize| u32::try_from(len).map_err(|_| Errno::EINVAL);

        // SAFETY: A key, and arrays of as many elements as is said.
        Errno::check(unsafe {
            ffi::ibv_rereg_mr_interleaved(
                self.mr.as_ptr(),
                access,
                count(repeat_count.len())?,
                repeat_count.as_ptr(),
                count(blocks.len())?,
                blocks.as_ptr(),
            )
        })
    }

    /// All of it: a key's first byte is at address 0.
    pub fn span(&self) -> Span {
        // SAFETY: By the type's invariant.
        unsafe { Span::of(self.mr, 0) }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) };
    }
}
