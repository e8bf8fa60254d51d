// SPDX-License-Identifier: GPL-2.0

//! The replacements of rxe's functions, for MRs of this module. `replacements_copy.rs` has those
//! that copy, and `replacements_mw.rs` has those for memory windows.
//!
//! rxe calls them in its workqueue, without locks, and holds a reference to the MR. They turn the
//! arguments of C into references. All further code is safe.

#![allow(
    clippy::missing_safety_doc,
    reason = "rxe calls them with the arguments of its own functions"
)]

use super::{
    bindings::{
        self, ib_mkey_rxe_bind_mw as BindMw, ib_mkey_rxe_peer, rxe_mr,
        rxe_mr_copy_dir_RXE_TO_MR_OBJ, rxe_qp,
    },
    Base, ClaimedRxeMr, RxeMr,
};
use crate::{
    access::{self, bind, request, Operation},
    backend::ClaimedMr,
    bindings::ib_qp,
    counters::refused,
    kernel_ext::rdma::{Access, Pd},
    region::{
        binding::Binding,
        rights::{Origin, Peer},
    },
};
use core::{ptr::NonNull, slice};
use kernel::{
    error::from_result,
    ffi::{c_int, c_uint, c_void},
    prelude::*,
};

/// Returns the peer that a QP serves, and its request.
///
/// # Safety
///
/// `peer` must be NULL or valid.
#[inline]
unsafe fn peer_of(peer: *const ib_mkey_rxe_peer) -> Option<Peer> {
    // SAFETY: By the safety requirement.
    let peer = unsafe { peer.as_ref() }?;
    Some(Peer {
        pd: peer.pd as usize,
        qp: peer.qp as usize,
        rkey: peer.rkey,
    })
}

fn origin(remote: bool) -> Origin {
    if remote {
        Origin::Remote
    } else {
        Origin::Local
    }
}

/// Returns `true` if `mr` is for fast registration.
///
/// # Safety
///
/// `mr` must be an MR of this module, valid during the call.
#[inline(always)]
pub(super) unsafe fn is_fast_reg(mr: *mut rxe_mr) -> bool {
    // SAFETY: By the safety requirement.
    unsafe { ClaimedRxeMr::from_raw(mr) }.is_fast_reg()
}

/// See [`access::is_registered`].
// Not inlined, so that the check of a key need not save registers for it.
#[inline(never)]
fn is_registered(mr: &ClaimedRxeMr, iova: u64, length: usize) -> bool {
    access::is_registered(mr, iova, length as u64)
}

// Replaces `mr_check_range()`. Compares with the range that was published last. The evaluator
// checks the range again when it copies bytes. rxe ends a request with a range that is refused here,
// so the request is counted once.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_check_range(mr: *mut rxe_mr, iova: u64, length: usize) -> c_int {
    // SAFETY: rxe calls with an MR that it holds a reference to, and C has found that it is one of
    // this module.
    let mr = unsafe { ClaimedRxeMr::from_raw(mr) };
    let inside = if mr.is_fast_reg() {
        is_registered(mr, iova, length)
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

/// Returns the peer that `qp` serves, whose request has `rkey`.
///
/// # Safety
///
/// The QP must be valid.
#[inline(always)]
pub(super) unsafe fn served_by(qp: *mut rxe_qp, rkey: u32) -> Peer {
    Peer {
        // SAFETY: By the safety requirement. A QP begins with its `ib_qp`, whose protection domain
        // does not change.
        pd: unsafe { (*qp.cast::<ib_qp>()).pd } as usize,
        qp: qp as usize,
        rkey,
    }
}

/// Returns the peer that the running task serves. `dir` is the direction of the copy; for another
/// operation it is that of a copy to memory. Returns [`None`] unless a task of rxe that serves a
/// peer runs this.
#[inline(always)]
pub(super) fn served(dir: u32) -> Option<Peer> {
    // An rxe with a table passes the QP. `ib_mkey_rxe_served()` does not exist then.
    if bindings::IB_MKEY_RXE_PASSES_QP != 0 {
        return None;
    }
    // SAFETY: No preconditions.
    let served = unsafe { bindings::ib_mkey_rxe_served(dir) };
    if served.qp.is_null() {
        return None;
    }
    // SAFETY: The task that runs this has a reference to its QP.
    Some(unsafe { served_by(served.qp, served.rkey as u32) })
}

/// An atomic operation of rxe's responder.
struct AtomicOp<'a> {
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    original: &'a mut u64,
}

