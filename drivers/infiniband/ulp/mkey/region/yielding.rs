// SPDX-License-Identifier: GPL-2.0

//! Keys that yield: the deregistration of a leaf unbinds them.
//!
//! By default a bound key keeps its leaves from being deregistered. Registration caches expect that
//! a deregistration succeeds. The owner of a key can therefore let the key yield.
//!
//! The MR of such a key may be destroyed at the same time. So only the binding is taken out, and
//! the state of the MR stays. The driver still passes requests to the key, which find no binding
//! and fail.

use crate::{
    backend::pins::{when_free, Pins, Unpinned},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr_key, Mr},
        sched,
        sync::{
            lock::LockMany,
            srcu::{self, Guard},
            users::Deadline,
        },
    },
    limits::worker::patience_of_call,
    mkey_core::Core,
    region::{
        binding::{Binding, MAX_DEPTH},
        old::{OldBindings, Which},
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::{Arc, ArcBorrow},
};

/// An MR, and the keys that yield and refer to it at any level, by the indices of their MRs. The
/// value is the number of these keys that have the MR or key as a leaf.
type Reached = RBTree<u32, u32>;

impl Region {
    /// Returns the binding of a key that yields, if it is in the protection domain of `mr`.
    fn yielding<'a>(&'a self, mr: &Mr, guard: &'a Guard) -> Option<ArcBorrow<'a, Binding>> {
        let Kind::Key { yields: true, .. } = self.kind else {
            return None;
        };
        let binding = self.binding.get(guard)?;
        (binding.pd == mr.pd() as usize).then_some(binding)
    }

    /// Unbinds the key at `index` because a leaf is deregistered, and waits for accesses through
    /// the binding. The binding is among the old ones meanwhile, where another thread that waits
    /// for the leaves finds it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a window or a key refers to the key, and after the `deadline`; `ENOMEM`.
    fn lapse(&self, old: &OldBindings, pins: &Pins, index: u32, deadline: &Deadline) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, deadline.left())?;
        let mut take_out = || {
            pins.if_free(index, |_| {
                edit.lapsed = true;
                Ok(self.exchange_binding(None))
            })
        };
        let attempt = || old.keep(self.address(), &mut take_out);
        when_free(attempt, || {
            old.settle(Which::Pinning(index), deadline.left())
        })??;
        drop(edit);
        drop(many);
        old.settle(Which::Region(self.address()), deadline.left())
    }
}

/// Returns `true` if `binding` has one of `reached` as a leaf.
fn refers(binding: &Binding, reached: &Reached) -> bool {
    let mut leaves = binding.leaves.iter();
    leaves.any(|leaf| reached.get(&mr_key::index(leaf.lkey)).is_some())
}

