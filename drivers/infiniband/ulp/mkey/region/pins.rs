// SPDX-License-Identifier: GPL-2.0

//! Which regions layouts refer to. A region that is pinned cannot be deregistered; a key that is
//! pinned cannot be bound to something else or unbound.
//!
//! # Locking
//!
//! One spinlock for each device, which any context may take. A bind looks an lkey up and pins it, and `dereg_mr` looks for pins
//! and suspends the region, each in one critical section: either the bind finds no region, or
//! `dereg_mr` finds its pin. `dereg_mr` leaves the section before it waits for the region's users.
//! What is bound to a key is replaced in such a section too.
//!
//! Nests in a key's `edit` mutex; nothing but SRCU nests in it.

use crate::kernel_ext::{
    alloc::GFP_MAYFAIL,
    sync::lock::{new_irq_lock, IrqLock},
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::Arc,
};

/// The pins of a device, counted for each region's index.
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

    /// Runs `find`, which must not sleep, and pins the region at `index` if it succeeds.
    ///
    /// # Errors
    ///
    /// Those of `find`; `ENOMEM`.
    pub(crate) fn pin<T>(
        self: &Arc<Self>,
        index: u32,
        find: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Pin)> {
        // Outside of the lock: most regions are pinned for the first time.
        let node = RBTreeNode::new(index, 1, GFP_MAYFAIL)?;
        let mut counts = self.counts.lock();
        let found = find()?;
        match counts.get_mut(&index) {
            Some(count) => *count = count.checked_add(1).ok_or(EOVERFLOW)?,
            None => drop(counts.insert(node)),
        }
        Ok((
            found,
            Pin {
                pins: self.clone(),
                index,
            },
        ))
    }

    /// Runs `change`, which must not sleep, if the region at `index` is not pinned.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is; those of `change`.
    pub(crate) fn if_free<T>(&self, index: u32, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let counts = self.counts.lock();
        if counts.get(&index).is_some() {
            return Err(EBUSY);
        }
        change()
    }

    /// Runs `change` for each of `items` if none of the regions at their indices is pinned.
    ///
    /// # Errors
    ///
    /// The first one that is, with nothing changed.
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

    fn unpin(&self, index: u32) {
        let mut counts = self.counts.lock();
        match counts.get_mut(&index) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&index)),
        }
    }
}

/// Keeps a region from being deregistered.
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
