// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Mkeys. An mkey is a key of ib_mkey whose lkey and rkey do not change.

use core::ffi::c_int;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use ibmkey::{
    errno::{
        to_int,
        to_ptr, //
    },
    explain,
    ffi,
    sys::{
        ib_uverbs_mkey_refused,
        ibmkey_alloc_attr,
        ibv_context,
        ibv_mr,
        ibv_pd,
        IBMKEY_ALLOC_REVOCABLE,
        IBMKEY_BIND_ANY_PORTION,
        IBMKEY_BIND_REMOTE_INV, //
    },
    Errno,
    Result, //
};

use crate::{
    device,
    staging::Staging,
    sys::{
        self,
        mlx5dv_mkey,
        mlx5dv_mkey_init_attr, //
    },
};

/// The flags that an mkey may have.
const FLAGS: u32 =
    sys::MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | sys::MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;

/// An mkey as this library sees it.
#[repr(C)]
pub(crate) struct Mkey {
    /// The part that the program sees: the lkey and the rkey, which do not change.
    keys: mlx5dv_mkey,
    /// The key.
    pub(crate) mr: *mut ibv_mr,
    /// The largest number of entries of a layout.
    pub(crate) max_entries: u16,
    /// The bits of `enum ibmkey_bind_mask` in all descriptions for this mkey.
    pub(crate) mask: u64,
    bound: Mutex<Bound>,
}

/// The configuration of an mkey by the last request that was added.
#[derive(Default)]
pub(crate) struct Bound {
    /// `enum ibv_access_flags`.
    pub(crate) access: u32,
    /// The description of the layout; empty if no request has had one.
    pub(crate) text: Vec<u8>,
    pub(crate) staging: Staging,
}

impl Mkey {
    /// # Safety
    ///
    /// `mkey` is NULL, or [`mlx5dv_create_mkey`] returned it and it is not destroyed while the
    /// result exists.
    pub(crate) unsafe fn from_raw<'a>(mkey: *mut mlx5dv_mkey) -> Result<&'a Self> {
        // SAFETY: By the caller's promise. The `struct mlx5dv_mkey` is the first member.
        unsafe { mkey.cast::<Self>().as_ref() }.ok_or(Errno::EINVAL)
    }

    pub(crate) fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the protection domain.
    pub(crate) fn pd(&self) -> *mut ibv_pd {
        // SAFETY: The key exists as long as the mkey.
        unsafe { (*self.mr).pd }
    }
}

unsafe fn create(attr: Option<&mlx5dv_mkey_init_attr>) -> Result<*mut mlx5dv_mkey> {
    let attr = attr.ok_or(Errno::EINVAL)?;
    if attr.create_flags & sys::MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT == 0
        || attr.create_flags & !FLAGS != 0
    {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: By the contract in `mlx5dv.h`.
    let ctx = unsafe { attr.pd.as_ref() }.ok_or(Errno::EINVAL)?.context;
    // SAFETY: The context of a PD is open.
    unsafe { device::prepare(ctx) }?;
    // As on a ConnectX, an MR can be deregistered while an mkey describes it.
    let key = ibmkey_alloc_attr {
        max_entries: attr.max_entries.into(),
        flags: IBMKEY_ALLOC_REVOCABLE,
        ..ibmkey_alloc_attr::default()
    };
    // SAFETY: By the contract in `mlx5dv.h`.
    let mr = unsafe { ffi::ibmkey_alloc_ex(attr.pd, &key) };
    // SAFETY: `mr` is NULL or a key that was just created.
    let key = unsafe { mr.as_ref() }.ok_or_else(Errno::last)?;
    // An invalidation changes the key portion of the key, but the lkey and rkey of an mkey must
    // stay. With ANY_PORTION, the next request finds the key and restores the key portion.
    let mask = match attr.create_flags & sys::MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE {
        0 => IBMKEY_BIND_ANY_PORTION,
        _ => IBMKEY_BIND_ANY_PORTION | IBMKEY_BIND_REMOTE_INV,
    };
    let mkey = Box::new(Mkey {
        keys: mlx5dv_mkey {
            lkey: key.lkey,
            rkey: key.rkey,
        },
        mr,
        max_entries: attr.max_entries,
        mask: mask.into(),
        bound: Mutex::default(),
    });

    let mkey = Box::into_raw(mkey);
    all().push(mkey.expose_provenance());
    Ok(mkey.cast())
}

/// The addresses of all mkeys. [`debug_refused`] asks each of them why a request was refused.
static ALL: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<usize>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With `IBMKEY_DEBUG=1`, prints why requests that configured mkeys of a context were refused.
pub(crate) fn debug_refused(ctx: *mut ibv_context) {
    if !crate::is_debug() {
        return;
    }
    for &mkey in all().iter() {
        let mkey = core::ptr::with_exposed_provenance::<Mkey>(mkey);
        // SAFETY: The list has only mkeys that exist, because their destruction takes them out first,
        // under the lock. The key of an mkey exists as long.
        let mr = unsafe { (*mkey).mr };
        let mut refused = ib_uverbs_mkey_refused::default();
        // SAFETY: As above.
        let ours =
            unsafe { (*mr).context == ctx && ffi::ibmkey_query_refused(mr, &mut refused) == 0 };
        if ours && refused.error != 0 {
            // SAFETY: As above.
            let lkey = unsafe { (*mr).lkey };
            crate::debug(|| {
                format!(
                    "the last request for mkey {lkey:#x} that was refused: {}",
                    explain::last_text()
                )
            });
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_create_mkey(attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    // SAFETY: By the contract in `mlx5dv.h`.
    to_ptr(unsafe { create(attr.as_ref()) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    // The lock is not held during the call, which may wait for accesses.
    all().retain(|&other| other != mkey.addr());
    // SAFETY: By the contract in `mlx5dv.h`.
    let result = unsafe { Mkey::from_raw(mkey) }.and_then(|own| {
        // SAFETY: `create()` made the key for this mkey, and nothing else destroys it.
        Errno::check(unsafe { ffi::ibmkey_dereg(own.mr) })
    });

    if result.is_ok() {
        // SAFETY: `create()` made the mkey. By the contract in `mlx5dv.h`, a program destroys it
        // once.
        drop(unsafe { Box::from_raw(mkey.cast::<Mkey>()) });
    } else if !mkey.is_null() {
        all().push(mkey.addr());
    }
    to_int(result)
}
