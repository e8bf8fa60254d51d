// SPDX-License-Identifier: GPL-2.0

//! Protection domains and memory regions.

use super::HeldDevice;
use crate::{
    bindings,
    kernel_ext::rdma::{Mr, OwnedPd},
};
use core::{ops::Deref, ptr::NonNull};
use kernel::{error::from_err_ptr, prelude::*, sync::Arc};

/// A protection domain.
pub(crate) struct Pd {
    // Fields drop in declaration order: the domain before its device.
    raw: OwnedPd,
    device: HeldDevice,
}

impl Pd {
    /// Makes a protection domain.
    pub(crate) fn new(device: &HeldDevice) -> Result<Arc<Self>> {
        let pd = Self {
            raw: OwnedPd::new(device, super::NAME)?,
            device: device.clone(),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// Returns the domain's device.
    pub(crate) fn device(&self) -> &HeldDevice {
        &self.device
    }

    /// Returns the lkey for all memory that is mapped for the device.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The domain is valid, and the key is set when it is made.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_raw()
    }
}

/// A memory region. Dropping it deregisters the region.
///
/// # Invariants
///
/// The pointer is a region in `pd`. Only this deregisters it.
pub(super) struct Region {
    raw: NonNull<bindings::ib_mr>,
    pd: Arc<Pd>,
}

// SAFETY: Memory regions may be used from any thread.
unsafe impl Send for Region {}
// SAFETY: As above.
unsafe impl Sync for Region {}

impl Region {
    /// Takes the result of a function that makes a region in `pd`.
    ///
    /// # Safety
    ///
    /// `raw` must be an error pointer or a new region in `pd`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_mr, pd: &Arc<Pd>) -> Result<Self> {
        // INVARIANT: By the safety requirement.
        Ok(Self {
            raw: NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?,
            pd: pd.clone(),
        })
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }
}

impl Deref for Region {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(self.raw.as_ptr()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let ret = unsafe { bindings::ib_dereg_mr_user(self.raw.as_ptr(), core::ptr::null_mut()) };
        if ret != 0 {
            pr_err!("a region cannot be deregistered: error {ret}\n");
        }
    }
}
