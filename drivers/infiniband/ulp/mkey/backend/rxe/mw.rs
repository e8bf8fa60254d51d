// SPDX-License-Identifier: GPL-2.0

//! Memory windows of rxe.
//!
//! The replacements of rxe's functions for windows wait for other threads, and rxe frees a window
//! after 50 seconds although a reference is left. So they hold no reference to the window. They
//! find it by its index each time, and its address distinguishes it from a later window at the same
//! index.

use super::{
    bindings::{self, rxe_mw, rxe_qp},
    device::is_rxe,
};
use crate::{
    backend::interface::DriverWindow,
    kernel_ext::rdma::{mr_key, Device, Mr, Qp},
};
use core::ptr::{self, NonNull};
use kernel::{error::to_result, prelude::*};

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

/// A window that is bound to a hidden MR, or is about to be. Counted as long as this exists.
pub(crate) struct CountedMw {
    /// The index of the device.
    device: u32,
}

impl CountedMw {
    /// Counts a window of `device`.
    pub(super) fn new(device: &Device) -> Self {
        let device = device.index();
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_count_hidden(device, 1) };
        Self { device }
    }
}

impl Drop for CountedMw {
    fn drop(&mut self) {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_count_hidden(self.device, -1) };
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

    fn is_over(&self, hidden: &Mr) -> bool {
        let Some(held) = self.hold() else {
            return true;
        };
        // SAFETY: `held` is a reference to the window. The address of the MR is compared.
        unsafe { bindings::ib_mkey_rxe_mw_is_over(held.0.as_ptr(), hidden.as_raw()) }
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

    /// As for `Backend::next_window()`.
    pub(super) fn next_of(qp: &'a Qp, from: &mut u32) -> Option<Self> {
        let device = qp.device();
        if !is_rxe(device) {
            return None;
        }
        let mut rkey = mr_key::first(*from);
        // SAFETY: The QP belongs to rxe and is not destroyed yet.
        let mw = unsafe { bindings::ib_mkey_rxe_next_mw(qp.as_raw(), &mut rkey) };
        if mw.is_null() {
            return None;
        }
        *from = mr_key::index(rkey) + 1;
        // INVARIANT: The device was compared above.
        Some(Self { device, rkey, mw })
    }

    /// As for `Backend::end_window()`.
    pub(super) fn end(&self, qp: &Qp) -> Result {
        if !ptr::eq(qp.device(), self.device) {
            return Err(EINVAL);
        }
        // A QP begins with its `ib_qp`.
        let qp = qp.as_raw().cast::<rxe_qp>();
        // SAFETY: By the type invariant, the QP belongs to rxe. It is not destroyed yet.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mw(qp, self.mw, self.rkey) })
    }
}