impl Operation<c_int> for AtomicOp<'_> {
    #[inline(always)]
    fn run(self, binding: &Binding, at: u64) -> Result<c_int> {
        binding.atomic_op(at, self.opcode, self.compare, self.swap_add, self.original)
    }
}

/// Does an atomic operation with its result in `orig_val`. `REGISTERED` is `true` for an MR for
/// fast registration. Returns a state of rxe's responder. Refuses the operation without a known
/// peer.
///
/// # Safety
///
/// `mr` must be an MR of this module, valid during the call. `orig_val` must be valid for writes.
#[inline(always)]
unsafe fn atomic_op<const REGISTERED: bool>(
    mr: *mut rxe_mr,
    iova: u64,
    (opcode, compare, swap_add): (c_int, u64, u64),
    orig_val: *mut u64,
    peer: Option<Peer>,
) -> c_int {
    let Some(peer) = peer else {
        return Base::DENIED;
    };
    // SAFETY: By the safety requirement.
    let (mr, original) = unsafe { (ClaimedRxeMr::from_raw(mr), &mut *orig_val) };
    let operation = AtomicOp {
        opcode,
        compare,
        swap_add,
        original,
    };
    let done = if REGISTERED {
        access::atomic_op_registered(mr, iova, peer, operation)
    } else {
        access::atomic_op(mr, iova, peer, operation)
    };
    done.unwrap_or(Base::DENIED)
}

// Replaces `rxe_mr_do_atomic_op()` for a peer that the caller knows.
#[no_mangle]
pub(super) unsafe extern "C" fn ib_mkey_rxe_atomic_op(
    mr: *mut rxe_mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    orig_val: *mut u64,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: rxe calls with an MR of this module that it holds a reference to. `orig_val` is valid
    // for writes, and `peer` is NULL or valid.
    unsafe {
        let peer = peer_of(peer);
        if is_fast_reg(mr) {
            atomic_op::<true>(mr, iova, (opcode, compare, swap_add), orig_val, peer)
        } else {
            atomic_op::<false>(mr, iova, (opcode, compare, swap_add), orig_val, peer)
        }
    }
}

// Replaces `rxe_mr_do_atomic_op()`. This function finds the QP itself, see
// `ib_mkey_rxe_copy_served()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_op_served(
    mr: *mut rxe_mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    orig_val: *mut u64,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_atomic_op()`.
    unsafe {
        if is_fast_reg(mr) {
            return atomic_op_registered(mr, iova, opcode, compare, swap_add, orig_val);
        }
        let peer = served(rxe_mr_copy_dir_RXE_TO_MR_OBJ);
        atomic_op::<false>(mr, iova, (opcode, compare, swap_add), orig_val, peer)
    }
}

/// Does what [`ib_mkey_rxe_atomic_op_served`] does, for an MR for fast registration.
// Not inlined, so that the operation on other MRs stores and saves nothing for this.
#[inline(never)]
unsafe extern "C" fn atomic_op_registered(
    mr: *mut rxe_mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    orig_val: *mut u64,
) -> c_int {
    let peer = served(rxe_mr_copy_dir_RXE_TO_MR_OBJ);
    // SAFETY: As for `ib_mkey_rxe_atomic_op()`.
    unsafe { atomic_op::<true>(mr, iova, (opcode, compare, swap_add), orig_val, peer) }
}

// Replaces `rxe_mr_do_atomic_write()`.
#[no_mangle]
pub(super) unsafe extern "C" fn ib_mkey_rxe_atomic_write(
    mr: *mut rxe_mr,
    iova: u64,
    value: u64,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_atomic_op()`.
    let (mr, peer) = unsafe { (ClaimedRxeMr::from_raw(mr), peer_of(peer)) };
    let Some(peer) = peer else {
        return Base::DENIED;
    };
    let write = |binding: &Binding, at| binding.atomic_write(at, value);
    let written = if mr.is_fast_reg() {
        access::atomic_op_registered(mr, iova, peer, write)
    } else {
        access::atomic_op(mr, iova, peer, write)
    };
    written.unwrap_or(Base::DENIED)
}

