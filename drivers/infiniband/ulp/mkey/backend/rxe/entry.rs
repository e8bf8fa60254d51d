// SPDX-License-Identifier: GPL-2.0

//! What runs in place of rxe's functions, for regions of ours.
//!
//! Called in rxe's workqueue, without locks. The caller holds a reference to the region, except
//! for the invalidation, which finds its region by key.

#![allow(
    clippy::missing_safety_doc,
    reason = "called by rxe, with what it calls its own functions with"
)]

use super::bindings::{
    rxe_mr,
    rxe_mr_copy_dir,
    rxe_mr_copy_dir_RXE_TO_MR_OBJ, //
};
use super::{Base, Rxe};
use crate::{
    backend::{Direction, Window},
    bindings,
    bound::{Bound, Held},
    device::CLIENT,
    key::Key,
    rdma::{table, Mr, Pd},
};
use kernel::{
    error::from_result,
    ffi::{c_int, c_uint, c_void},
    prelude::*,
};

/// Does `access` with what is bound to a region.
///
/// # Errors
///
/// `EINVAL` if nothing is.
///
/// # Safety
///
/// `mr` must be a region of an rxe device, valid during the call.
#[inline]
unsafe fn with_bound<T>(mr: *mut rxe_mr, access: impl FnOnce(&Bound) -> Result<T>) -> Result<T> {
    // SAFETY: By the safety requirement.
    let mr = unsafe { Mr::from_raw(&raw mut (*mr).ibmr) };
    // Not `MkeyDevice::of()`: the self-test runs before the device is extended.
    let device = CLIENT.data(mr.device()).ok_or(EINVAL)?;
    let guard = table::read();
    let object = device
        .objects
        .get(mr.index(), &guard)
        .filter(|object| object.is(mr));
    let object = object.ok_or(EINVAL)?;
    let bound = object.bound.get(&guard).ok_or(EINVAL)?;
    match Held::new(bound) {
        None => access(&bound),
        Some(held) => {
            // Pages may be long in coming: only who rebinds this very key is to wait for them.
            drop(guard);
            access(&held)
        }
    }
}

// In place of `mr_check_range()`: by what was published last. What is bound is looked at when bytes
// are copied, and checks the range again.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_check_range(mr: *mut rxe_mr, iova: u64, length: usize) -> c_int {
    // SAFETY: rxe calls with a region that it holds a reference to.
    let whole = unsafe { Rxe::published(mr) };
    let inside = |whole: u64| length as u64 <= whole && iova <= whole - length as u64;
    if whole.is_some_and(inside) {
        0
    } else {
        EINVAL.to_errno()
    }
}

// In place of `rxe_mr_copy()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_copy(
    mr: *mut rxe_mr,
    iova: u64,
    addr: *mut c_void,
    length: c_uint,
    dir: rxe_mr_copy_dir,
) -> c_int {
    if length == 0 {
        return 0;
    }
    let direction = if dir == rxe_mr_copy_dir_RXE_TO_MR_OBJ {
        Direction::ToMemory
    } else {
        Direction::FromMemory
    };
    from_result(|| {
        // SAFETY: rxe gives `length` bytes of a packet, which nobody else uses.
        let window = unsafe { Window::new(addr.cast(), length as usize, direction) };
        // SAFETY: rxe calls with a region that it holds a reference to.
        unsafe { with_bound(mr, |bound| bound.copy(iova, window)) }?;
        Ok(0)
    })
}

// In place of `rxe_mr_do_atomic_op()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_op(
    mr: *mut rxe_mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    orig_val: *mut u64,
) -> c_int {
    // SAFETY: rxe gives a place for the original value.
    let original = unsafe { &mut *orig_val };
    // SAFETY: rxe calls with a region that it holds a reference to.
    unsafe {
        with_bound(mr, |bound| {
            bound.atomic_op(iova, opcode, compare, swap_add, original)
        })
    }
    .unwrap_or(Base::DENIED)
}

// In place of `rxe_mr_do_atomic_write()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_write(mr: *mut rxe_mr, iova: u64, value: u64) -> c_int {
    // SAFETY: rxe calls with a region that it holds a reference to.
    unsafe { with_bound(mr, |bound| bound.atomic_write(iova, value)) }.unwrap_or(Base::DENIED)
}

// In place of `rxe_flush_pmem_iova()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_flush(mr: *mut rxe_mr, iova: u64, length: c_uint) -> c_int {
    if length == 0 {
        return 0;
    }
    from_result(|| {
        // SAFETY: rxe calls with a region that it holds a reference to.
        unsafe { with_bound(mr, |bound| bound.flush(iova, length.into())) }?;
        Ok(0)
    })
}

// In place of `rxe_invalidate_mr()`: LOCAL_INV and SEND with invalidate unbind a key of the queue
// pair's protection domain. Sleeps, as rxe's workqueue may.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_invalidate(
    mr: *mut rxe_mr,
    pd: *mut bindings::ib_pd,
    key: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: `redirected_invalidate()` holds a reference to the region, and rxe calls it
        // with the protection domain of a queue pair.
        let (mr, pd) = unsafe { (Mr::from_raw(&raw mut (*mr).ibmr), Pd::from_raw(pd)) };
        if mr.rkey() != key || mr.pd() != pd.as_raw() {
            return Err(EINVAL);
        }
        let device = CLIENT.data(mr.device()).ok_or(EINVAL)?;
        Key::of(&device, mr, pd)?.unbind()?;
        Ok(0)
    })
}
