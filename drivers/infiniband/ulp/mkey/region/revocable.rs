// SPDX-License-Identifier: GPL-2.0

//! Revocable keys: the deregistration of a leaf unbinds them.
//!
//! By default a bound key keeps its leaves from being deregistered. Registration caches expect that
//! a deregistration succeeds. The owner of a key can therefore make the key revocable.
//!
//! The MR of such a key may be destroyed at the same time. So only the binding is taken out, and
//! the state of the MR stays. The driver still passes requests to the key, which find no binding
//! and fail.
//!
//! The pins of an MR name the keys over it (`backend/pins.rs`). So a deregistration costs what
//! refers to the MR.

use crate::{
    backend::pins::{FoundPin, Holder, Unpinned},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::Mr,
        sched,
        sync::{
            lock::LockMany,
            pending::{Deadline, Timeout},
        },
    },
    limits::worker::call_timeout,
    mkey_core::Core,
    region::{
        state::{Pins, RegionState},
        Kind, Region,
    },
};
use core::cmp::Reverse;
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// The most pins that the deregistration of an MR looks at. The removal of a device waits for the
/// deregistration of each MR of a process.
const MOST_PINS: u32 = 1 << 16;

/// Revocable keys that refer to an MR, by their levels, the highest first, and by the indices of
/// their MRs. The number is that of the binding that refers to the MR.
type Revocable = RBTree<(Reverse<usize>, u32), (Arc<Region>, u64)>;

impl Region {
    /// Unbinds the key because a leaf is deregistered, if it still has the binding with `number`.
    /// Waits for accesses through the binding.
    /// Fails with `EBUSY` if a window or a key refers to the key, and after the `deadline`.
    fn revoke_binding(self: &Arc<Self>, pins: &Pins, number: u64, deadline: &Deadline) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, deadline.left())?;
        let take_out = || {
            pins.if_unpinned(self.index(), |_| {
                let has_it = self.state.is_bound_to(number);
                edit.revoked |= has_it;
                has_it.then(|| self.exchange_binding(None)).flatten()
            })
        };
        let old = pins.when_unpinned(self.index(), deadline.left(), take_out)?;
        drop(edit);
        drop(many);
        drop(old);
        self.state.retired.wait(deadline.left())
    }
}

impl Core {
    /// Runs `change`, which must not sleep, if `mr` is not pinned. Waits for retired bindings that
    /// pin it, and unbinds revocable keys. Sleeps for some seconds at most.
    /// Fails with `EBUSY` if `mr` is pinned, and with the errors of [`Self::unbind_revocable`] and
    /// `change`.
    pub(crate) fn if_free_or_revocable<T>(
        &self,
        mr: &Mr,
        change: impl Fn(&Unpinned<'_>) -> Result<T>,
    ) -> Result<T> {
        let attempt = || self.pins.if_unpinned(mr.index(), &change);
        if let Ok(done) = attempt() {
            return done;
        }
        // The time is limited, because the removal of another device waits for this call.
        let deadline = Deadline::new(call_timeout());
        self.unbind_revocable(mr, &deadline)?;
        self.pins
            .when_unpinned(mr.index(), deadline.left(), attempt)?
    }

    /// Unbinds all revocable keys that refer, at any level, to `mr`. Sleeps.
    ///
    /// An access that is in progress at the deadline keeps the leaves, although its key is unbound.
    /// A key that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound, if a window or a key that is not revocable refers to `mr` or to
    /// such a key. `EBUSY` too after the deadline, `EINTR` if the process was killed, `ENOMEM`.
    fn unbind_revocable(&self, mr: &Mr, deadline: &Deadline) -> Result {
        // A key over another key has more levels, so it is unbound first.
        for (key, number) in self.revocable_over(mr.index(), deadline)?.values() {
            if deadline.left() == Timeout::After(0) {
                return Err(EBUSY);
            }
            key.revoke_binding(&self.pins, *number, deadline)?;
        }
        Ok(())
    }

    /// Returns the keys that refer, at any level, to the MR at `index`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a window or a key that is not revocable refers to the MR or to such a key, after the
    /// `deadline`, and if more than [`MOST_PINS`] pins must be looked at; `EINTR` if the process was
    /// killed; `ENOMEM`.
    fn revocable_over(&self, index: u32, deadline: &Deadline) -> Result<Revocable> {
        let mut found = Revocable::new();
        let mut left = MOST_PINS;
        let mut at = Some(index);
        // The MRs whose pins come after those of `at`. Only revocable keys need memory.
        let mut next = KVVec::new();
        while let Some(index) = at {
            self.pins.each(index, |pin| {
                sched::check_killed()?;
                left = left.checked_sub(1).ok_or(EBUSY)?;
                if deadline.left() == Timeout::After(0) {
                    return Err(EBUSY);
                }
                let Some((region, level, number)) = self.revocable(pin)? else {
                    return Ok(());
                };
                let key = (Reverse(level), region.index());
                if found.get(&key).is_none() {
                    next.push(region.index(), GFP_MAYFAIL)?;
                    found.try_create_and_insert(key, (region, number), GFP_MAYFAIL)?;
                }
                Ok(())
            })?;
            at = next.pop();
        }
        Ok(found)
    }

    /// Returns the key for which an MR is pinned, its number of levels, and the number of its
    /// binding, if the pin is live.
    /// Fails with `EBUSY` if the pin is live, and not that of a revocable key.
    fn revocable(&self, pin: FoundPin<RegionState>) -> Result<Option<(Arc<Region>, usize, u64)>> {
        if !pin.is_live {
            return Ok(None);
        }
        let of = pin.of.ok_or(EBUSY)?;
        // Another thread may just have unbound or destroyed the key.
        let Some(region) = self.regions.with_state(&of.holder) else {
            return Ok(None);
        };
        let Kind::Key {
            revocable: true, ..
        } = region.kind
        else {
            return Err(EBUSY);
        };
        let binding = region.binding.get();
        let level = binding
            .filter(|binding| binding.number == of.number)
            .map(|binding| binding.depth());
        Ok(level.map(|level| (region, level, of.number)))
    }
}
