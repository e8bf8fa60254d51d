// SPDX-License-Identifier: GPL-2.0

//! A pool of keys for kernel users: `include/rdma/ib_mkey.h` describes it.
//!
//! # Locking
//!
//! `state` protects the list of free keys and the marks of all keys. It is held for a push or a
//! pop, and for a search. Nothing is allocated or freed under it.

use crate::{
    api::kapi::with_key,
    bindings::ib_mkey_pool,
    device::MkeyDevice,
    kernel_ext::{
        export_c::{export_c, opaque},
        rdma::{export::HeldMr, OwnedMr, Pd},
    },
    key,
};
use core::mem;
use kernel::{
    alloc::kvec::PushError,
    new_spinlock,
    prelude::*,
    rbtree::RBTree,
    sync::SpinLock, //
};

/// The keys of a pool.
struct State {
    /// The free keys. The vector has room for all keys.
    free: KVVec<OwnedMr>,
    /// All keys by their addresses, with `true` if a user has the key.
    keys: RBTree<usize, bool>,
}

impl State {
    /// Marks the key at `address` as taken or not. Returns `false` if it has that mark already, or
    /// belongs to another pool.
    fn set_taken(&mut self, address: usize, taken: bool) -> bool {
        self.keys
            .get_mut(&address)
            .is_some_and(|mark| mem::replace(mark, taken) != taken)
    }

    fn take(&mut self) -> Option<OwnedMr> {
        let mr = self.free.pop()?;
        self.set_taken(mr.as_raw() as usize, true);
        Some(mr)
    }
}

/// A pool of unbound keys.
#[pin_data]
pub(crate) struct KeyPool {
    /// The number of keys.
    count: usize,
    #[pin]
    state: SpinLock<State>,
}

impl KeyPool {
    fn new(pd: &Pd, max_entries: u32, keys: u32) -> Result<Pin<KBox<Self>>> {
        if keys == 0 {
            return Err(EINVAL);
        }
        let device = MkeyDevice::data(pd.device())?;
        let count = keys as usize;
        let mut free = KVVec::with_capacity(count, GFP_KERNEL)?;
        let mut keys = RBTree::new();
        for _ in 0..count {
            let mr = key::create(&device.core, pd, max_entries, false)?;
            keys.try_create_and_insert(mr.as_raw() as usize, false, GFP_KERNEL)?;
            free.push(mr, GFP_KERNEL)?;
        }
        KBox::pin_init(
            pin_init!(Self {
                count,
                state <- new_spinlock!(State { free, keys }, "ib_mkey pool"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes back the key `mr` and unbinds it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR that is not a taken key of this pool; those of
    /// [`Key::unbind`](crate::key::Key::unbind).
    fn put(&self, mr: OwnedMr) -> Result {
        let address = mr.as_raw() as usize;
        // During the unbind the key is neither free nor taken, so no other caller can return it.
        let unbound = if self.state.lock().set_taken(address, false) {
            with_key(HeldMr::of(&mr), |key| key.unbind()).inspect_err(|_| {
                self.state.lock().set_taken(address, true);
            })
        } else {
            Err(EINVAL)
        };
        if unbound.is_err() {
            // The caller keeps the MR.
            let _ = mr.into_raw();
            return unbound;
        }
        let mut state = self.state.lock();
        // There is room for all keys of the pool.
        if let Err(PushError(mr)) = state.free.push_within_capacity(mr) {
            let _ = mr.into_raw();
        }
        Ok(())
    }
}

opaque!(ib_mkey_pool, KeyPool);

export_c! {
    in crate::bindings;

    fn ib_mkey_pool_create(pd: &Pd, max_entries: u32, nr: u32) -> Result<Pin<KBox<KeyPool>>> {
        KeyPool::new(pd, max_entries, nr)
    }

    fn ib_mkey_pool_get(pool: &KeyPool) -> Option<OwnedMr> {
        pool.state.lock().take()
    }

    fn ib_mkey_pool_put(pool: &KeyPool, mkey: OwnedMr) -> Result {
        pool.put(mkey)
    }

    fn ib_mkey_pool_destroy(pool: Pin<KBox<KeyPool>>) -> Result {
        let free = pool.state.lock().free.len();
        if free != pool.count {
            // The caller keeps the pool.
            mem::forget(pool);
            return Err(EBUSY);
        }
        Ok(())
    }
}
