// SPDX-License-Identifier: GPL-2.0

//! The replacements of rxe's functions for memory windows. rxe calls them in its workqueue, without
//! locks.

#![allow(
    clippy::missing_safety_doc,
    reason = "rxe calls them with the arguments of its own functions"
)]

use super::{
    bindings::{self, ib_mkey_rxe_bind_mw as BindMw, rxe_mw, rxe_qp},
    mw::RxeMw,
};
use crate::{
    access::window,
    kernel_ext::rdma::{mr_key, Access, Device, Pd},
    region::window::ReplacedBinding,
};
use kernel::{
    error::{from_result, to_result},
    ffi::c_int, //
};

// Replaces `rxe_bind_mw()`: BIND_MW. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_bind_mw(
    qp: *mut rxe_qp,
    pd: *mut crate::bindings::ib_pd,
    mw: *mut rxe_mw,
    bind: *const BindMw,
) -> c_int {
    from_result(|| {
        // SAFETY: C calls with the protection domain of a QP and with a copy of its request.
        let (pd, bind) = unsafe { (Pd::from_raw(pd), &*bind) };
        // SAFETY: The domain is one of an rxe device.
        let window = unsafe { RxeMw::new(pd.device(), bind.mw_rkey, mw) };
        let request = window::WindowRequest {
            // rxe uses only the low 8 bits of the new rkey.
            rkey: mr_key::with_tag_of(bind.mw_rkey, bind.rkey),
            lkey: bind.mr_lkey,
            addr: bind.addr,
            length: bind.length,
            access: Access::from_raw(bind.access),
            qp: if bind.of_qp { qp as usize } else { 0 },
        };
        let mut left = ReplacedBinding::default();
        let result = window::bind(pd, &window, &request, &mut left, |hidden| {
            to_result(match hidden {
                // SAFETY: The QP is that of the request.
                None => unsafe { bindings::ib_mkey_rxe_stock_bind_mw(qp, mw, bind) },
                // SAFETY: As above. The MR belongs to rxe.
                Some(mr) => unsafe {
                    bindings::ib_mkey_rxe_bind_hidden_mr(qp, mw, mr.as_raw(), bind)
                },
            })
        });
        // The bind succeeds even if accesses through the old binding are left.
        let _ = window::wait_for_accesses(&mut left);
        result.map(|()| 0)
    })
}

// Called after the bind of a window to one of rxe's MRs, if another QP may have bound the window to
// a hidden MR at the same time. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_replaced_hidden(
    device: *mut crate::bindings::ib_device,
    mw: *mut rxe_mw,
    rkey: u32,
) {
    // SAFETY: `direct_bind_mw()` in C calls with the device of a QP.
    let device = unsafe { Device::from_raw(device) };
    // SAFETY: The device belongs to rxe.
    let window = unsafe { RxeMw::new(device, rkey, mw) };
    let mut left = ReplacedBinding::default();
    window::replaced(device, &window, &mut left);
    // As for `ib_mkey_rxe_bind_mw()`.
    let _ = window::wait_for_accesses(&mut left);
}

// Replaces `rxe_invalidate_mw()`: LOCAL_INV and SEND with invalidate of a window. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_invalidate_mw(
    qp: *mut rxe_qp,
    device: *mut crate::bindings::ib_device,
    mw: *mut rxe_mw,
    rkey: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: C calls with the device of a QP.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: The device belongs to rxe.
        let window = unsafe { RxeMw::new(device, rkey, mw) };
        window::invalidate(device, &window, || {
            // SAFETY: The QP is that of the request.
            to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mw(qp, mw, rkey) })
        })?;
        Ok(0)
    })
}
