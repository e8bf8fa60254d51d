// SPDX-License-Identifier: GPL-2.0

//! Protection domains and MRs.

use super::HeldDevice;
use crate::{
    bindings,
    kernel_ext::rdma::{Mr, OwnedMr, OwnedPd},
};
use core::ops::Deref;
use kernel::{error::from_err_ptr, prelude::*, sync::Arc};

/// A protection domain.
pub(crate) struct DevicePd {
    // Fields drop in declaration order: the domain before its device.
    raw: OwnedPd,
    device: HeldDevice,
}

impl DevicePd {
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

    /// Returns `true` if `other` is the same protection domain.
    pub(super) fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self.as_raw(), other.as_raw())
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_raw()
    }
}

/// An MR. Dropping it deregisters the MR.
pub(super) struct PdMr {
    // Fields drop in declaration order: the MR before its protection domain.
    mr: OwnedMr,
    pd: Arc<DevicePd>,
}

impl PdMr {
    /// Takes over the result of a function that makes an MR in `pd`.
    ///
    /// # Safety
    ///
    /// `raw` must be an error pointer or a new MR in `pd`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_mr, pd: &Arc<DevicePd>) -> Result<Self> {
        let raw = from_err_ptr(raw)?;
        // SAFETY: By the safety requirement a new MR, which has no other owner.
        let mr = unsafe { OwnedMr::from_raw(raw) };
        Ok(Self {
            mr: mr.ok_or(ENOMEM)?,
            pd: pd.clone(),
        })
    }

    pub(super) fn pd(&self) -> &DevicePd {
        &self.pd
    }
}

impl Deref for PdMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        &self.mr
    }
}
