// SPDX-License-Identifier: GPL-2.0

//! Rebinds: replace the binding of one region, or of several regions, all or none.
//!
//! # Locking
//!
//! A region's `edit` serialises the changes of its binding. It may be held while sleeping. A rebind
//! of several regions takes their `edit` locks in the order of the indices, which are distinct. A
//! binding is replaced under the lock of the pins. A key that is pinned therefore keeps its binding
//! until it is unpinned.

use crate::{
    backend::{Claimed, MrRange},
    errors::Refused,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr_key, Access},
        sync::{
            lock::LockMany,
            pending::{Deadline, Timeout},
            rcu_arc::{RcuArc, RcuUnique},
        },
    },
    region::{binding::Binding, state::Pins, Edit, EditGuard, Kind, Region},
};
use core::mem;
use kernel::{prelude::*, sync::Arc};

/// A region, and its new binding.
pub(crate) struct Change<'a> {
    pub(crate) region: &'a Arc<Region>,
    pub(crate) mr: &'a Claimed,
    /// The number of the change in the caller's list.
    pub(crate) number: usize,
    /// The new binding. It is taken out by a change that succeeds.
    pub(crate) new: &'a mut Option<RcuUnique<Binding>>,
    /// The lkey and rkey that the caller chose for the region.
    pub(crate) key: Option<u32>,
}

/// A change whose region is locked.
struct Editing<'a, 'c> {
    change: &'c mut Change<'a>,
    edit: EditGuard<'a>,
    /// The old binding, which accesses may still use.
    old: Option<RcuArc<Binding>>,
    /// The range and the access flags of the new binding.
    published: (MrRange, Access),
}

/// A change that was refused. No change was made.
pub(crate) struct RefusedChange {
    /// The number of the change.
    pub(crate) number: usize,
    /// The reason.
    pub(crate) why: Refused,
}

impl Change<'_> {
    fn refused(&self, why: impl Into<Refused>) -> RefusedChange {
        RefusedChange {
            number: self.number,
            why: why.into(),
        }
    }
}

impl<'a, 'c> Editing<'a, 'c> {
    /// Locks the region of a change that was not made yet.
    fn lock(many: &LockMany, change: &'c mut Change<'a>) -> Result<Self> {
        let region = change.region;
        Ok(Self {
            published: published(change.new.as_ref().ok_or(EINVAL)?),
            change,
            edit: many.lock(&region.edit),
            old: None,
        })
    }

    /// Replaces the binding. The caller holds the lock of the pins.
    fn replace(&mut self) {
        let Change {
            region, mr, key, ..
        } = *self.change;
        if let Some(new) = self.change.new.take() {
            self.old = region.replace(&mut self.edit, mr, key, new);
        }
    }

    /// Waits for accesses through the old binding. Then gives rxe's checks the range and the access
    /// flags of the new binding.
    fn finish(&mut self, timeout: Timeout) -> Result {
        drop(self.old.take());
        let waited = self.change.region.state.retired.wait(timeout);
        let (range, access) = self.published;
        self.change.mr.publish(range, access);
        waited
    }
}

/// Sorts `items` by `key`, by insertion: MRs that were made one after another are sorted already.
/// `core`'s sort takes kilobytes of stack, and recurses.
fn sort<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let Some([.., one, two]) = items.get_mut(..=at) else {
                break;
            };
            if key(one) < key(two) {
                break;
            }
            mem::swap(one, two);
        }
    }
}

/// Returns the first item of a sorted list that has the same index as the item before it.
fn repeated<T>(sorted: &[T], index: impl Fn(&T) -> u32) -> Option<&T> {
    let next = sorted.iter().skip(1);
    let mut pairs = sorted.iter().zip(next);
    pairs
        .find(|(one, two)| index(one) == index(two))
        .map(|(_, two)| two)
}

