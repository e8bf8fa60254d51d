// SPDX-License-Identifier: GPL-2.0

//! The operations that rxe calls for MRs of this module, and for windows over them.
//!
//! `provider.c` has the table of these operations. rxe calls them in its workqueue, without locks,
//! and holds a reference to the MR. They turn the arguments of C into references. All further code
//! is safe.

#![allow(
    clippy::missing_safety_doc,
    reason = "provider.c alone calls them, with the arguments that rxe gives it"
)]

use super::{
    bindings::{
        self, ib_mkey_rxe_peer, rxe_bind_mw, rxe_mr, rxe_mr_copy_dir_RXE_TO_MR_OBJ as TO_MEMORY,
        rxe_mw, rxe_qp,
    },
    mw::RxeMw,
    Base, ClaimedRxeMr,
};
use crate::{
    access::{self, bind, request, window},
    backend::{ClaimedMr, Direction, Payload},
    counters::refused,
    kernel_ext::rdma::{mr_key, Access, Device, Pd},
    region::{
        binding::Binding,
        rights::{Origin, Peer},
        window::ReplacedBinding,
    },
};
use core::{ptr::NonNull, slice};
use kernel::{
    error::{from_result, to_result},
    ffi::{c_int, c_uint, c_void},
    prelude::*,
};

/// Returns the peer that a QP serves, and its request.
///
/// # Safety
///
/// `peer` must be NULL or valid.
unsafe fn peer_of(peer: *const ib_mkey_rxe_peer) -> Option<Peer> {
    // SAFETY: By the safety requirement.
    let peer = unsafe { peer.as_ref() }?;
    Some(Peer {
        pd: peer.pd as usize,
        qp: peer.qp as usize,
        rkey: peer.rkey,
    })
}

// Compares with the range that was published last. The evaluator checks the range again when it
// copies bytes. rxe ends a request with a range that is refused here, so the request is counted
// once.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_check_range(mr: *mut rxe_mr, iova: u64, length: usize) -> c_int {
    // SAFETY: rxe calls with an MR that has the table, so the MR is claimed.
    let mr = unsafe { ClaimedRxeMr::from_raw(mr) };
    let inside = if mr.is_fast_reg() {
        access::is_registered(mr, iova, length as u64)
    } else {
        mr.published()
            .is_some_and(|range| range.contains(iova, length as u64))
    };
    if inside {
        0
    } else {
        refused(&EINVAL);
        EINVAL.to_errno()
    }
}

// Copies between the MR and the bytes of a packet.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_copy(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    length: u32,
    dir: u32,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    if length == 0 {
        return 0;
    }
    let direction = if dir == TO_MEMORY {
        Direction::ToMemory
    } else {
        Direction::FromMemory
    };
    // SAFETY: rxe calls with an MR that has the table, so the MR is claimed. rxe gives `length` bytes
    // of a packet, and does not use them before this returns. `peer` is NULL or valid.
    let (mr, payload, peer) = unsafe {
        (
            ClaimedRxeMr::from_raw(mr),
            Payload::new(addr.cast(), length, direction),
            peer_of(peer),
        )
    };
    match access::copy(mr, iova, payload, peer) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

// Does an atomic operation with its result in `orig_val`. Returns a state of rxe's responder.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_op(
    mr: *mut rxe_mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    orig_val: *mut u64,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: rxe calls with an MR that has the table, so the MR is claimed. `orig_val` is valid for
    // writes, and `peer` is NULL or valid.
    let (mr, original, peer) =
        unsafe { (ClaimedRxeMr::from_raw(mr), &mut *orig_val, peer_of(peer)) };
    let Some(peer) = peer else {
        return Base::DENIED;
    };
    let operation =
        |binding: &Binding, at| binding.atomic_op(at, opcode, compare, swap_add, original);
    access::atomic_op(mr, iova, peer, operation).unwrap_or(Base::DENIED)
}

// Writes a word. Returns a state of rxe's responder.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_write(
    mr: *mut rxe_mr,
    iova: u64,
    value: u64,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: rxe calls with an MR that has the table, so the MR is claimed. `peer` is NULL or valid.
    let (mr, peer) = unsafe { (ClaimedRxeMr::from_raw(mr), peer_of(peer)) };
    let Some(peer) = peer else {
        return Base::DENIED;
    };
    let write = |binding: &Binding, at| binding.atomic_write(at, value);
    access::atomic_op(mr, iova, peer, write).unwrap_or(Base::DENIED)
}

