// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    str::{CStr, CStrExt},
    types::Opaque,
};

/// A protection domain.
#[repr(transparent)]
pub(crate) struct Pd(Opaque<bindings::ib_pd>);

impl Pd {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_pd) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.0.get()
    }

    /// Returns `true` if the domain belongs to a kernel user, not to a process.
    pub(crate) fn is_kernels(&self) -> bool {
        self.context().is_none()
    }

    /// Returns the context of the process to which the domain belongs; [`None`] for a kernel user.
    pub(crate) fn context(&self) -> Option<&UserContext> {
        // SAFETY: The fields are set when the domain is made, and the context outlives the domain.
        unsafe {
            let object = (*self.as_raw()).uobject.as_ref()?;
            Some(UserContext::from_raw(object.context))
        }
    }

    /// Returns the lkey by which kernel users address all memory.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The field is set when the domain is made.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }

    /// Returns the domain's device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A protection domain's device is set when it is made and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }
}

/// The context of a process that opened a device.
#[repr(transparent)]
pub(crate) struct UserContext(Opaque<bindings::ib_ucontext>);

impl UserContext {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_ucontext) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_ucontext {
        self.0.get()
    }

    /// Returns the device that the process has opened.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: The field is set when the context is made. The device outlives the context.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }
}

/// A protection domain that this module made. Dropping it deallocates the domain.
///
/// # Invariants
///
/// The pointer came from `__ib_alloc_pd()`.
pub(crate) struct OwnedPd(NonNull<bindings::ib_pd>);

// SAFETY: Protection domains may be used from any thread.
unsafe impl Send for OwnedPd {}
// SAFETY: Any thread may use a protection domain, also several at once.
unsafe impl Sync for OwnedPd {}

impl OwnedPd {
    /// Makes a protection domain. `caller` is shown by `rdma resource show pd`.
    pub(crate) fn new(device: &Device, caller: &'static CStr) -> Result<Self> {
        // SAFETY: The device is valid and `caller` is a C string.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, caller.as_char_ptr())
        })?;
        // INVARIANT: Allocated above.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }
}

impl core::ops::Deref for OwnedPd {
    type Target = Pd;

    fn deref(&self) -> &Pd {
        // SAFETY: By the type invariant.
        unsafe { Pd::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedPd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. The owners of MRs in the domain drop before it, so no
        // MR refers to it. The verb fails only if one does.
        unsafe { bindings::ib_dealloc_pd_user(self.0.as_ptr(), core::ptr::null_mut()) };
    }
}
