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
    backend::{Backend, Hw, MrRange},
    kernel_ext::{
        rdma::{Access, Mr},
        sync::{
            lock::{LockMany, Many},
            srcu::Retired,
            users::Patience,
        },
    },
    region::{
        binding::Binding,
        old::{OldBindings, Which},
        pins::Pins,
        tag, Kind, Region,
    },
};
use core::mem;
use kernel::{
    prelude::*,
    sync::{
        atomic::ordering,
        lock::Guard,
        Arc, //
    },
};

/// A region, and its new binding.
// Fields drop in declaration order: `editing` releases the lock before the old binding drops and
// unpins its leaves.
pub(crate) struct Change<'a> {
    region: &'a Region,
    mr: &'a Mr,
    /// The number of the change in the caller's list.
    number: usize,
    /// The lock of the region's `edit`, while it is held.
    editing: Option<Guard<'a, (), Many>>,
    /// The old binding, which accesses may still read.
    old: Option<Retired<Binding>>,
    /// The old binding after the grace period.
    gone: Option<Arc<Binding>>,
    pub(crate) new: Arc<Binding>,
    /// The lkey and rkey that the caller chose for the region.
    pub(crate) key: Option<u32>,
}

/// A change that was refused. No change was made.
pub(crate) struct Refused {
    /// The number of the change.
    pub(crate) number: usize,
    /// The reason.
    pub(crate) error: Error,
}

impl<'a> Change<'a> {
    pub(crate) fn new(region: &'a Region, mr: &'a Mr, number: usize, new: Arc<Binding>) -> Self {
        Self {
            region,
            mr,
            number,
            editing: None,
            old: None,
            gone: None,
            new,
            key: None,
        }
    }

