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
    fast::Fast,
    key::Key,
    object::Kind,
    rdma::{table, Access, Mr, Pd},
};
use kernel::{
    error::from_result,
    ffi::{c_int, c_uint, c_void},
    prelude::*,
};

/// Does `access` with what is bound to a region, at an offset: where in it address `iova` is.
///
/// # Errors
///
/// `EINVAL` if nothing is.
///
/// # Safety
///
/// `mr` must be a region of an rxe device, valid during the call.
#[inline]
unsafe fn with_bound<T>(
    mr: *mut rxe_mr,
    iova: u64,
    access: impl FnOnce(&Bound, u64) -> Result<T>,
) -> Result<T> {
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
    if let Kind::Fast(fast) = &object.kind {
        return fast.with(iova, access);
    }
    let bound = object.bound.get(&guard).ok_or(EINVAL)?;
    match Held::new(bound) {
        None => access(&bound, iova),
        Some(held) => {
            // Pages may be long in coming: only who rebinds this very key is to wait for them.
            drop(guard);
            access(&held, iova)
        }
    }
}

/// Looks up what makes a region one for fast registration.
///
/// # Errors
///
/// `EINVAL` if it is none.
fn with_fast<T>(mr: &Mr, call: impl FnOnce(&Fast) -> Result<T>) -> Result<T> {
    let device = CLIENT.data(mr.device()).ok_or(EINVAL)?;
    // Not under SRCU, for the call may wait for accesses.
    let object = device.object_of(mr).ok_or(EINVAL)?;
    match &object.kind {
        Kind::Fast(fast) => call(fast),
        _ => Err(EINVAL),
    }
}

/// Are `length` bytes from address `iova` on what is registered as a region for fast registration?
///
/// # Safety
///
/// As for [`with_bound`].
unsafe fn contains(mr: *mut rxe_mr, iova: u64, length: u64) -> bool {
    // SAFETY: By the safety requirement.
    let mr = unsafe { Mr::from_raw(&raw mut (*mr).ibmr) };
    with_fast(mr, |fast| Ok(fast.contains(iova, length))).unwrap_or(false)
}

// In place of `mr_check_range()`: by what was published last. What is bound is looked at when bytes
// are copied, and checks the range again.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_check_range(mr: *mut rxe_mr, iova: u64, length: usize) -> c_int {
    // SAFETY: rxe calls with a region that it holds a reference to.
    let inside = unsafe {
        if Rxe::is_fast(mr) {
            contains(mr, iova, length as u64)
        } else {
            let inside = |whole| length as u64 <= whole && iova <= whole - length as u64;
            Rxe::published(mr).is_some_and(inside)
        }
    };
    if inside {
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
        unsafe { with_bound(mr, iova, |bound, at| bound.copy(at, window)) }?;
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
        with_bound(mr, iova, |bound, at| {
            bound.atomic_op(at, opcode, compare, swap_add, original)
        })
    }
    .unwrap_or(Base::DENIED)
}

// In place of `rxe_mr_do_atomic_write()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_atomic_write(mr: *mut rxe_mr, iova: u64, value: u64) -> c_int {
    // SAFETY: rxe calls with a region that it holds a reference to.
    unsafe { with_bound(mr, iova, |bound, at| bound.atomic_write(at, value)) }
        .unwrap_or(Base::DENIED)
}

// In place of `rxe_flush_pmem_iova()`.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_flush(mr: *mut rxe_mr, iova: u64, length: c_uint) -> c_int {
    if length == 0 {
        return 0;
    }
    from_result(|| {
        // SAFETY: rxe calls with a region that it holds a reference to.
        unsafe { with_bound(mr, iova, |bound, at| bound.flush(at, length.into())) }?;
        Ok(0)
    })
}

// In place of `rxe_invalidate_mr()`: LOCAL_INV and SEND with invalidate unbind a key of the queue
// pair's protection domain, or end a fast registration. Sleeps, as rxe's workqueue may.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_invalidate(
    mr: *mut rxe_mr,
    pd: *mut bindings::ib_pd,
    key: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: `redirected_invalidate()` holds a reference to the region, and rxe calls it
        // with the protection domain of a queue pair.
        let (ours, pd, fast) = unsafe {
            (
                Mr::from_raw(&raw mut (*mr).ibmr),
                Pd::from_raw(pd),
                Rxe::is_fast(mr),
            )
        };
        let device = CLIENT.data(ours.device()).ok_or(EINVAL)?;
        if fast {
            with_fast(ours, |fast| fast.invalidate(&device.hw, ours, pd, key))?;
        } else if ours.rkey() != key || ours.pd() != pd.as_raw() {
            return Err(EINVAL);
        } else {
            Key::of(&device, ours, pd)?.unbind()?;
        }
        Ok(0)
    })
}

// In place of `rxe_reg_fast_mr()`, for queue pairs of the kernel: REG_MR.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_reg_fast(
    mr: *mut rxe_mr,
    pd: *mut bindings::ib_pd,
    key: u32,
    access: c_int,
) -> c_int {
    from_result(|| {
        // SAFETY: The kernel user who asks keeps the region until the request has completed, and
        // rxe calls with the protection domain of a queue pair.
        let (mr, pd) = unsafe { (Mr::from_raw(&raw mut (*mr).ibmr), Pd::from_raw(pd)) };
        let device = CLIENT.data(mr.device()).ok_or(EINVAL)?;
        let access = Access::from_raw(access as u32);
        with_fast(mr, |fast| fast.register(&device.hw, mr, pd, key, access))?;
        Ok(0)
    })
}
