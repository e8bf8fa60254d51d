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
    /// Returns the domain, for libibverbs's functions.
    pub fn as_raw(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> *mut sys::ibv_context {
        // SAFETY: By the type's invariant; the field is never written.
        unsafe { (*self.raw.as_ptr()).context }
    }

    /// Registers memory with these contents. `access` is a set of `enum ibv_access_flags`.
    pub fn register(&self, contents: Vec<u8>, access: u32) -> Result<Buffer<'_>> {
        let access = access.try_into().map_err(|_| Errno::EINVAL)?;
        let memory = NonNull::from(Box::leak(contents.into_boxed_slice()));

        // SAFETY: It is a protection domain, and the memory exists until the MR is deregistered.
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
                // SAFETY: It was leaked above, and is not registered.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
                Err(errno)
            }
        }
    }

    /// Creates a key for at most `max_entries` entries or blocks.
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
        // SAFETY: By the type's invariant. A domain that is in use stays.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// The bytes that a request names: an address, and the keys for which it is valid.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Address of the first byte.
    pub addr: u64,
    /// Key for the device's own requests.
    pub lkey: u32,
    /// Key for the requests of peers.
    pub rkey: u32,
}

impl Span {
    /// # Safety
    ///
    /// `mr` is an MR.
    unsafe fn of(mr: NonNull<sys::ibv_mr>, addr: u64) -> Self {
        // SAFETY: By the caller's promise; neither field is ever written.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };

        Self { addr, lkey, rkey }
    }
}

/// Registered memory. The device may read and write it at any time, so there are no references to
/// its bytes.
///
/// # Invariants
///
/// `memory` is a leaked box that is registered as `mr`. Only this object frees them.
pub struct Buffer<'a> {
    memory: NonNull<[u8]>,
    mr: NonNull<sys::ibv_mr>,
    pd: PhantomData<&'a Pd<'a>>,
}

impl Buffer<'_> {
    /// Returns all of the memory.
    pub fn span(&self) -> Span {
        // SAFETY: By the type's invariant.
        unsafe { Span::of(self.mr, self.memory.as_ptr().cast::<u8>() as u64) }
    }

    /// Returns the current contents.
    pub fn contents(&self) -> Vec<u8> {
        let mut copy = vec![0; self.memory.len()];

        // SAFETY: Both have as many bytes. The device may write meanwhile; then the copy has old
        // and new bytes.
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
            // SAFETY: By the type's invariant. If a key refers to the memory, it stays registered
            // and is not freed.
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
    /// Binds the key to blocks that repeat with a stride, `repeat_count[d]` times in dimension d.
    /// Dimension 0 is the outermost.
    pub fn bind_interleaved(
        &mut self,
        access: u32,
        repeat_count: &[u64],
        blocks: &[ibmkey_block],
    ) -> Result {
        let count = |len: usize| u32::try_from(len).map_err(|_| Errno::EINVAL);

        // SAFETY: It is a key, and the arrays have as many elements as the counts.
        Errno::check(unsafe {
            ffi::ibmkey_bind_interleaved(
                self.mr.as_ptr(),
                access,
                count(repeat_count.len())?,
                repeat_count.as_ptr(),
                count(blocks.len())?,
                blocks.as_ptr(),
            )
        })
    }

    /// Returns all bytes of the key. The first one is at address 0.
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