// Replaces `rxe_flush_pmem_iova()`.
#[no_mangle]
pub(super) unsafe extern "C" fn ib_mkey_rxe_flush(
    mr: *mut rxe_mr,
    iova: u64,
    length: c_uint,
    peer: *const ib_mkey_rxe_peer,
) -> c_int {
    // SAFETY: As for `ib_mkey_rxe_atomic_op()`.
    let (mr, peer) = unsafe { (ClaimedRxeMr::from_raw(mr), peer_of(peer)) };
    if length == 0 && mr.published().is_some_and(|range| range.len == 0) {
        return 0;
    }
    from_result(|| {
        access::flush(mr, iova, length, peer.ok_or(EACCES)?)?;
        Ok(0)
    })
}

// Replaces `rxe_invalidate_mr()`: LOCAL_INV and SEND with invalidate. Sleeps, which rxe's workqueue
// allows.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_invalidate_mr(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    remote: bool,
) -> c_int {
    from_result(|| {
        // SAFETY: `invalidate_mr()` and `send_invalidation()` in C hold a reference to the MR,
        // which is one of this module, and pass the protection domain of a QP.
        let (mr, pd) = unsafe { (ClaimedRxeMr::from_raw(mr), Pd::from_raw(pd)) };
        access::invalidate(mr, pd, key, origin(remote))?;
        Ok(0)
    })
}

// Replaces `rxe_reg_fast_mr()` for kernel QPs: REG_MR.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_reg_fast_mr(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    access: c_int,
) -> c_int {
    from_result(|| {
        // SAFETY: The ULP keeps the MR until its request has completed. C has found that it is one
        // of this module, and calls with the protection domain of a QP.
        let (mr, pd) = unsafe { (ClaimedRxeMr::from_raw(mr), Pd::from_raw(pd)) };
        access::register(mr, pd, key, Access::from_raw(access as u32))?;
        Ok(0)
    })
}

// Replaces `rxe_reg_fast_mr()` for keys: executes REG_MR of a kernel QP. Either all earlier
// requests of the QP have completed, or the key is not bound. After a failure another attempt
// follows unless `is_last`. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_reg_mkey(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    key: u32,
    access: c_int,
    is_last: bool,
) -> c_int {
    from_result(|| {
        let attempt = if is_last {
            bind::Attempt::Last
        } else {
            bind::Attempt::First
        };
        // SAFETY: `request_reg()` in C holds a reference to the MR, and calls with the protection
        // domain of a QP.
        let (mr, pd) = unsafe { (RxeMr::from_raw(mr), Pd::from_raw(pd)) };
        let mr = mr.claimed().ok_or(EINVAL)?;
        bind::bind_staged(mr, pd, key, access as u32, attempt)?;
        Ok(0)
    })
}

// Replaces `rxe_bind_mw()` for a request that names a key: BIND_MW. Sleeps.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_bind_mkey(
    mr: *mut rxe_mr,
    pd: *mut crate::bindings::ib_pd,
    bind: *const BindMw,
    data: *mut c_void,
    length: c_uint,
) -> c_int {
    const SHORT: usize = bindings::IB_MKEY_RXE_SHORT as usize;
    from_result(|| {
        // SAFETY: `ib_mkey_rxe_request_bind()` holds a reference to the MR, and calls with the
        // protection domain of a QP, a copy of its request and memory on its stack. That has a copy
        // of the `length` bytes of inline data, or else `SHORT` zeros.
        let (mr, pd, bind, inline, buffer) = unsafe {
            let (data, none) = (data.cast::<u8>(), NonNull::dangling().as_ptr());
            let (inline, buffer) = match (*bind).length {
                0 => ((data, length as usize), (none, 0)),
                _ => ((none, 0), (data, SHORT)),
            };
            let inline: &[u8] = slice::from_raw_parts(inline.0, inline.1);
            let buffer = slice::from_raw_parts_mut(buffer.0, buffer.1);
            (
                RxeMr::from_raw(mr),
                Pd::from_raw(pd),
                &*bind,
                inline,
                buffer,
            )
        };
        let mr = mr.claimed().ok_or(EINVAL)?;
        let request = request::KeyRequest {
            rkey: bind.mw_rkey,
            new_key: bind.rkey,
            lkey: bind.mr_lkey,
            addr: bind.addr,
            length: bind.length,
            access: bind.access,
            inline,
        };
        bind::bind(mr, pd, &request, request::Short::new(buffer))?;
        Ok(0)
    })
}
