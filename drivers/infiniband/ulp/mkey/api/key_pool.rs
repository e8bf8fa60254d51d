// SPDX-License-Identifier: GPL-2.0

//! A pool of keys for kernel users: `include/rdma/ib_mkey.h` describes it.
//!
//! # Locking
//!
//! `free` protects the list of free keys. It is held for a push or a pop; nothing is allocated or
//! freed under it.

use crate::{
    api::kapi::with_key,
    bindings::ib_mkey_pool,
    device::MkeyDevice,
    kernel_ext::{
        export_c::{export_c, ForC, GivenUp, HeldOpaque, Opaque},
        rdma::{export::GivenUpMr, OwnedMr, Pd},
    },
    key,
};
use kernel::{
    alloc::kvec::PushError,
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock}, //
};

/// A pool of unbound keys.
#[pin_data]
pub(crate) struct KeyPool {
    /// The protection domain of all keys.
    pd: usize,
    /// The number of keys, free or given out.
    keys: usize,
    /// The free keys. The vector has room for all keys.
    #[pin]
    free: SpinLock<KVVec<OwnedMr>>,
}

impl KeyPool {
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

    /// Takes back the key `mr` and unbinds it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR that is not a key of the pool; those of
    /// [`Key::unbind`](crate::key::Key::unbind).
    fn put(&self, mr: GivenUpMr<'_>) -> Result {
        with_key(mr.held(), |key| {
            let all_there = self.free.lock().len() >= self.keys;
            if all_there || key.mr().pd() as usize != self.pd {
                return Err(EINVAL);
            }
            key.unbind()
        })?;
        let mr = mr.take()?;
        let mut free = self.free.lock();
        if let Err(PushError(twice)) = free.push_within_capacity(mr) {
            // The pool is full, so this key is in the pool already.
            let _ = twice.into_raw();
            return Err(EINVAL);
        }
        Ok(())
    }
}

impl Opaque for ib_mkey_pool {
    type Rust = KeyPool;
}

export_c! {
    in crate::bindings;

    fn ib_mkey_pool_create(pd: &Pd, max_entries: u32, nr: u32) -> Result<ForC<ib_mkey_pool>> {
        KeyPool::new(pd, max_entries, nr).map(ForC)
    }

    fn ib_mkey_pool_get(pool: HeldOpaque<'_, ib_mkey_pool>) -> Option<OwnedMr> {
        pool.free.lock().pop()
    }

    fn ib_mkey_pool_put(pool: HeldOpaque<'_, ib_mkey_pool>, mkey: GivenUpMr<'_>) -> Result {
        pool.put(mkey)
    }

    fn ib_mkey_pool_destroy(pool: GivenUp<'_, ib_mkey_pool>) -> Result {
        if pool.free.lock().len() < pool.keys {
            return Err(EBUSY);
        }
        drop(pool.take());
        Ok(())
    }
}
