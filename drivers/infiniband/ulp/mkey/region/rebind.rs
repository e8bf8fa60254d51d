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
    backend::{
        pins::{when_unpinned, Pins},
        Claimed, ClaimedMr, MrRange,
    },
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr_key, Access},
        sync::{
            lock::LockMany,
            srcu::Retired,
            users::{Deadline, Timeout},
        },
    },
    region::{
        binding::Binding,
        old::{OldBindings, Which},
        Edit, EditGuard, Kind, Region,
    },
};
use core::mem;
use kernel::{
    prelude::*,
    sync::{atomic::ordering, Arc},
};

/// A region, and its new binding.
pub(crate) struct Change<'a> {
    pub(crate) region: &'a Region,
    pub(crate) mr: &'a Claimed,
    /// The number of the change in the caller's list.
    pub(crate) number: usize,
    pub(crate) new: &'a Arc<Binding>,
    /// The lkey and rkey that the caller chose for the region.
    pub(crate) key: Option<u32>,
}

/// A change whose region is locked.
// Fields drop in declaration order: the region is unlocked before the old binding drops and unpins
// its leaves.
struct Editing<'a> {
    change: &'a Change<'a>,
    edit: EditGuard<'a>,
    /// The old binding, which accesses may still read.
    old: Option<Retired<Binding>>,
    /// The old binding after the grace period.
    drained: Option<Arc<Binding>>,
}

/// A change that was refused. No change was made.
pub(crate) struct Refused {
    /// The number of the change.
    pub(crate) number: usize,
    /// The reason.
    pub(crate) error: Error,
}

impl Change<'_> {
    fn refused(&self, error: Error) -> Refused {
        Refused {
            number: self.number,
            error,
        }
    }
}

impl<'a> Editing<'a> {
    fn lock(many: &LockMany, change: &'a Change<'a>) -> Self {
        Self {
            change,
            edit: many.lock(&change.region.edit),
            old: None,
            drained: None,
        }
    }

    /// Replaces the binding. The caller holds the lock of the pins.
    #[inline]
    fn replace(&mut self) {
        let Change {
            region,
            mr,
            new,
            key,
            ..
        } = *self.change;
        self.old = Some(region.replace(&mut self.edit, mr, key, new.clone()));
    }

    /// Waits for accesses through the old binding. Then gives rxe's checks the range and the access
    /// flags of the new binding.
    ///
    /// # Errors
    ///
    /// Those of [`Region::wait_for_accesses`].
    #[inline]
    fn finish(&mut self, timeout: Timeout) -> Result {
        let change = self.change;
        let mut waited = Ok(());
        if let Some(old) = self.old.take() {
            (self.drained, waited) = change
                .region
                .wait_for_accesses(&mut self.edit, old, timeout);
        }
        let (range, access) = published(change.new);
        change.mr.publish(range, access);
        waited
    }

