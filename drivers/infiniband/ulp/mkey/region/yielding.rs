// SPDX-License-Identifier: GPL-2.0

//! Keys that yield: the deregistration of a leaf unbinds them.
//!
//! By default a bound key keeps its leaves from being deregistered. Registration caches do not
//! expect that. The owner of a key can therefore let it yield.
//!
//! The MR of such a key may be destroyed at the same time, so only the binding is taken out. The
//! driver still passes requests to the key; they find no binding and fail.

use crate::{
    kernel_ext::{
        rdma::Mr,
        sched,
        sync::{srcu, users::Deadline},
    },
    key::nest,
    limits::worker::Worker,
    mkey_core::Core,
    region::{
        binding::{Binding, LeafPlace, MAX_DEPTH},
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::{atomic::ordering, Arc},
};

impl Region {
    /// Returns the binding of a key that yields, if it is in the protection domain of `mr`.
    fn yielding(&self, mr: &Mr) -> Option<Arc<Binding>> {
        let Kind::Key { yields: true, .. } = self.kind else {
            return None;
        };
        let guard = srcu::read();
        let binding = self.binding.get(&guard)?;
        (binding.pd == mr.pd() as usize).then(|| binding.into())
    }
}

impl Core {
    /// Unbinds all keys that yield and refer, at any level, to `mr`. Sleeps.
    ///
    /// An access that takes more than some seconds keeps the leaves, although its key is unbound.
    ///
    /// If another key is bound over a key, the other key is unbound first. Each level therefore needs
    /// a pass. A key that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound, if a window or a key that does not yield refers to `mr` or to
    /// such a key. `EINTR` if the process was killed, `ENOMEM`.
    pub(crate) fn unbind_yielding(&self, mr: &Mr) -> Result {
        // The removal of another device waits for this call, so the process may not hold it up.
        let worker = Worker::new();
        let deadline = Deadline::new(worker.patience);
        self.check_yielding(mr)?;
        for _ in 0..MAX_DEPTH {
            if !self.unbind_outermost(mr, &deadline)? {
                break;
            }
        }
        Ok(())
    }

    /// Checks that only keys that yield refer to `mr`, and to the keys that refer to it.
    ///
    /// # Errors
    ///
    /// `EBUSY` for a window or a key that does not yield; `ENOMEM`, `EINTR`.
    fn check_yielding(&self, mr: &Mr) -> Result {
        // The number of keys that yield and refer to an MR, by the index of the MR. A binding pins
        // each of its leaves once.
        let mut referrers: RBTree<u32, u32> = RBTree::new();
        referrers.try_create_and_insert(mr.index(), 0, GFP_KERNEL)?;
        self.each_yielding(mr, |_, _, binding| {
            for leaf in &binding.leaves {
                let index = leaf.lkey >> 8;
                if let Some(count) = referrers.get_mut(&index) {
                    *count = count.saturating_add(1);
                } else if let LeafPlace::Key(_) = leaf.place {
                    referrers.try_create_and_insert(index, 1, GFP_KERNEL)?;
                }
            }
            Ok(())
        })?;
        let check = |index: u32| {
            let known = referrers.get(&index).copied().unwrap_or(0);
            if self.pins.count(index) > known {
                return Err(EBUSY);
            }
            Ok(())
        };
        check(mr.index())?;
        self.each_yielding(mr, |index, _, binding| {
            if nest::reaches(&binding, mr.index()) {
                check(index)?;
            }
            Ok(())
        })
    }

    /// Unbinds those of the keys to which no other key refers. Returns `true` if another pass may
    /// find more.
    fn unbind_outermost(&self, mr: &Mr, deadline: &Deadline) -> Result<bool> {
        let mut more = false;
        self.each_yielding(mr, |index, region, binding| {
            let refers = nest::reaches(&binding, mr.index());
            // It keeps the pins of the leaves.
            drop(binding);
            if !refers {
                return Ok(());
            }
            let lapse = || {
                region.lapsed.store(true, ordering::Relaxed);
                Ok(())
            };
            match region.take_out(&self.pins, index, deadline.left(), || true, lapse) {
                // A window or another key refers to it.
                Err(EBUSY) => more = true,
                unbound => unbound?,
            }
            Ok(())
        })?;
        Ok(more)
    }

    /// Runs `each` on the index, the region and the binding of each key that yields, is bound, and is
    /// in the protection domain of `mr`.
    ///
    /// # Errors
    ///
    /// Those of `each`; `EINTR` if the process was killed.
    fn each_yielding(
        &self,
        mr: &Mr,
        mut each: impl FnMut(u32, &Region, Arc<Binding>) -> Result,
    ) -> Result {
        let mut from = 0;
        while let Some((index, region)) = self.regions.next(from) {
            if let Some(binding) = region.yielding(mr) {
                each(index, &region, binding)?;
            }
            sched::check_killed()?;
            let Some(next) = index.checked_add(1) else {
                break;
            };
            from = next;
        }
        Ok(())
    }
}
