// SPDX-License-Identifier: GPL-2.0

//! Memory windows of rxe.
//!
//! The replacements of rxe's functions for windows wait for other threads, and rxe frees a window
//! after 50 seconds although a reference is left. So they hold no reference to the window. They
//! find it by its index each time, and its address distinguishes it from a later window at the same
//! index.

use super::bindings::{self, rxe_mw, rxe_qp};
use crate::{
    backend::interface::DriverWindow,
    kernel_ext::rdma::{Device, Mr, Qp},
};
use core::ptr::NonNull;
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

/// A window of `device`.
pub(crate) struct RxeMw<'a> {
    pub(super) device: &'a Device,
    /// An rkey of the window, which contains the index.
    pub(super) rkey: u32,
    /// The address of the window, which is compared and never dereferenced.
    pub(super) mw: *mut rxe_mw,
}

impl DriverWindow for RxeMw<'_> {
    type Held = HeldMw;

    fn address(&self) -> usize {
        // A window begins with its `ib_mw`.
        self.mw as usize
    }

    fn hold(&self) -> Option<HeldMw> {
        // SAFETY: The device belongs to rxe.
        let held =
            unsafe { bindings::ib_mkey_rxe_hold_mw(self.device.as_raw(), self.rkey >> 8, self.mw) };
        // INVARIANT: Taken above.
        NonNull::new(held).map(HeldMw)
    }

    fn is_over(&self, hidden: &Mr) -> bool {
        let Some(held) = self.hold() else {
            return true;
        };
        // SAFETY: `held` is a reference to the window. The MR belongs to the same device.
        unsafe { bindings::ib_mkey_rxe_mw_is_over(held.0.as_ptr(), hidden.as_raw()) }
    }
}

impl<'a> RxeMw<'a> {
    /// As for `Backend::next_window()`. The QP belongs to rxe.
    pub(super) fn next_of(qp: &'a Qp, from: &mut u32) -> Option<Self> {
        let mut rkey = *from << 8;
        // SAFETY: The QP is not destroyed yet.
        let mw = unsafe { bindings::ib_mkey_rxe_next_mw(qp.as_raw(), &mut rkey) };
        if mw.is_null() {
            return None;
        }
        *from = (rkey >> 8) + 1;
        let device = qp.device();
        Some(Self { device, rkey, mw })
    }

    /// As for `Backend::end_window()`.
    pub(super) fn end(&self, qp: &Qp) -> Result {
        // A QP begins with its `ib_qp`.
        let qp = qp.as_raw().cast::<rxe_qp>();
        // SAFETY: The QP is not destroyed yet.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mw(qp, self.mw, self.rkey) })
    }
}
