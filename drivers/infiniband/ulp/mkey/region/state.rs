// SPDX-License-Identifier: GPL-2.0

//! The part of a region to which its bindings and the pins of their leaves refer.

use crate::{backend::pins, kernel_ext::sync::pending::Pending};
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// The pins of the MRs of a device.
pub(crate) type Pins = pins::Pins<RegionState>;

/// The pin of a leaf.
pub(crate) type LeafPin = pins::Pin<RegionState>;

/// The key and the binding for which a leaf is pinned.
pub(crate) type PinnedFor = pins::PinnedFor<RegionState>;

/// The part of a region to which its bindings and the pins of their leaves refer.
pub(crate) struct RegionState {
    /// The index of the MR.
    pub(crate) index: u32,
    /// The number of the binding; 0 without one.
    bound: Atomic<u64>,
    /// The greatest number of a binding that the key has had.
    newest: Atomic<u64>,
    /// The number of the last binding that was described.
    described: Atomic<u64>,
    /// The retired bindings, which accesses keep.
    pub(crate) retired: Pending,
}

impl RegionState {
    /// Makes the state of an unbound region.
    pub(super) fn new(index: u32) -> Result<Arc<Self>> {
        let state = Self {
            index,
            bound: Atomic::new(0),
            newest: Atomic::new(0),
            described: Atomic::new(0),
            retired: Pending::none(),
        };
        Ok(Arc::new(state, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns a number for a binding that is being described.
    pub(crate) fn next_number(&self) -> u64 {
        self.described
            .fetch_add(1, ordering::Relaxed)
            .wrapping_add(1)
    }

    /// Records the number of the binding, or 0. The callers serialise numbers that are not 0.
    pub(super) fn set_bound(&self, number: u64) {
        if number > self.newest.load(ordering::Relaxed) {
            self.newest.store(number, ordering::Relaxed);
        }
        self.bound.store(number, ordering::Relaxed);
    }
}

impl pins::Holder for RegionState {
    fn is_bound_to(&self, number: u64) -> bool {
        self.bound.load(ordering::Relaxed) == number
    }

    fn may_get(&self, number: u64) -> bool {
        // A key that had a later binding may still get this one, if two threads bind the key. It may
        // if none of its bindings is retired, because a retired binding is counted until its pins
        // are gone.
        number > self.newest.load(ordering::Relaxed) || self.retired.is_none()
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "state_kunit.rs"]
mod kunit;
