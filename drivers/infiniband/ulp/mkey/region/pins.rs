// SPDX-License-Identifier: GPL-2.0

//! The pins of a device: the MRs to which bindings refer. An MR that is pinned cannot be
//! deregistered. A key that is pinned cannot be rebound or unbound.
//!
//! # Locking
//!
//! Each device has one spinlock, `Pins::counts`, which any context may take. A bind looks an lkey
//! up and pins the MR in one critical section. `dereg_mr` looks for pins and suspends the MR in one
//! critical section. So either the bind does not find the MR, or `dereg_mr` finds the pin.
//! `dereg_mr` releases the lock before it waits for accesses. A rebind of a key replaces the
//! binding under this lock too.
//!
//! The lock nests in a region's `edit`. SRCU and `FastReg::slots` nest in it.

use crate::kernel_ext::{
    alloc::GFP_MAYFAIL,
    sync::lock::{new_irq_lock, IrqLock},
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::Arc,
};

/// The number of pins of each MR of a device, by the index of the MR.
#[pin_data]
pub(crate) struct Pins {
    #[pin]
    counts: IrqLock<RBTree<u32, u32>>,
}

impl Pins {
    /// Makes an empty set.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                counts <- new_irq_lock!(RBTree::new(), "ib_mkey pins"),
            }),
            GFP_KERNEL,
        )
    }

    /// Runs `find`, which must not sleep, and pins the MR at `index` if `find` succeeds.
    ///
    /// # Errors
    ///
    /// Those of `find`; `ENOMEM`.
    pub(crate) fn pin<T>(
        self: &Arc<Self>,
        index: u32,
        find: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Pin)> {
        let pin = || Pin {
            pins: self.clone(),
            index,
        };
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&index) {
            let more = count.checked_add(1).ok_or(EOVERFLOW)?;
            let found = find()?;
            *count = more;
            drop(counts);
            return Ok((found, pin()));
        }
        drop(counts);
        // The lock may not be held during the allocation.
        let node = RBTreeNode::new(index, 1, GFP_MAYFAIL)?;
        let mut counts = self.counts.lock();
        let found = find()?;
        match counts.get_mut(&index) {
            Some(count) => *count = count.checked_add(1).ok_or(EOVERFLOW)?,
            None => drop(counts.insert(node)),
        }
        drop(counts);
        Ok((found, pin()))
    }

    /// Runs `look`, which must not sleep. No MR is deregistered meanwhile.
    pub(crate) fn exclude<T>(&self, look: impl FnOnce() -> T) -> T {
        let _counts = self.counts.lock();
        look()
    }

    /// Runs `change`, which must not sleep, if the MR at `index` is not pinned.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; those of `change`.
    pub(crate) fn if_free<T>(&self, index: u32, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let counts = self.counts.lock();
        if counts.get(&index).is_some() {
            return Err(EBUSY);
        }
        change()
    }

    /// Runs `change` for each of `items` if no MR at their indices is pinned.
    ///
    /// # Errors
    ///
    /// The first item whose MR is pinned. Nothing is changed then.
    pub(crate) fn if_all_free<'a, I>(
        &self,
        items: &'a mut [I],
        index: impl Fn(&I) -> u32,
        change: impl FnMut(&mut I),
    ) -> Result<(), &'a I> {
        let counts = self.counts.lock();
        match items
            .iter()
            .position(|item| counts.get(&index(item)).is_some())
        {
            Some(at) => items.get(at).map_or(Ok(()), Err),
            None => {
                items.iter_mut().for_each(change);
                Ok(())
            }
        }
    }

    /// Returns the number of pins of the MR at `index`.
    pub(crate) fn count(&self, index: u32) -> u32 {
        self.counts.lock().get(&index).copied().unwrap_or(0)
    }

    fn unpin(&self, index: u32) {
        let mut counts = self.counts.lock();
        match counts.get_mut(&index) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&index)),
        }
    }
}

/// A pin, which keeps an MR from being deregistered.
pub(crate) struct Pin {
    pins: Arc<Pins>,
    index: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.unpin(self.index);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "pins_kunit.rs"]
mod kunit;