// Makes bytes persistent. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_flush(
    mr: *mut rxe_mr,
    iova: u64,
    length: u64,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: rxe calls with an MR that has the table, so the MR is claimed. `peer` is NULL or valid.
    let (mr, peer) = unsafe { (ClaimedRxeMr::from_raw(mr), peer_of(peer)) };
    if length == 0 {
        return 0;
    }
    from_result(|| {
        access::flush(mr, iova, length, peer.ok_or(EACCES)?)?;
        Ok(0)
    })
}

// LOCAL_INV, and SEND with invalidate of a peer if `remote`. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_invalidate_mr(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    remote: bool,
) -> c_int {
    let origin = if remote {
        Origin::Remote
    } else {
        Origin::Local
    };
    from_result(|| {
        // SAFETY: rxe calls with an MR that has the table, so the MR is claimed. C passes the
        // protection domain of a QP.
        let (mr, pd) = unsafe { (ClaimedRxeMr::from_raw(mr), Pd::from_raw(pd)) };
        access::invalidate(mr, pd, key, origin)?;
        Ok(0)
    })
}

// REG_MR of a kernel QP, for an MR for fast registration.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_reg_fast_mr(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    access: c_int,
) -> c_int {
    from_result(|| {
        // SAFETY: As in `ib_mkey_rxe_invalidate_mr()`.
        let (mr, pd) = unsafe { (ClaimedRxeMr::from_raw(mr), Pd::from_raw(pd)) };
        access::register(mr, pd, key, Access::from_raw(access as u32))?;
        Ok(0)
    })
}

// REG_MR of a kernel QP, for a key. If `oldest`, all earlier requests of the QP have completed.
// Otherwise the key is not bound, and another attempt follows after a failure. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_reg_mkey(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    access: c_int,
    oldest: bool,
) -> c_int {
    from_result(|| {
        // SAFETY: As in `ib_mkey_rxe_invalidate_mr()`.
        let (mr, pd) = unsafe { (ClaimedRxeMr::from_raw(mr), Pd::from_raw(pd)) };
        bind::bind_staged(mr, pd, key, access as u32, oldest)?;
        Ok(0)
    })
}

// BIND_MW that names a key. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_bind_mkey(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    bind: *const rxe_bind_mw,
    data: *mut c_void,
    length: c_uint,
) -> c_int {
    const SHORT: usize = bindings::IB_MKEY_RXE_SHORT as usize;
    from_result(|| {
        // SAFETY: As in `ib_mkey_rxe_invalidate_mr()`. C also passes a copy of the request, and
        // memory on its stack. That has a copy of the `length` bytes of inline data, or else `SHORT`
        // zeros.
        let (mr, pd, bind, inline, buffer) = unsafe {
            let (data, none) = (data.cast::<u8>(), NonNull::dangling().as_ptr());
            let (inline, buffer) = match (*bind).length {
                0 => ((data, length as usize), (none, 0)),
                _ => ((none, 0), (data, SHORT)),
            };
            let inline: &[u8] = slice::from_raw_parts(inline.0, inline.1);
            let buffer = slice::from_raw_parts_mut(buffer.0, buffer.1);
            (
                ClaimedRxeMr::from_raw(mr),
                Pd::from_raw(pd),
                &*bind,
                inline,
                buffer,
            )
        };
        let request = request::KeyRequest {
            rkey: bind.mw_rkey,
            new_key: bind.rkey,
            lkey: bind.mr_lkey,
            addr: bind.addr,
            length: bind.length,
            access: bind.access,
            inline,
        };
        bind::bind(mr, pd, &request, buffer)?;
        Ok(0)
    })
}

// BIND_MW that binds a window to an MR of this module, or takes it from one. The window is one of
// type 2 if `of_qp`. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_bind_mw(
    qp: *mut rxe_qp,
    pd: *mut crate::bindings::ib_pd,
    mw: *mut rxe_mw,
    bind: *const rxe_bind_mw,
    of_qp: bool,
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
            qp: if of_qp { qp as usize } else { 0 },
        };
        let mut left = ReplacedBinding::default();
        let result = window::bind(pd, &window, &request, &mut left, |hidden| {
            to_result(match hidden {
                // SAFETY: The QP is that of the request.
                None => unsafe { bindings::ib_mkey_rxe_bind_mw_plain(qp, mw, bind) },
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

// LOCAL_INV, SEND with invalidate, or the destruction of the QP of a window. Sleeps.
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
            to_result(unsafe { bindings::ib_mkey_rxe_invalidate_mw_plain(qp, mw, rkey) })
        })?;
        Ok(0)
    })
}
