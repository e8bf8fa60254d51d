// SPDX-License-Identifier: GPL-2.0

//! Regions of ours: keys, and regions over device memory. Both are a layout over leaves.
//!
//! | file | what |
//! |---|---|
//! | `region/binding.rs` | what is bound to a region: a layout over leaves |
//! | `region/flat.rs` | a binding over keys as one list over memory |
//! | `region/rebind.rs` | replacing it, for one region or for several at once |
//! | `region/pins.rs` | which regions bindings refer to |
//! | `region/rights.rs` | access rights, and on whose behalf they are used |
//! | `region/indices.rs` | the storage of the indices of an indexed layout |
//! | `region/fast_reg.rs` | regions for fast registration by kernel users |
//! | `region/window.rs` | what memory windows are bound to |
//!
//! # Locking
//!
//! `edit` serialises those who change what is bound; it may be held while sleeping (`region/rebind.rs`). The
//! lock of the pins nests in it. The data path reads `bound` under SRCU
//! (`rust/kernel/sync/srcu.rs`) and takes no lock. `left` nests in `edit`, and nothing in it.
//!
//! # Lifetime
//!
//! A region is in its device's table, by its region's index, from before the region is first
//! published until after it was deregistered. It may be found after the region at its index was
//! replaced by another: [`Region::is`] tells them apart.

pub(crate) mod binding;
pub(crate) mod fast_reg;
pub(crate) mod flat;
pub(crate) mod indices;
pub(crate) mod pins;
pub(crate) mod rebind;
pub(crate) mod rights;
pub(crate) mod window;

use crate::{
    backend::{slot::MrSlot, Backend, Hw},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        dma_buf::Import,
        rdma::{Access, Mr},
        sync::{
            lock::{new_many_mutex, LockMany, ManyMutex},
            srcu::{self, Cell, Retired},
            users::{Patience, Users},
        },
    },
    limits::owner::OwnerCharge,
    region::{
        binding::Binding,
        fast_reg::FastReg,
        pins::Pins,
        rights::{serves_peers, Origin},
    },
};
use core::ptr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
        Mutex, //
    },
};

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
    FastReg(Pin<KBox<FastReg>>),
    /// What a memory window over one of the others is bound to.
    Window,
    /// A region of the driver's own over a dma-buf, with nothing bound.
    DmaBuf {
        /// The memory.
        import: Import,
        /// Its access flags. The driver is not told that it may have windows, see `region/window.rs`.
        access: Access,
    },
}

/// A region of ours.
#[pin_data]
pub(crate) struct Region {
    mr: usize,
    /// Lets the data path find the region by its MR.
    #[pin]
    pub(crate) mr_slot: MrSlot<Region>,
    pub(crate) kind: Kind,
    pub(crate) bound: Cell<Binding>,
    /// Was anything bound whose accesses leave SRCU? Deregistration waits for those.
    pub(crate) was_slow: Atomic<bool>,
    /// What the region takes of the kernel's memory, bindings apart.
    pub(crate) charge: OwnerCharge,
    /// Those who are in what was bound, of whom a change that was cut short lost patience.
    #[pin]
    left: Mutex<Option<Arc<Users>>>,
    #[pin]
    pub(crate) edit: ManyMutex,
}