    /// Unlocks the region, and unpins the leaves of the old binding after that.
    #[inline]
    fn release(self) {
        drop(self.edit);
        drop(self.drained);
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
/// # Errors
///
/// `EINVAL` for a region that the list contains twice; `EBUSY` while a memory window or a bound key
/// refers to one of the regions, because the rebind would change the memory to which the window or
/// key gives access; those of [`Users::wait`]. If the wait for accesses through old bindings ends
/// early, the changes have been made.
///
/// [`Users::wait`]: crate::kernel_ext::sync::users::Users::wait
pub(crate) fn apply(
    pins: &Pins,
    changes: &mut [Change<'_>],
    timeout: Timeout,
) -> core::result::Result<(), Refused> {
    sort(changes, |change| (change.mr.index(), change.number));
    if let Some(twice) = repeated(changes, |change| change.mr.index()) {
        return Err(twice.refused(EINVAL));
    }
    let Some(first) = changes.first() else {
        return Ok(());
    };
    let many = LockMany::new();
    let mut all = KVVec::with_capacity(changes.len(), GFP_MAYFAIL)
        .map_err(|error| first.refused(error.into()))?;
    for change in changes.iter() {
        all.push(Editing::lock(&many, change), GFP_MAYFAIL)
            .map_err(|error| change.refused(error.into()))?;
    }
    let result = exchange(pins, &mut all, timeout);
    all.into_iter().for_each(Editing::release);
    result
}

/// Replaces the binding of each region, or of none. Waits for old bindings that pin one of them.
///
/// # Errors
///
/// `EBUSY` for a region that something else pins; those of [`Users::wait`].
///
/// [`Users::wait`]: crate::kernel_ext::sync::users::Users::wait
fn swap_all(
    pins: &Pins,
    all: &mut [Editing<'_>],
    timeout: Timeout,
) -> core::result::Result<(), Refused> {
    let index = |one: &Editing<'_>| one.change.mr.index();
    let mut deadline = None;
    // Each failed attempt finds one region that is pinned. The only pin may be that of an old
    // binding that a work request replaced, so wait for these bindings and try again.
    let mut tries = all.len();
    while let Err(pinned) = pins.if_all_unpinned(all, index, Editing::replace) {
        let Change { region, mr, .. } = *pinned.change;
        let refused = |error| pinned.change.refused(error);
        tries = tries.checked_sub(1).ok_or_else(|| refused(EBUSY))?;
        let deadline = deadline.get_or_insert_with(|| Deadline::new(timeout));
        let waited = region.wait_for_pinning(mr.index(), deadline.left());
        waited.map_err(refused)?;
    }
    Ok(())
}

/// Makes all changes, or none. As for [`apply`].
fn exchange(
    pins: &Pins,
    all: &mut [Editing<'_>],
    timeout: Timeout,
) -> core::result::Result<(), Refused> {
    for one in all.iter_mut() {
        let left = one.change.region.wait_for_left(&mut one.edit, timeout);
        left.map_err(|error| one.change.refused(error))?;
    }
    swap_all(pins, all, timeout)?;
    // The wait for the first old binding is a grace period, which covers the other old bindings,
    // too.
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
        start: new.start(),
        len: new.layout.length(),
    };
    (range, new.access)
}

/// A bind in the order of a queue.
pub(crate) struct QueuedBind<'a> {
    /// The list that keeps the old binding.
    pub(crate) old: &'a OldBindings,
    /// The rkey by which the request names the MR. It is [`None`] for the request of a kernel user,
    /// which names the MR by its address, after the kernel user has changed the lkey and rkey in
    /// `ib_mr`.
    pub(crate) key: Option<u32>,
    /// `true` if `key` may have another tag than the MR, while nothing is bound.
    pub(crate) any_tag: bool,
    /// The lkey and rkey of the MR from then on.
    pub(crate) new_key: u32,
    /// The longest time for which the bind waits for another change of the region.
    pub(crate) timeout: Timeout,
}

impl Region {
    fn swap(&self, new: Arc<Binding>) -> Retired<Binding> {
        if new.is_slow() {
            self.was_slow.store(true, ordering::Relaxed);
        }
        self.exchange_binding(Some(new))
    }

    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen` or those
    /// that it has. The caller holds the lock of the pins.
    #[inline]
    fn replace(
        &self,
        edit: &mut Edit,
        mr: &Claimed,
        chosen: Option<u32>,
        new: Arc<Binding>,
    ) -> Retired<Binding> {
        // Until `publish`, rxe's check allows only access flags that both bindings have.
        mr.narrow(new.access);
        let key = self.key_of_bind(edit, mr, chosen);
        if let Kind::Key { .. } = self.kind {
            self.rekey(edit, mr, key);
            edit.write_key(mr, key);
        }
        new.set_rkey(key);
        self.swap(new)
    }

    /// Checks that a request may bind the key now. The caller holds the lock of the pins.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another rkey and for a key that is being destroyed.
    #[inline]
    pub(crate) fn check_queued(
        &self,
        edit: &Edit,
        queued: &QueuedBind<'_>,
        mr: &Claimed,
    ) -> Result {
        // Another request changed the key meanwhile, or the MR is being destroyed.
        let named = match queued.key {
            Some(key) => mr.key() == key || queued.any_tag && (mr.is_free() || edit.yielded),
            None => mr_key::is_same_index(mr.key(), queued.new_key),
        };
        if !named || (!mr.is_free() && !mr.is_open()) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Replaces the binding with `new` after [`Self::check_queued`]. The caller holds `edit` and
    /// the lock of the pins.
    #[inline]
    pub(crate) fn bind_queued(
        &self,
        edit: &mut Edit,
        queued: &QueuedBind<'_>,
        mr: &Claimed,
        new: Arc<Binding>,
    ) -> Retired<Binding> {
        edit.yielded = false;
        self.rekey(edit, mr, queued.new_key);
        match queued.key {
            Some(_) => edit.write_key(mr, queued.new_key),
            // The kernel user chose this key for this bind only, and not for a later bind.
            None => edit.last_written = queued.new_key,
        }
        new.set_rkey(queued.new_key);
        let (range, access) = published(&new);
        let replaced = self.swap(new);
        // Accesses through the old binding may still be in progress. That is safe, because each
        // copy checks the access flags and the range of its own binding again.
        mr.publish(range, access);
        replaced
    }

    /// Replaces the binding of a key with `new`, for a work request. Accesses in progress keep the
    /// old binding, which is left in the list of `queued`. Sleeps, but waits for no access to this
    /// key.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or a bound key refers to the key, and if another change of the
    /// key takes longer than `timeout`; `EINVAL` for another rkey and for a key that is being
    /// destroyed; `ENOMEM`.
    pub(crate) fn bind_from_queue(
        &self,
        queued: &QueuedBind<'_>,
        pins: &Pins,
        mr: &Claimed,
        new: &Arc<Binding>,
    ) -> Result {
        let (old, timeout) = (queued.old, queued.timeout);
        let many = LockMany::new();
        let mut edit = self.lock(&many, timeout)?;
        let mut swap = || {
            pins.if_unpinned(mr.index(), |_| {
                self.check_queued(&edit, queued, mr)?;
                Ok(self.bind_queued(&mut edit, queued, mr, new.clone()))
            })
        };
        let replace = || {
            if self.binding.is_empty() {
                // The key stays unbound under `edit`, so no binding is replaced.
                return swap().map(|swapped| swapped.map(drop));
            }
            old.replace_and_keep(self.address(), &mut swap)
        };
        when_unpinned(replace, || {
            old.wait_and_drop(Which::Pinning(mr.index()), timeout)
        })??;
        drop(edit);
        drop(many);
        old.drop_idle(self.address());
        Ok(())
    }

    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen`, if the
    /// caller chose any. The errors are those of [`apply`].
    pub(crate) fn bind_as(
        &self,
        pins: &Pins,
        mr: &Claimed,
        new: &Arc<Binding>,
        chosen: Option<u32>,
        timeout: Timeout,
    ) -> Result {
        let change = Change {
            region: self,
            mr,
            number: 0,
            new,
            key: chosen,
        };
        let many = LockMany::new();
        let mut one = Editing::lock(&many, &change);
        self.wait_for_left(&mut one.edit, timeout)?;
        let replace = || pins.if_unpinned(mr.index(), |_| one.replace());
        when_unpinned(replace, || self.wait_for_pinning(mr.index(), timeout))?;
        let waited = one.finish(timeout);
        one.release();
        waited
    }

    /// Replaces the binding with `new`. The errors are those of [`apply`].
    pub(crate) fn bind(&self, pins: &Pins, mr: &Claimed, new: &Arc<Binding>) -> Result {
        self.bind_as(pins, mr, new, None, Timeout::Never)
    }

    /// Binds `new` to an unbound region, without waiting for accesses.
    ///
    /// # Errors
    ///
    /// `EBUSY` while accesses through an earlier binding are left.
    pub(crate) fn bind_now(&self, pins: &Pins, mr: &Claimed, new: &Arc<Binding>) -> Result {
        self.bind_as(pins, mr, new, None, Timeout::After(0))
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rebind_kunit.rs"]
mod kunit;
