// SPDX-License-Identifier: GPL-2.0

//! Replacing what is bound: to one region, or to several of which all are bound or none.
//!
//! # Locking
//!
//! A region's `edit` serialises those who change what is bound to it, and may be held while
//! sleeping. That of several regions is taken in the order of their indices, which no two share.
//! Whoever pins a key finds what will be bound to it for as long as the pin is held: what is bound
//! is replaced under the lock of the pins.

use crate::{
    backend::{Backend, Hw, MrRange},
    kernel_ext::{
        rdma::Mr,
        sync::{
            lock::{LockMany, Many},
            srcu::Retired,
            users::Patience,
        },
    },
    region::{binding::Binding, pins::Pins, Region},
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

/// A region, and what is to be bound to it.
// Fields are dropped in order: what was bound goes, and its pins, when nothing is held any more.
pub(crate) struct Change<'a> {
    region: &'a Region,
    mr: &'a Mr,
    /// Which one it is for the caller.
    number: usize,
    editing: Option<Guard<'a, (), Many>>,
    old: Option<Retired<Binding>>,
    gone: Option<Arc<Binding>>,
    pub(crate) new: Arc<Binding>,
}

/// A change that cannot be made, so that none was.
pub(crate) struct Refused {
    /// Which one.
    pub(crate) number: usize,
    /// Why.
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
        }
    }

    fn refused(&self, error: Error) -> Refused {
        Refused {
            number: self.number,
            error,
        }
    }
}

/// Sorts `items` by `key`. Keys that were made one after another are sorted already. `core`'s sort
/// would take kilobytes of stack, and recurse.
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

/// Returns the first item of a sorted list whose index is that of the item before it.
fn repeated<T>(sorted: &[T], index: impl Fn(&T) -> u32) -> Option<&T> {
    let next = sorted.iter().skip(1);
    let mut pairs = sorted.iter().zip(next);
    pairs
        .find(|(one, two)| index(one) == index(two))
        .map(|(_, two)| two)
}

/// Makes all `changes`, or none. An access to a region sees what was bound to it or what is; those
/// to what was bound have ended when this returns. They are sorted.
///
/// # Errors
///
/// `EINVAL` for a region that is there twice; `EBUSY` while a memory window or a bound key refers
/// to one: it would give its rights on something else; those of [`Users::wait`]. If the wait was cut
/// short for accesses to what was bound, the changes are made nevertheless.
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
    result
}

/// Makes all `changes`, or none, to regions that nobody else changes. As for [`apply`].
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
    pins.if_all_free(
        changes,
        |change| change.mr.index(),
        |change| {
            // Never more than both allow while the one goes and the other comes.
            hw.narrow(change.mr, change.new.access);
            if change.new.is_slow() {
                change.region.was_slow.store(true, ordering::Relaxed);
            }
            change.old = Some(change.region.bound.swap(Some(change.new.clone())));
        },
    )
    .map_err(|pinned| pinned.refused(EBUSY))?;
    // The first one that was bound waits for a grace period; it is that of the others too.
    let mut result = Ok(());
    for change in changes.iter_mut() {
        if let Some(old) = change.old.take() {
            let (gone, waited) = change.region.settle(old, patience);
            change.gone = gone;
            result = result.and(waited.map_err(|error| change.refused(error)));
        }
    }
    for change in changes.iter_mut() {
        let new = &change.new;
        let range = MrRange {
            start: new.start(),
            len: new.layout.length(),
        };
        hw.publish(change.mr, range, new.access);
    }
    result
}

impl Region {
    /// Binds `new` in place of what is bound. As for [`apply`].
    pub(crate) fn bind(&self, pins: &Pins, hw: &Hw, mr: &Mr, new: Arc<Binding>) -> Result {
        let mut change = [Change::new(self, mr, 0, new)];
        apply(pins, hw, &mut change, Patience::Endless).map_err(|refused| refused.error)
    }

    /// Binds `new` to an unbound region, without waiting for accesses.
    ///
    /// # Errors
    ///
    /// `EBUSY` while accesses are left to what was bound before.
    pub(crate) fn bind_now(&self, pins: &Pins, hw: &Hw, mr: &Mr, new: Arc<Binding>) -> Result {
        let mut change = [Change::new(self, mr, 0, new)];
        apply(pins, hw, &mut change, Patience::Bounded(0)).map_err(|refused| refused.error)
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rebind_kunit.rs"]
mod kunit;
