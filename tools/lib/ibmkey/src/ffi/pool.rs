// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Pools of keys: `<infiniband/mkey_pool.h>`.

use core::ffi::c_int;

use crate::{
    errno::{
        to_int,
        to_ptr,
        Errno, //
    },
    explain::finish,
    pool::Pool,
    sys::{
        ibmkey_pool,
        ibv_mr,
        ibv_pd, //
    },
};

/// Creates a pool of keys.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_pool_create(
    pd: *mut ibv_pd,
    max_entries: u32,
    max_keys: u32,
) -> *mut ibmkey_pool {
    // SAFETY: By the function's contract.
    let result = unsafe { Pool::new(pd, max_entries, max_keys) };

    to_ptr(finish(result, &[("pd", pd.is_null() && max_keys > 0)])).cast()
}

/// Takes a key from a pool.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_pool_get(pool: *mut ibmkey_pool) -> *mut ibv_mr {
    // SAFETY: By the function's contract.
    let pool = unsafe { pool.cast::<Pool>().as_ref() };
    let result = match pool {
        // SAFETY: By the function's contract.
        Some(pool) => unsafe { pool.get() },
        None => Err(Errno::EINVAL),
    };

    to_ptr(finish(result, &[("pool", pool.is_none())]))
}

/// Returns a key to its pool.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_pool_put(pool: *mut ibmkey_pool, mkey: *mut ibv_mr) -> c_int {
    // SAFETY: By the function's contract.
    let pool = unsafe { pool.cast::<Pool>().as_ref() };
    let result = match pool {
        // SAFETY: By the function's contract.
        Some(pool) => unsafe { pool.put(mkey) },
        None => Err(Errno::EINVAL),
    };

    to_int(finish(result, &[("pool", pool.is_none())]))
}

/// Destroys a pool and its keys.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_pool_destroy(pool: *mut ibmkey_pool) -> c_int {
    if pool.is_null() {
        return 0;
    }
    // SAFETY: By the function's contract.
    let result = unsafe { Pool::destroy(pool.cast()) };

    to_int(finish(result, &[]))
}
