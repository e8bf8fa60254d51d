// SPDX-License-Identifier: GPL-2.0

//! Keys that yield: the deregistration of a leaf unbinds them.
//!
//! By default a bound key keeps its leaves from being deregistered. Registration caches expect that
//! a deregistration succeeds. The owner of a key can therefore let the key yield.
//!
//! The MR of such a key may be destroyed at the same time. So only the binding is taken out, and
//! the state of the MR stays. The driver still passes requests to the key, which find no binding
//! and fail.
//!
//! # Searches
//!
//! The keys that refer to an MR are not listed anywhere, so a deregistration searches the leaves of
//! all keys that yield. One critical section of SRCU searches [`LEAVES_AT_ONCE`] leaves of one key.
//! Between two sections the key may be bound to other leaves. Its leaves would then be counted
//! twice or not at all, so all searches of the deregistration begin anew, [`TRIES`] times at most.
//! They also end after [`MOST_SECTIONS`] sections. The keys of other protection domains do not
//! count, so that no other process makes a deregistration fail.

use crate::{
    backend::pins::{when_unpinned, Pins, Unpinned},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr_key, Mr},
        sched,
        sync::{
            lock::LockMany,
            srcu::{self, Guard},
            users::{Deadline, Timeout},
        },
    },
    limits::worker::call_timeout,
    mkey_core::Core,
    region::{
        binding::{Binding, Leaf, MAX_DEPTH},
        old::{OldBindings, Which},
        BindingId, Kind, Region,
    },
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::{Arc, ArcBorrow},
};

/// An MR, and the keys that yield and refer to it at any level, by the indices of their MRs. The
/// value is the number of these keys that have the MR or key as a leaf.
type Reached = RBTree<u32, u32>;

/// The most leaves that one critical section looks at. It is not preempted, and writers wait for
/// it.
const LEAVES_AT_ONCE: usize = 256;

/// The most critical sections of the searches of a deregistration. The removal of another device
/// waits for them.
const MOST_SECTIONS: u32 = 1 << 16;

/// The most times that the searches of a deregistration begin.
const TRIES: usize = 8;

/// The limits of the searches of a deregistration.
struct Limits {
    /// The end of its waits.
    deadline: Deadline,
    /// The number of critical sections that are left.
    sections: Cell<u32>,
}

impl Limits {
    fn new(timeout: Timeout) -> Self {
        Self {
            deadline: Deadline::new(timeout),
            sections: Cell::new(MOST_SECTIONS),
        }
    }

    /// Counts a critical section.
    fn count(&self) {
        self.sections.set(self.sections.get().saturating_sub(1));
    }
}

/// A key of more than [`LEAVES_AT_ONCE`] leaves, between two critical sections.
struct Part {
    /// The region. It keeps no leaf, so that the key can be unbound.
    region: Arc<Region>,
    /// The binding.
    seen: BindingId,
    /// The number of leaves that earlier sections looked at.
    done: usize,
}

/// The result of a look at some leaves of a key.
enum SearchStep {
    /// No leaves are left.
    Done,
    /// The key is the wanted one.
    Found(Arc<Region>),
    /// Leaves are left for the next look.
    More(Part),
    /// The key was bound or unbound since the last look.
    Changed,
}

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
    fn yield_binding(
        &self,
        old: &OldBindings,
        pins: &Pins,
        index: u32,
        deadline: &Deadline,
    ) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, deadline.left())?;
        let mut take_out = || {
            pins.if_unpinned(index, |_| {
                edit.yielded = true;
                Ok(self.exchange_binding(None))
            })
        };
        let attempt = || old.replace_and_keep(self.address(), &mut take_out);
        when_unpinned(attempt, || {
            old.wait_and_drop(Which::Pinning(index), deadline.left())
        })??;
        drop(edit);
        drop(many);
        old.wait_and_drop(Which::Region(self.address()), deadline.left())
    }
}

/// Returns `true` if one of `leaves` is one of `reached`.
fn refer(leaves: &[Leaf], reached: &Reached) -> bool {
    let mut leaves = leaves.iter();
    leaves.any(|leaf| reached.get(&mr_key::index(leaf.lkey)).is_some())
}

