// SPDX-License-Identifier: GPL-2.0

//! A pool of keys for kernel users: `include/rdma/ib_mkey.h` describes it.
//!
//! Pointers become references here; what follows is safe.
//!
//! # Locking
//!
//! `free` is held for a push or a pop, and nothing is allocated or freed under it.

#![allow(clippy::missing_safety_doc, reason = "called from C only")]

use crate::{
    api::kapi::with_key,
    bindings,
    device::MkeyDevice,
    kernel_ext::{
        rdma::{OwnedMr, Pd},
        same_types,
    },
    key::{self, Key},
};
use core::ptr;
use kernel::{
    alloc::kvec::PushError,
    error::from_result,
    ffi::c_int,
    new_spinlock,
    prelude::*,
    sync::{Arc, ArcBorrow, SpinLock}, //
};

/// Keys that are bound to nothing, ready to be given out.
#[pin_data]
struct Pool {
    /// The protection domain of all of them.
    pd: usize,
    /// Keys that there are, given out or not.
    keys: usize,
    /// With room for all.
    #[pin]
    free: SpinLock<KVVec<OwnedMr>>,
}

impl Pool {
    fn new(pd: &Pd, max_entries: u32, keys: u32) -> Result<Arc<Self>> {
        if keys == 0 {
            return Err(EINVAL);
        }
        let device = MkeyDevice::of(pd.device())?;
        let keys = keys as usize;
        let mut free = KVVec::with_capacity(keys, GFP_KERNEL)?;
        for _ in 0..keys {
            free.push(key::create(&device.core, pd, max_entries)?, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                pd: pd.as_raw() as usize,
                keys,
                free <- new_spinlock!(free, "ib_mkey pool"),
            }),
            GFP_KERNEL,
        )
    }

    /// Unbinds the key `mr`, which was given out, and takes it back.
    ///
    /// # Safety
    ///
    /// `mr` must be a region; it is the pool's from here on, unless this fails.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a region that is none of the pool's; those of [`Key::unbind`].
    unsafe fn put(&self, mr: *mut bindings::ib_mr) -> Result {
        let unbind = |key: &Key<'_>| {
            let all_there = self.free.lock().len() >= self.keys;
            if all_there || key.mr().pd() as usize != self.pd {
                return Err(EINVAL);
            }
            key.unbind()
        };
        // SAFETY: By the safety requirement.
        let mr = unsafe {
            with_key(mr, unbind)?;
            OwnedMr::from_raw(mr).ok_or(EINVAL)?
        };
        let mut free = self.free.lock();
        if let Err(PushError(twice)) = free.push_within_capacity(mr) {
            // More came back than was given out: it is in there already.
            let _ = twice.into_raw();
            return Err(EINVAL);
        }
        Ok(())
    }
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_pool_create(
    pd: *mut bindings::ib_pd,
    max_entries: u32,
    nr: u32,
) -> *mut bindings::ib_mkey_pool {
    // SAFETY: The caller gives a protection domain.
    Pool::new(unsafe { Pd::from_raw(pd) }, max_entries, nr).map_or_else(
        |err| err.to_ptr(),
        |pool| Arc::into_raw(pool).cast_mut().cast(),
    )
}

/// # Safety
///
/// `pool` must be a pool that is not destroyed during `'a`.
unsafe fn of<'a>(pool: *mut bindings::ib_mkey_pool) -> ArcBorrow<'a, Pool> {
    // SAFETY: By the safety requirement it came from `Arc::into_raw()`.
    unsafe { ArcBorrow::from_raw(pool.cast::<Pool>()) }
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_pool_get(pool: *mut bindings::ib_mkey_pool) -> *mut bindings::ib_mr {
    // SAFETY: The caller gives a pool.
    let key = unsafe { of(pool) }.free.lock().pop();
    key.map_or(ptr::null_mut(), OwnedMr::into_raw)
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_pool_put(
    pool: *mut bindings::ib_mkey_pool,
    mkey: *mut bindings::ib_mr,
) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives a pool and a key of it.
        unsafe { of(pool).put(mkey) }?;
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_pool_destroy(pool: *mut bindings::ib_mkey_pool) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives a pool.
        let this = unsafe { of(pool) };
        if this.free.lock().len() < this.keys {
            return Err(EBUSY);
        }
        // SAFETY: It came from `Arc::into_raw()`, and the caller does not use it again.
        drop(unsafe { Arc::from_raw(pool.cast::<Pool>()) });
        Ok(0)
    })
}

same_types!(
    ib_mkey_pool_create,
    ib_mkey_pool_get,
    ib_mkey_pool_put,
    ib_mkey_pool_destroy,
);