impl Core {
    /// Runs `change`, which must not sleep, if `mr` is not pinned. Waits for old bindings that pin it,
    /// and unbinds keys that yield. Sleeps for some seconds at most.
    ///
    /// # Errors
    ///
    /// `EBUSY` if `mr` is pinned; those of `change`.
    pub(crate) fn if_free_or_yielding<T>(
        &self,
        mr: &Mr,
        change: impl Fn(&Unpinned<'_>) -> Result<T>,
    ) -> Result<T> {
        let attempt = || self.pins.if_free(mr.index(), &change);
        if let Ok(done) = attempt() {
            return done;
        }
        // The time is limited, because the removal of another device waits for this call.
        let deadline = Deadline::new(patience_of_call());
        let settle = || self.old.settle(Which::Pinning(mr.index()), deadline.left());
        settle()?;
        if let Ok(done) = attempt() {
            return done;
        }
        self.unbind_yielding(mr, &deadline).map_err(|_| EBUSY)?;
        settle()?;
        attempt()?
    }

    /// Unbinds all keys that yield and refer, at any level, to `mr`. Sleeps.
    ///
    /// An access that is in progress at the `deadline` keeps the leaves, although its key is unbound.
    ///
    /// A key over another key is unbound before that other key, so each level needs a pass. A key
    /// that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound, if a window or a key that does not yield refers to `mr` or to
    /// such a key. `EINTR` if the process was killed, `ENOMEM`.
    fn unbind_yielding(&self, mr: &Mr, deadline: &Deadline) -> Result {
        self.check_yielding(mr, deadline)?;
        for _ in 0..MAX_DEPTH {
            if !self.unbind_outermost(mr, deadline)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs `look`, which must not sleep, on the indices and bindings of the keys at `indices` that
    /// yield, are bound, and are in the protection domain of `mr`. Returns the first key for which `look`
    /// returns `true`, which may be destroyed by then, with its index.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed.
    fn find_yielding(
        &self,
        mr: &Mr,
        indices: &mut impl Iterator<Item = u32>,
        mut look: impl FnMut(u32, &Binding) -> bool,
    ) -> Result<Option<(u32, Arc<Region>)>> {
        for index in indices {
            sched::check_killed()?;
            let guard = srcu::read_brief();
            let found = self.regions.get(index, &guard).filter(|region| {
                let binding = region.yielding(mr, &guard);
                binding.is_some_and(|binding| look(index, &binding))
            });
            if let Some(region) = found {
                return Ok(Some((index, region.into())));
            }
        }
        Ok(None)
    }

    /// Finds the keys that yield and refer, at any level, to `mr`.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed, `ENOMEM`.
    fn reached(&self, mr: &Mr) -> Result<Reached> {
        let mut reached = Reached::new();
        reached.try_create_and_insert(mr.index(), 0, GFP_MAYFAIL)?;
        // Each pass finds the keys of at least one more level.
        for _ in 0..MAX_DEPTH {
            let mut more = false;
            let mut indices = self.regions.indices();
            while let Some((index, _)) =
                self.find_yielding(mr, &mut indices, |index, binding| {
                    reached.get(&index).is_none() && refers(binding, &reached)
                })?
            {
                reached.try_create_and_insert(index, 0, GFP_MAYFAIL)?;
                more = true;
            }
            if !more {
                break;
            }
        }
        Ok(reached)
    }

    /// Checks that only keys that yield refer to `mr` and to the keys over it.
    ///
    /// # Errors
    ///
    /// `EBUSY` for a window or a key that does not yield; `ENOMEM`, `EINTR`.
    fn check_yielding(&self, mr: &Mr, deadline: &Deadline) -> Result {
        let mut reached = self.reached(mr)?;
        self.find_yielding(mr, &mut self.regions.indices(), |_, binding| {
            // Count the pins: a binding pins each of its leaves once.
            for leaf in &binding.leaves {
                if let Some(count) = reached.get_mut(&mr_key::index(leaf.lkey)) {
                    *count = count.saturating_add(1);
                }
            }
            false
        })?;
        for (&index, &known) in reached.iter() {
            let others = || self.pins.count(index) > known;
            if others() {
                // Pins of old bindings do not count. Another thread may just have unbound such a
                // key.
                self.old.settle(Which::Pinning(index), deadline.left())?;
                if others() {
                    return Err(EBUSY);
                }
            }
        }
        Ok(())
    }

    /// Unbinds the keys to which no other key refers. Returns `true` if another pass may find more.
    fn unbind_outermost(&self, mr: &Mr, deadline: &Deadline) -> Result<bool> {
        let reached = self.reached(mr)?;
        let mut indices = self.regions.indices();
        let mut more = false;
        while let Some((index, region)) =
            self.find_yielding(mr, &mut indices, |_, binding| refers(binding, &reached))?
        {
            match region.lapse(&self.old, &self.pins, index, deadline) {
                // A window or another key refers to it.
                Err(EBUSY) => more = true,
                unbound => unbound?,
            }
        }
        Ok(more)
    }
}