impl Core {
    /// Runs `change`, which must not sleep, if `mr` is not pinned. Waits for old bindings that pin
    /// it, and unbinds keys that yield. Sleeps for some seconds at most.
    ///
    /// # Errors
    ///
    /// `EBUSY` if `mr` is pinned; those of `change`.
    pub(crate) fn if_free_or_yielding<T>(
        &self,
        mr: &Mr,
        change: impl Fn(&Unpinned<'_>) -> Result<T>,
    ) -> Result<T> {
        let attempt = || self.pins.if_unpinned(mr.index(), &change);
        if let Ok(done) = attempt() {
            return done;
        }
        // The time is limited, because the removal of another device waits for this call.
        let limits = Limits::new(call_timeout());
        let wait = || {
            let timeout = limits.deadline.left();
            self.old.wait_and_drop(Which::Pinning(mr.index()), timeout)
        };
        wait()?;
        if let Ok(done) = attempt() {
            return done;
        }
        self.unbind_yielding(mr, &limits).map_err(|_| EBUSY)?;
        wait()?;
        attempt()?
    }

    /// Unbinds all keys that yield and refer, at any level, to `mr`. Sleeps.
    ///
    /// An access that is in progress at the deadline keeps the leaves, although its key is unbound.
    ///
    /// A key over another key is unbound before that other key, so each level needs a pass. A key
    /// that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound unless another thread bound such keys meanwhile, if a window
    /// or a key that does not yield refers to `mr` or to such a key. `EBUSY` too if the searches
    /// reach a limit. `EINTR` if the process was killed, `ENOMEM`.
    fn unbind_yielding(&self, mr: &Mr, limits: &Limits) -> Result {
        for _ in 0..TRIES {
            match self.try_unbind(mr, limits) {
                Err(EAGAIN) => (),
                unbound => return unbound,
            }
        }
        Err(EBUSY)
    }

    /// As for [`Self::unbind_yielding`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::unbind_yielding`]; `EAGAIN` as for [`Self::find_yielding`].
    fn try_unbind(&self, mr: &Mr, limits: &Limits) -> Result {
        self.check_yielding(mr, limits)?;
        for _ in 0..MAX_DEPTH {
            if !self.unbind_outermost(mr, limits)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs `look` on the next leaves of the key at `index`, if it yields, is bound, and is in the
    /// protection domain of `mr`. They follow those of `part`, if that is given.
    fn look_on(
        &self,
        mr: &Mr,
        index: u32,
        part: Option<&Part>,
        look: &mut impl FnMut(u32, &[Leaf]) -> bool,
    ) -> SearchStep {
        let guard = srcu::read_brief();
        let region = match part {
            Some(part) => Some(part.region.as_arc_borrow()),
            None => self.regions.get(index, &guard),
        };
        let binding = region.as_ref().and_then(|of| of.yielding(mr, &guard));
        let (Some(region), Some(binding)) = (region, binding) else {
            return if part.is_some() {
                SearchStep::Changed
            } else {
                SearchStep::Done
            };
        };
        let seen = region.binding_id(&binding);
        let done = match part {
            Some(part) if part.seen != seen => return SearchStep::Changed,
            Some(part) => part.done,
            None => 0,
        };
        let left = binding.leaves.get(done..).unwrap_or(&[]);
        let some = left.get(..LEAVES_AT_ONCE).unwrap_or(left);
        if look(index, some) {
            SearchStep::Found(region.into())
        } else if some.len() == left.len() {
            SearchStep::Done
        } else {
            let (region, done) = (region.into(), done.saturating_add(some.len()));
            SearchStep::More(Part { region, seen, done })
        }
    }

    /// Runs `look`, which must not sleep, on the indices and some leaves at a time of the keys at
    /// `indices` that yield, are bound, and are in the protection domain of `mr`. Returns the first
    /// key for which `look` returns `true`, which may be destroyed by then, with its index.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if a key was bound while `look` had seen only some of its leaves; `EBUSY` after
    /// [`MOST_SECTIONS`]; `EINTR` if the process was killed.
    fn find_yielding(
        &self,
        mr: &Mr,
        indices: &mut impl Iterator<Item = u32>,
        limits: &Limits,
        mut look: impl FnMut(u32, &[Leaf]) -> bool,
    ) -> Result<Option<(u32, Arc<Region>)>> {
        let mut look = |index: u32, leaves: &[Leaf]| {
            limits.count();
            look(index, leaves)
        };
        for index in indices {
            let mut part = None;
            loop {
                sched::check_killed()?;
                if limits.sections.get() == 0 {
                    return Err(EBUSY);
                }
                match self.look_on(mr, index, part.as_ref(), &mut look) {
                    SearchStep::Done => break,
                    SearchStep::Found(region) => return Ok(Some((index, region))),
                    SearchStep::More(more) => part = Some(more),
                    SearchStep::Changed => return Err(EAGAIN),
                }
            }
        }
        Ok(None)
    }

    /// Finds the keys that yield and refer, at any level, to `mr`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::find_yielding`]; `ENOMEM`.
    fn reached(&self, mr: &Mr, limits: &Limits) -> Result<Reached> {
        let mut reached = Reached::new();
        reached.try_create_and_insert(mr.index(), 0, GFP_MAYFAIL)?;
        // Each pass finds the keys of at least one more level.
        for _ in 0..MAX_DEPTH {
            let mut more = false;
            let mut indices = self.regions.indices();
            while let Some((index, _)) =
                self.find_yielding(mr, &mut indices, limits, |index, leaves| {
                    reached.get(&index).is_none() && refer(leaves, &reached)
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
    /// `EBUSY` for a window or a key that does not yield; those of [`Self::reached`].
    fn check_yielding(&self, mr: &Mr, limits: &Limits) -> Result {
        let mut reached = self.reached(mr, limits)?;
        self.find_yielding(mr, &mut self.regions.indices(), limits, |_, leaves| {
            // Count the pins: a binding pins each of its leaves once.
            for leaf in leaves {
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
                let timeout = limits.deadline.left();
                self.old.wait_and_drop(Which::Pinning(index), timeout)?;
                if others() {
                    return Err(EBUSY);
                }
            }
        }
        Ok(())
    }

    /// Unbinds the keys to which no other key refers. Returns `true` if another pass may find more.
    ///
    /// # Errors
    ///
    /// Those of [`Self::reached`] and of [`Region::yield_binding`].
    fn unbind_outermost(&self, mr: &Mr, limits: &Limits) -> Result<bool> {
        let reached = self.reached(mr, limits)?;
        let mut indices = self.regions.indices();
        let mut more = false;
        while let Some((index, region)) =
            self.find_yielding(mr, &mut indices, limits, |_, leaves| {
                refer(leaves, &reached)
            })?
        {
            match region.yield_binding(&self.old, &self.pins, index, &limits.deadline) {
                // A window or another key refers to it.
                Err(EBUSY) => more = true,
                unbound => unbound?,
            }
        }
        Ok(more)
    }
}
