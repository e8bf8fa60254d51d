// SPDX-License-Identifier: GPL-2.0

//! Regions of ours: keys, and regions over device memory. Both are a layout over leaves.
//!
//! # Locking
//!
//! `edit` serialises those who change what is bound; it may be held while sleeping (`edit.rs`). The
//! lock of the pins nests in it. The data path reads `bound` under SRCU
//! (`rust/kernel/rdma/table.rs`) and takes no lock.
//!
//! # Lifetime
//!
//! An object is in its device's table, by its region's index, from before the region is first
//! published until after it was deregistered. It may be found after the region at its index was
//! replaced by another: [`Object::is`] tells them apart.

use crate::{
    backend::Backend,
    bound::{Bound, Users},
    device::MkeyDevice,
    edit::{apply, Change},
    fast::Fast,
    rdma::{
        lock::{new_many_mutex, LockMany, ManyMutex},
        memory::import::Import,
        table::{self, Cell, Retired},
        Mr,
    },
};
use core::ptr;
use kernel::{prelude::*, sync::Arc};

/// What a region of ours is.
pub(crate) enum Kind {
    /// An indirect key, bound and unbound at will.
    Key {
        /// Entries that it was created for.
        max_entries: u32,
    },
    /// A region over device memory, bound once.
    Dm,
    /// A region for fast registration by kernel users; what it is over is there, not in `bound`.
    Fast(Pin<KBox<Fast>>),
    /// A region of the driver's own over a dma-buf, with nothing bound.
    DmaBuf(Import),
}

/// A region of ours.
#[pin_data]
pub(crate) struct Object {
    mr: usize,
    pub(crate) kind: Kind,
    pub(crate) bound: Cell<Bound>,
    #[pin]
    pub(crate) edit: ManyMutex,
}

impl Object {
    /// Makes the object of a claimed region, with nothing bound.
    pub(crate) fn new(mr: &Mr, kind: Kind) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                mr: ptr::from_ref(mr) as usize,
                kind,
                bound: Cell::empty(),
                edit <- new_many_mutex!("ib_mkey edit"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Is this the object of `mr`?
    #[inline]
    pub(crate) fn is(&self, mr: *const Mr) -> bool {
        self.mr == mr as usize
    }

    /// Waits until no access is left to what was bound.
    pub(crate) fn settle(old: Retired<Bound>) -> Option<Arc<Bound>> {
        let old = old.wait()?;
        if let Some(users) = &old.users {
            users.wait();
        }
        Some(old)
    }

    /// Returns those who may be in what is bound for as long as a page of a process takes to come.
    pub(crate) fn users(&self) -> Option<Arc<Users>> {
        let guard = table::read();
        self.bound.get(&guard)?.users.clone()
    }

    /// Binds `new` in place of what is bound. As for [`apply`].
    pub(crate) fn bind(&self, device: &MkeyDevice, mr: &Mr, new: Arc<Bound>) -> Result {
        apply(device, &mut [Change::new(self, mr, 0, new)]).map_err(|refused| refused.error)
    }

    /// Unbinds what is bound. No access is left when this returns.
    ///
    /// # Errors
    ///
    /// `EBUSY` as for [`Self::bind`].
    pub(crate) fn unbind(&self, device: &MkeyDevice, mr: &Mr) -> Result {
        let many = LockMany::new();
        let edit = many.lock(&self.edit);
        if device.hw.has_windows(mr) {
            return Err(EBUSY);
        }
        let old = device.pins.if_free(mr.index(), || {
            device.hw.withdraw(mr);
            Ok(self.bound.swap(None))
        })?;
        let old = Self::settle(old);
        drop(edit);
        drop(many);
        drop(old);
        Ok(())
    }
}
