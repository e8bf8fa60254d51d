// SPDX-License-Identifier: GPL-2.0

//! The replacements of `rxe_mr_copy()`, for MRs of this module.
//!
//! Each origin of a copy has two functions, one of which is for MRs for fast registration. Each
//! function tests, stores and saves less than a common one would. An MR for fast registration is
//! recognised before the registers are saved that a copy through a key needs.

#![allow(
    clippy::missing_safety_doc,
    reason = "rxe calls them with the arguments of its own functions"
)]

use super::{
    bindings::{
        ib_mkey_rxe_part as Part, rxe_mr, rxe_mr_copy_dir_RXE_TO_MR_OBJ as TO_MEMORY, rxe_qp,
    },
    replacements::{is_fast_reg, served, served_by},
    ClaimedRxeMr,
};
use crate::{
    access,
    backend::{Direction, Payload},
    region::rights::Peer,
};
use kernel::{
    ffi::{c_int, c_void},
    prelude::*,
};

/// Copies between `mr` and the bytes of a packet at `addr`. `REGISTERED` is `true` for an MR for
/// fast registration. Returns 0 or an error.
///
/// # Safety
///
/// `mr` must be an MR of this module, valid during the call. `addr` must be valid for reads and
/// writes of the length of `part`.
#[inline(always)]
unsafe fn copy<const REGISTERED: bool>(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
    peer: Option<Peer>,
) -> c_int {
    if part.length == 0 {
        return 0;
    }
    // SAFETY: By the safety requirement.
    let payload = |direction| unsafe { Payload::new(addr.cast(), part.length, direction) };
    // SAFETY: By the safety requirement.
    let mr = unsafe { ClaimedRxeMr::from_raw(mr) };
    // There is a call for each direction, so that the compiler inlines one for each direction.
    let copied = match (REGISTERED, part.dir == TO_MEMORY) {
        (true, true) => access::copy_registered(mr, iova, payload(Direction::ToMemory), peer),
        (true, false) => access::copy_registered(mr, iova, payload(Direction::FromMemory), peer),
        (false, true) => access::copy(mr, iova, payload(Direction::ToMemory), peer),
        (false, false) => access::copy(mr, iova, payload(Direction::FromMemory), peer),
    };
    match copied {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

// Copies for SGEs of this node.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_copy_local(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
) -> c_int {
    // SAFETY: rxe calls with an MR that it holds a reference to, and C has found that it is one of
    // this module. rxe gives `length` bytes of a packet, and does not use them before this returns.
    unsafe {
        if is_fast_reg(mr) {
            return registered_local(mr, iova, addr, part);
        }
        copy::<false>(mr, iova, addr, part, None)
    }
}

#[inline(never)]
unsafe extern "C" fn registered_local(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_copy_local()`.
    unsafe { copy::<true>(mr, iova, addr, part, None) }
}

// Copies for a peer whose QP the caller knows.
#[no_mangle]
pub(super) unsafe extern "C" fn ib_mkey_rxe_copy_peer(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
    qp: *mut rxe_qp,
    rkey: u32,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_copy_local()`. The QP is valid during the call.
    unsafe {
        if is_fast_reg(mr) {
            return registered_peer(mr, iova, addr, part, qp, rkey);
        }
        let peer = served_by(qp, rkey);
        copy::<false>(mr, iova, addr, part, Some(peer))
    }
}

#[inline(never)]
unsafe extern "C" fn registered_peer(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
    qp: *mut rxe_qp,
    rkey: u32,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_copy_peer()`.
    unsafe {
        let peer = served_by(qp, rkey);
        copy::<true>(mr, iova, addr, part, Some(peer))
    }
}

// Copies for a peer. This function finds the QP itself. A function in C that found the QP and
// called this one would save the registers once more.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_copy_served(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_copy_local()`.
    unsafe {
        if is_fast_reg(mr) {
            return registered_served(mr, iova, addr, part);
        }
        match served(part.dir) {
            Some(peer) => copy::<false>(mr, iova, addr, part, Some(peer)),
            None => EACCES.to_errno(),
        }
    }
}

#[inline(never)]
unsafe extern "C" fn registered_served(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    part: Part,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_copy_local()`.
    unsafe {
        match served(part.dir) {
            Some(peer) => copy::<true>(mr, iova, addr, part, Some(peer)),
            None => EACCES.to_errno(),
        }
    }
}
