// SPDX-License-Identifier: GPL-2.0

//! The operations of the driver of a device, and MRs that the driver made.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    mr::{Mr, NewMr},
    pd::Pd,
};
use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr;
use kernel::{error::from_err_ptr, ffi::c_int, prelude::*};

/// An MR that a driver made but that `ib_core` does not know yet.
///
/// # Invariants
///
/// The pointer came from the driver's `alloc_mr` or `reg_user_mr`.
pub(crate) struct DriverMr {
    raw: *mut bindings::ib_mr,
    dereg: Option<DeregMr>,
}

type DeregMr =
    unsafe extern "C" fn(mr: *mut bindings::ib_mr, udata: *mut bindings::ib_udata) -> c_int;

impl DriverMr {
    /// # Safety
    ///
    /// `raw` came from the driver whose operation `dereg` is, and has no other owner.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_mr, dereg: Option<DeregMr>) -> Self {
        // INVARIANT: By the safety requirements.
        Self { raw, dereg }
    }

    pub(super) fn into_raw(self) -> *mut bindings::ib_mr {
        core::mem::ManuallyDrop::new(self).raw
    }
}

impl core::ops::Deref for DriverMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(self.raw) }
    }
}

impl Drop for DriverMr {
    fn drop(&mut self) {
        if let Some(dereg) = self.dereg {
            // SAFETY: By the type invariant; `ib_core` never had the MR.
            unsafe { dereg(self.raw, ptr::null_mut()) };
        }
    }
}

/// The operations of the driver of a device, to which a module passes calls.
///
/// # Invariants
///
/// The table is valid as long as the driver has a device with the module's operations.
#[derive(Clone, Copy)]
pub(crate) struct DriverOps(*const bindings::ib_device_ops);

impl DriverOps {
    /// # Safety
    ///
    /// `ops` must be as the type invariant requires, and operations for the devices of the module
    /// that implements [`DeviceOps`](super::ops::DeviceOps).
    pub(crate) unsafe fn new(ops: *const bindings::ib_device_ops) -> Self {
        // INVARIANT: By the safety requirement.
        Self(ops)
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &bindings::ib_device_ops {
        // SAFETY: By the type invariant. A module gets this while there is a device.
        unsafe { &*self.0 }
    }

    /// Makes an MR for `pages` pages by the driver. `ib_core` does not know it. `prepare` gets the
    /// MR while it is new.
    ///
    /// # Errors
    ///
    /// The errors of the driver and of `prepare`.
    pub(crate) fn alloc_mr(
        &self,
        pd: &Pd,
        pages: u32,
        prepare: impl FnOnce(NewMr<'_>) -> Result,
    ) -> Result<DriverMr> {
        let alloc_mr = self.table().alloc_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The protection domain is of a device of the driver.
        let raw = from_err_ptr(unsafe {
            alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // SAFETY: `raw` is a new MR. The core sets these fields in `ib_alloc_mr()`, or after
        // `reg_dm_mr()` has returned; `device` and `pd` are needed before.
        unsafe {
            (*raw).device = pd.device().as_raw();
            (*raw).pd = pd.as_raw();
        }
        // SAFETY: Allocated above.
        let mr = unsafe { DriverMr::from_raw(raw, self.table().dereg_mr) };
        // SAFETY: Allocated above, and there is no other `NewMr` of it.
        prepare(unsafe { NewMr::new(&mr) })?;
        Ok(mr)
    }
}