    fn refused(&self, error: Error) -> Refused {
        Refused {
            number: self.number,
            error,
        }
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

/// Makes all `changes`, or none, and sorts the list. An access to a region sees the old or the new
/// binding. All accesses through the old bindings have ended when this returns without an error.
///
/// # Errors
///
/// `EINVAL` for a region that the list contains twice; `EBUSY` while a memory window or a bound key
/// refers to one of the regions, because it would give access to other memory; those of
/// [`Users::wait`]. If the wait for accesses through old bindings ends early, the changes are made
/// nevertheless.
///
/// [`Users::wait`]: crate::kernel_ext::sync::users::Users::wait
pub(crate) fn apply(
    pins: &Pins,
    hw: &Hw,
    changes: &mut [Change<'_>],
    patience: Patience,
) -> core::result::Result<(), Refused> {
    sort(changes, |change| (change.mr.index(), change.number));
    if let Some(twice) = repeated(changes, |change| change.mr.index()) {
        return Err(twice.refused(EINVAL));
    }
    let many = LockMany::new();
    for change in changes.iter_mut() {
        change.editing = Some(many.lock(&change.region.edit));
    }
    let result = exchange(pins, hw, changes, patience);
    for change in changes.iter_mut() {
        change.editing = None;
    }
    // The leaves of the old bindings are unpinned without the locks.
    for change in changes.iter_mut() {
        if let Some(gone) = change.gone.take() {
            change.region.reuse(gone);
        }
    }
    result
}

/// A region that is pinned.
struct Pinned<'a> {
    region: &'a Region,
    index: u32,
}

/// Replaces the binding of each region, or of none. The caller holds the `edit` lock of each region.
///
/// # Errors
///
/// `EBUSY` for a region that is pinned.
fn swap_all<'a>(
    pins: &Pins,
    hw: &Hw,
    changes: &mut [Change<'a>],
) -> core::result::Result<(), (Pinned<'a>, Refused)> {
    let swapped = pins.if_all_free(
        changes,
        |change| change.mr.index(),
        |change| {
            let new = change.new.clone();
            change.old = Some(change.region.replace(hw, change.mr, change.key, new));
        },
    );
    swapped.map_err(|change| {
        let pinned = Pinned {
            region: change.region,
            index: change.mr.index(),
        };
        (pinned, change.refused(EBUSY))
    })
}

/// Makes all `changes`, or none. The caller holds the `edit` lock of each region. As for [`apply`].
fn exchange(
    pins: &Pins,
    hw: &Hw,
    changes: &mut [Change<'_>],
    patience: Patience,
) -> core::result::Result<(), Refused> {
    for change in changes.iter() {
        let left = change.region.settle_left(patience);
        left.map_err(|error| change.refused(error))?;
    }
    if let Err((pinned, refused)) = swap_all(pins, hw, changes) {
        // An old binding that a work request replaced may be all that refers to the region.
        let settled = pinned.region.settle_pinning(pinned.index, patience);
        settled.map_err(|error| Refused { error, ..refused })?;
        swap_all(pins, hw, changes).map_err(|(_, refused)| refused)?;
    }
    // The first old binding waits for a grace period, which covers the others too.
    let mut result = Ok(());
    for change in changes.iter_mut() {
        if let Some(old) = change.old.take() {
            let (gone, waited) = change.region.settle(old, patience);
            change.gone = gone;
            result = result.and(waited.map_err(|error| change.refused(error)));
        }
    }
    for change in changes.iter_mut() {
        let (range, access) = published(&change.new);
        hw.publish(change.mr, range, access);
    }
    result
}

/// Returns the range and the access flags of `new`, which rxe's checks let pass.
fn published(new: &Binding) -> (MrRange, Access) {
    let range = MrRange {
        start: new.start(),
        len: new.layout.length(),
    };
    (range, new.access)
}

/// A bind in the order of a queue.
pub(crate) struct Turn<'a> {
    /// The list that keeps the old binding.
    pub(crate) old: &'a OldBindings,
    /// The rkey by which the request names the MR; [`None`] for the request of a kernel user, which
    /// names the MR itself and has changed the keys in `ib_mr` before.
    pub(crate) key: Option<u32>,
    /// `true` if `key` may have another tag than the MR, while nothing is bound.
    pub(crate) any_tag: bool,
    /// The lkey and rkey of the MR from then on.
    pub(crate) new_key: u32,
    /// The longest time for which the bind waits for another change of the region.
    pub(crate) patience: Patience,
}

impl Region {
    fn swap(&self, new: Arc<Binding>) -> Retired<Binding> {
        if new.is_slow() {
            self.was_slow.store(true, ordering::Relaxed);
        }
        self.binding.swap(Some(new))
    }

    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen` or those that it
    /// has. The caller holds `edit` and the lock of the pins.
    #[inline]
    fn replace(
        &self,
        hw: &Hw,
        mr: &Mr,
        chosen: Option<u32>,
        new: Arc<Binding>,
    ) -> Retired<Binding> {
        // Until `publish`, rxe's check passes only access flags of both bindings.
        hw.narrow(mr, new.access);
        let key = self.key_of_bind(hw, mr, chosen);
        if let Kind::Key { .. } = self.kind {
            self.rekey(hw, mr, key);
            mr.set_key(key);
        }
        new.set_rkey(key);
        self.swap(new)
    }

    /// Checks that a request may bind the key now. The caller holds `edit` and the lock of the pins.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another rkey and for a key that is being destroyed.
    #[inline]
    pub(crate) fn check_turn(&self, turn: &Turn<'_>, hw: &Hw, mr: &Mr) -> Result {
        // Another request changed the key meanwhile, or the MR is being destroyed.
        let named = match turn.key {
            Some(key) => hw.key(mr) == key || turn.any_tag && self.is_unbound(hw, mr),
            None => tag::same_mr(hw.key(mr), turn.new_key),
        };
        if !named || (!hw.is_free(mr) && !hw.is_open(mr)) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Replaces the binding with `new` after [`Self::check_turn`]. As for that.
    #[inline]
    pub(crate) fn take_turn(
        &self,
        turn: &Turn<'_>,
        hw: &Hw,
        mr: &Mr,
        new: Arc<Binding>,
    ) -> Retired<Binding> {
        self.lapsed.store(false, ordering::Relaxed);
        self.rekey(hw, mr, turn.new_key);
        if turn.key.is_some() {
            mr.set_key(turn.new_key);
        }
        new.set_rkey(turn.new_key);
        let (range, access) = published(&new);
        let replaced = self.swap(new);
        // No access waits for this: the access flags and the range of a binding are checked again
        // when its bytes are copied.
        hw.publish(mr, range, access);
        replaced
    }

    /// Replaces the binding of a key with `new`, for a work request. Accesses in progress keep the
    /// old binding, which is left in the list of `turn`. Sleeps, but waits for no access to this
    /// key.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or a bound key refers to the key, and if another change of the
    /// key takes longer than `patience`; `EINVAL` for another rkey and for a key that is being
    /// destroyed; `ENOMEM`.
    pub(crate) fn bind_in_turn(
        &self,
        turn: &Turn<'_>,
        pins: &Pins,
        hw: &Hw,
        mr: &Mr,
        new: &Arc<Binding>,
    ) -> Result {
        let (old, patience) = (turn.old, turn.patience);
        let many = LockMany::new();
        let edit = match patience {
            Patience::Bounded(jiffies) => many.lock_within(&self.edit, jiffies).ok_or(EBUSY)?,
            _ => many.lock(&self.edit),
        };
        let swap = || {
            pins.if_free(mr.index(), || {
                self.check_turn(turn, hw, mr)?;
                Ok(self.take_turn(turn, hw, mr, new.clone()))
            })
        };
        let replace = || {
            if self.binding.is_empty() {
                // It stays empty under `edit`, so there is nothing to keep.
                return swap().map(drop);
            }
            old.keep(self.address(), swap)
        };
        match replace() {
            Err(EBUSY) => {
                old.settle(Which::Pinning(mr.index()), patience)?;
                replace()?;
            }
            replaced => replaced?,
        }
        drop(edit);
        drop(many);
        self.reap(old);
        Ok(())
    }

    /// Drops old bindings that no access uses any more, and keeps the memory of one of this region.
    pub(crate) fn reap(&self, old: &OldBindings) {
        old.reap(|region, binding| {
            if region == self.address() {
                self.reuse(binding);
            }
        });
    }

    /// Replaces the binding with `new`, and gives the region the lkey and rkey `chosen`, if the caller
    /// chose any. As for [`apply`].
    pub(crate) fn bind_as(
        &self,
        pins: &Pins,
        hw: &Hw,
        mr: &Mr,
        new: &Arc<Binding>,
        chosen: Option<u32>,
        patience: Patience,
    ) -> Result {
        let many = LockMany::new();
        let edit = many.lock(&self.edit);
        self.settle_left(patience)?;
        let replace = || pins.if_free(mr.index(), || Ok(self.replace(hw, mr, chosen, new.clone())));
        let old = match replace() {
            Err(EBUSY) => {
                // As for `exchange()`.
                self.settle_pinning(mr.index(), patience)?;
                replace()?
            }
            replaced => replaced?,
        };
        let (gone, waited) = self.settle(old, patience);
        let (range, access) = published(new);
        hw.publish(mr, range, access);
        drop(edit);
        drop(many);
        // The leaves of the old binding are unpinned without the lock.
        if let Some(gone) = gone {
            self.reuse(gone);
        }
        waited
    }

    /// Replaces the binding with `new`. As for [`apply`].
    pub(crate) fn bind(&self, pins: &Pins, hw: &Hw, mr: &Mr, new: &Arc<Binding>) -> Result {
        self.bind_as(pins, hw, mr, new, None, Patience::Endless)
    }

    /// Binds `new` to an unbound region, without waiting for accesses.
    ///
    /// # Errors
    ///
    /// `EBUSY` while accesses through an earlier binding are left.
    pub(crate) fn bind_now(&self, pins: &Pins, hw: &Hw, mr: &Mr, new: &Arc<Binding>) -> Result {
        self.bind_as(pins, hw, mr, new, None, Patience::Bounded(0))
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rebind_kunit.rs"]
mod kunit;