/// Makes all `changes`, or none. Sorts the list. An access to a region sees the old or the new
/// binding. All accesses through the old bindings have ended when this returns without an error.
///
/// Fails while a memory window or a bound key refers to one of the regions, because the rebind
/// would change the memory to which the window or key gives access. If the wait for accesses
/// through old bindings ends early, the changes have been made.
pub(crate) fn apply(
    pins: &Pins,
    changes: &mut [Change<'_>],
    timeout: Timeout,
) -> core::result::Result<(), RefusedChange> {
    sort(changes, |change| (change.mr.index(), change.number));
    if let Some(twice) = repeated(changes, |change| change.mr.index()) {
        return Err(twice.refused(Refused::TWICE));
    }
    let many = LockMany::new();
    let mut all = KVVec::new();
    for change in changes.iter_mut() {
        let number = change.number;
        let refused = |why| RefusedChange { number, why };
        let locked = Editing::lock(&many, change).map_err(|error| refused(error.into()))?;
        all.push(locked, GFP_MAYFAIL)
            .map_err(|error| refused(error.into()))?;
    }
    exchange(pins, &mut all, timeout)
}

/// Replaces the binding of each region, or of none. Waits for retired bindings that pin one of
/// them.
fn swap_all(
    pins: &Pins,
    all: &mut [Editing<'_, '_>],
    timeout: Timeout,
) -> core::result::Result<(), RefusedChange> {
    let index = |one: &Editing<'_, '_>| one.change.mr.index();
    let deadline = Deadline::new(timeout);
    // Each failed attempt finds one region that is pinned.
    let mut tries = all.len();
    while let Err(pinned) = pins.if_all_unpinned(all, index, Editing::replace) {
        let refused = |error| pinned.change.refused(error);
        tries = tries.checked_sub(1).ok_or_else(|| refused(EBUSY))?;
        pins.wait_for_retired(pinned.change.mr.index(), deadline.left())
            .map_err(refused)?;
    }
    Ok(())
}

/// Makes all changes, or none. As for [`apply`].
fn exchange(
    pins: &Pins,
    all: &mut [Editing<'_, '_>],
    timeout: Timeout,
) -> core::result::Result<(), RefusedChange> {
    swap_all(pins, all, timeout)?;
    let mut result = Ok(());
    for one in all.iter_mut() {
        let finished = one.finish(timeout);
        result = result.and(finished.map_err(|error| one.change.refused(error)));
    }
    result
}

/// Returns the range and the access flags of `new`, with which rxe compares requests.
fn published(new: &Binding) -> (MrRange, Access) {
    let range = MrRange {
        start: new.start,
        len: new.layout.length(),
    };
    (range, new.access)
}

/// A bind in the order of a queue.
pub(crate) struct QueuedBind {
    /// The rkey by which the request names the MR. It is [`None`] for the request of a kernel user,
    /// which names the MR by its address, after the kernel user has changed the lkey and rkey in
    /// `ib_mr`.
    pub(crate) key: Option<u32>,
    /// `true` if `key` may have another key portion than the MR, while nothing is bound.
    pub(crate) any_portion: bool,
    /// The lkey and rkey of the MR from then on.
    pub(crate) new_key: u32,
    /// The longest time for which the bind waits for another change of the region.
    pub(crate) timeout: Timeout,
}

impl Region {
    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen` or those
    /// that it has. The caller holds the lock of the pins.
    fn replace(
        self: &Arc<Self>,
        edit: &mut Edit,
        mr: &Claimed,
        chosen: Option<u32>,
        mut new: RcuUnique<Binding>,
    ) -> Option<RcuArc<Binding>> {
        // Until `publish`, rxe's check allows only access flags that both bindings have.
        mr.narrow(new.access);
        let key = self.key_of_bind(edit, mr, chosen);
        if let Kind::Key { .. } = self.kind {
            self.rekey(edit, mr, key);
            edit.write_key(mr, key);
        }
        new.set_rkey(key);
        self.exchange_binding(Some(new))
    }

    /// Checks that a request may bind the key now: not by another rkey, and not while it is being
    /// destroyed. The caller holds the lock of the pins.
    fn check_queued(edit: &Edit, queued: &QueuedBind, mr: &Claimed) -> Result {
        // Another request changed the key meanwhile, or the MR is being destroyed.
        let named = match queued.key {
            Some(key) => mr.key() == key || queued.any_portion && (mr.is_free() || edit.revoked),
            None => mr_key::is_same_index(mr.key(), queued.new_key),
        };
        if !named || (!mr.is_free() && !mr.is_open()) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Replaces the binding with `new` after [`Self::check_queued`]. The caller holds `edit` and
    /// the lock of the pins.
    fn bind_queued(
        self: &Arc<Self>,
        edit: &mut Edit,
        queued: &QueuedBind,
        mr: &Claimed,
        mut new: RcuUnique<Binding>,
    ) -> Option<RcuArc<Binding>> {
        edit.revoked = false;
        self.rekey(edit, mr, queued.new_key);
        match queued.key {
            Some(_) => edit.write_key(mr, queued.new_key),
            // The kernel user chose this key for this bind only, and not for a later bind.
            None => edit.last_written = queued.new_key,
        }
        new.set_rkey(queued.new_key);
        let (range, access) = published(&new);
        let replaced = self.exchange_binding(Some(new));
        // Accesses through the old binding may still be in progress. That is safe, because each
        // copy checks the access flags and the range of its own binding again.
        mr.publish(range, access);
        replaced
    }

    /// Replaces the binding of a key with `new`, for a work request. Accesses in progress keep the
    /// old binding. Sleeps, but waits for no access to this key. Fails if another change of the key
    /// takes longer than the timeout of `queued`. `new` is not taken out after an error.
    pub(crate) fn bind_from_queue(
        self: &Arc<Self>,
        queued: &QueuedBind,
        pins: &Pins,
        mr: &Claimed,
        new: &mut Option<RcuUnique<Binding>>,
    ) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, queued.timeout)?;
        let swap = || {
            pins.if_unpinned(mr.index(), |_| {
                Self::check_queued(&edit, queued, mr)?;
                let new = new.take().ok_or(EINVAL)?;
                Ok(self.bind_queued(&mut edit, queued, mr, new))
            })
        };
        let old = pins.when_unpinned(mr.index(), queued.timeout, swap)?;
        drop(edit);
        drop(many);
        old.map(drop)
    }

    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen`, if the
    /// caller chose any. The errors are those of [`apply`].
    pub(crate) fn bind_as(
        self: &Arc<Self>,
        pins: &Pins,
        mr: &Claimed,
        new: &mut Option<RcuUnique<Binding>>,
        chosen: Option<u32>,
        timeout: Timeout,
    ) -> Result {
        let mut change = Change {
            region: self,
            mr,
            number: 0,
            new,
            key: chosen,
        };
        let many = LockMany::new();
        let mut one = Editing::lock(&many, &mut change)?;
        let replace = || pins.if_unpinned(mr.index(), |_| one.replace());
        pins.when_unpinned(mr.index(), timeout, replace)?;
        one.finish(timeout)
    }

    /// Binds `new` to a region that nothing refers to and no access uses.
    pub(crate) fn bind_first(self: &Arc<Self>, pins: &Pins, mr: &Claimed, new: RcuUnique<Binding>) {
        let many = LockMany::new();
        let mut edit = many.lock(&self.edit);
        let (range, access) = published(&new);
        let old = pins.exclude(|_| self.replace(&mut edit, mr, None, new));
        mr.publish(range, access);
        drop(edit);
        drop(many);
        drop(old);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rebind_kunit.rs"]
mod kunit;
