// SPDX-License-Identifier: GPL-2.0

//! MRs that a driver made.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::mr::Mr;
use crate::bindings;
use core::ptr;
use kernel::ffi::c_int;

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
