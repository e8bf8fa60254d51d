// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Protection domains, and the bytes that requests name. The module [`keys`] has memory and keys.

use core::{
    ffi::c_int,
    marker::PhantomData,
    ptr::NonNull, //
};

use super::Context;
use crate::{
    errno::{
        Errno,
        Result, //
    },
    keys, sys,
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
        // SAFETY: By the type's invariant, the context is open.
        let pd = unsafe { sys::ibv_alloc_pd(self.as_raw()) };

        // INVARIANT: The protection domain was allocated above, so there is no other owner.
        Ok(Pd {
            raw: NonNull::new(pd).ok_or_else(Errno::last)?,
            context: PhantomData,
        })
    }
}

impl Pd<'_> {
    /// Returns the `struct ibv_pd`, for libibverbs's functions.
    pub fn as_raw(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> *mut sys::ibv_context {
        // SAFETY: By the type's invariant; the field is never written.
        unsafe { (*self.raw.as_ptr()).context }
    }

    /// Returns the command file descriptor and the handle.
    pub(crate) fn numbers(&self) -> (c_int, u32) {
        // SAFETY: By the type's invariant, this is a protection domain, whose context is open. The
        // fields are never written.
        unsafe { ((*self.context()).cmd_fd, (*self.raw.as_ptr()).handle) }
    }
}

impl Drop for Pd<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant, only this object deallocates the protection domain. If
        // it is in use, the call fails and the domain stays.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// The bytes that a request names: an address, and the lkey and rkey of the MR in which it is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The address of the first byte.
    pub addr: u64,
    /// The lkey, for requests of this side.
    pub lkey: u32,
    /// The rkey, for requests of peers.
    pub rkey: u32,
}

impl From<&keys::Key<'_>> for Span {
    /// Returns all bytes of a key. The first one is at address 0.
    fn from(key: &keys::Key<'_>) -> Self {
        Self {
            addr: 0,
            lkey: key.lkey(),
            rkey: key.rkey(),
        }
    }
}

impl From<&keys::Region<'_>> for Span {
    fn from(region: &keys::Region<'_>) -> Self {
        Self {
            addr: region.address(),
            lkey: region.lkey(),
            rkey: region.rkey(),
        }
    }
}

impl From<&keys::Lent<'_>> for Span {
    fn from(lent: &keys::Lent<'_>) -> Self {
        Self {
            addr: lent.address(),
            lkey: lent.lkey(),
            rkey: lent.rkey(),
        }
    }
}