impl Region {
    /// Makes the object of a claimed region, with nothing bound.
    pub(crate) fn new(mr: &Mr, kind: Kind, charge: OwnerCharge) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                mr: ptr::from_ref(mr) as usize,
                mr_slot <- MrSlot::new(),
                kind,
                bound: Cell::empty(),
                was_slow: Atomic::new(false),
                charge,
                left <- new_mutex!(None, "ib_mkey left"),
                edit <- new_many_mutex!("ib_mkey edit"),
            }),
            GFP_MAYFAIL,
        )
    }

    /// Is this the object of `mr`?
    #[inline]
    pub(crate) fn is(&self, mr: *const Mr) -> bool {
        self.mr == mr as usize
    }

    /// Waits until no access is left to what was bound. The caller has `edit`.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. Then the accesses that are left keep what was bound, and the next
    /// change of the region waits for them.
    pub(crate) fn settle(
        &self,
        old: Retired<Binding>,
        patience: Patience,
    ) -> (Option<Arc<Binding>>, Result) {
        let old = old.wait();
        let waited = match old.as_ref().and_then(|old| old.users.as_ref()) {
            None => Ok(()),
            Some(users) => users.wait(patience).inspect_err(|_| {
                *self.left.lock() = Some(users.clone());
            }),
        };
        (old, waited)
    }

    /// Waits for the accesses that an earlier change did not wait for until they had ended. The
    /// caller has `edit`.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]; `EBUSY` at once if the wait is bounded: it was in vain before.
    pub(crate) fn settle_left(&self, patience: Patience) -> Result {
        let Some(users) = self.left() else {
            return Ok(());
        };
        match patience {
            Patience::Bounded(_) => users.is_idle().then_some(()).ok_or(EBUSY)?,
            _ => users.wait(patience)?,
        }
        *self.left.lock() = None;
        Ok(())
    }

    /// Returns those who are in what was bound, if a change did not wait for them.
    pub(crate) fn left(&self) -> Option<Arc<Users>> {
        self.left.lock().clone()
    }

    /// Returns `true` if an access may be in progress that can take as long as a process likes.
    pub(crate) fn may_be_slow(&self) -> bool {
        self.was_slow.load(ordering::Relaxed)
    }

    /// Waits for accesses outside of SRCU, after the region was suspended. Sleeps.
    pub(crate) fn wait(&self) {
        // A rebind or unbind in progress waits for the accesses to what was bound before.
        let many = LockMany::new();
        drop(many.lock(&self.edit));
        drop(many);
        // An access that saw the region before it was suspended has entered when this returns.
        srcu::synchronize();
        let users = {
            let guard = srcu::read();
            self.bound.get(&guard).and_then(|bound| bound.users.clone())
        };
        for users in [users, self.left()].iter().flatten() {
            // Endless patience has no error.
            let _ = users.wait(Patience::Endless);
        }
    }

    /// Takes out what is bound, without waiting for accesses: none begins when this returns. The
    /// caller waits for those that began by dropping the first value and by [`Users::wait`] for the
    /// second; the next change of the region fails until then.
    ///
    /// # Errors
    ///
    /// `EBUSY` while accesses are left to what was bound before.
    pub(crate) fn clear(&self, hw: &Hw, mr: &Mr) -> Result<(Retired<Binding>, Option<Arc<Users>>)> {
        let many = LockMany::new();
        let _edit = many.lock(&self.edit);
        self.settle_left(Patience::Bounded(0))?;
        hw.withdraw(mr);
        let users = {
            let guard = srcu::read();
            self.bound.get(&guard).and_then(|bound| bound.users.clone())
        };
        *self.left.lock() = users.clone();
        Ok((self.bound.swap(None), users))
    }

    /// Returns the access flags of the region, which as a leaf has `access`.
    pub(crate) fn rights(&self, leaf: Access) -> Access {
        match &self.kind {
            Kind::DmaBuf { access, .. } => *access,
            _ => leaf,
        }
    }

    /// Returns `true` if a peer may invalidate what is bound.
    fn may_invalidate(&self) -> bool {
        let guard = srcu::read();
        let bound = self.bound.get(&guard);
        bound.is_some_and(|bound| serves_peers(bound.access))
    }

    /// Unbinds what is bound. No access is left when this returns without an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` as for [`Self::bind`]; `EINVAL` for a peer if what is bound gives a peer no right;
    /// those of [`Users::wait`], with nothing bound any more and no access that begins.
    pub(crate) fn unbind(
        &self,
        pins: &Pins,
        hw: &Hw,
        mr: &Mr,
        origin: Origin,
        patience: Patience,
    ) -> Result {
        let many = LockMany::new();
        let edit = match patience {
            Patience::Bounded(jiffies) => many.lock_within(&self.edit, jiffies).ok_or(EBUSY)?,
            _ => many.lock(&self.edit),
        };
        self.settle_left(patience)?;
        if origin == Origin::Remote && !self.may_invalidate() {
            return Err(EINVAL);
        }
        let old = pins.if_free(mr.index(), || {
            hw.withdraw(mr);
            Ok(self.bound.swap(None))
        })?;
        let (old, waited) = self.settle(old, patience);
        drop(edit);
        drop(many);
        drop(old);
        waited
    }
}
