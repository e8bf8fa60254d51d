// SPDX-License-Identifier: GPL-2.0

//! Memory windows of rxe.
//!
//! rxe's operations for windows (`mr_ops.rs`) wait for other threads, and the deallocation of a window
//! must not wait for them. So they hold no reference to the window. They
//! find it by its index each time, and its address distinguishes it from a later window at the same
//! index.

use super::bindings::{self, rxe_mw};
use crate::{
    backend::interface::DriverWindow,
    kernel_ext::rdma::{mr_key, Device, Mr},
};
use core::ptr::NonNull;

/// A reference to a window. Dropping it releases the reference.
///
/// # Invariants
///
/// The pointer came from `ib_mkey_rxe_hold_mw()`.
pub(crate) struct HeldMw(NonNull<rxe_mw>);

impl Drop for HeldMw {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_put_mw(self.0.as_ptr()) };
    }
}

/// A window of `device`.
///
/// # Invariants
///
/// The device belongs to rxe.
pub(crate) struct RxeMw<'a> {
    device: &'a Device,
    /// An rkey of the window, which contains the index.
    rkey: u32,
    /// The address of the window, which is compared and never dereferenced.
    mw: *mut rxe_mw,
}

impl DriverWindow for RxeMw<'_> {
    type Held = HeldMw;

    fn address(&self) -> usize {
        // A window begins with its `ib_mw`.
        self.mw as usize
    }

    fn hold(&self) -> Option<HeldMw> {
        // SAFETY: By the type invariant.
        let held = unsafe {
            bindings::ib_mkey_rxe_hold_mw(self.device.as_raw(), mr_key::index(self.rkey), self.mw)
        };
        // INVARIANT: Taken above.
        NonNull::new(held).map(HeldMw)
    }

    fn is_over(&self, shadow: &Mr) -> bool {
        let Some(held) = self.hold() else {
            return true;
        };
        // SAFETY: `held` is a reference to the window. The address of the MR is compared.
        unsafe { bindings::ib_mkey_rxe_mw_is_over(held.0.as_ptr(), shadow.as_raw()) }
    }
}

impl<'a> RxeMw<'a> {
    /// Refers to the window at the address `mw`, which an `rkey` names.
    ///
    /// # Safety
    ///
    /// `device` must belong to rxe.
    pub(super) unsafe fn new(device: &'a Device, rkey: u32, mw: *mut rxe_mw) -> Self {
        // INVARIANT: By the safety requirement.
        Self { device, rkey, mw }
    }
}
