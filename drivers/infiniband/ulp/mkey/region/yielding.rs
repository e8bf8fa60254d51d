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
//! The pins of an MR name the keys over it (`backend/pins.rs`). So a deregistration costs what
//! refers to the MR.

use crate::{
    backend::pins::{FoundPin, Unpinned},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::Mr,
        sched,
        sync::{lock::LockMany, pending::Deadline},
    },
    limits::worker::call_timeout,
    mkey_core::Core,
    region::{Kind, PinnedFor, Pins, Region},
};
use core::cmp::Reverse;
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// Keys that yield and refer to an MR, by their levels, the highest first, and by the indices of
/// their MRs. The value is the binding of the key that refers to the MR.
type Yielding = RBTree<(Reverse<usize>, u32), PinnedFor>;

impl Region {
    /// Unbinds the key because a leaf is deregistered, if it still has the binding with `number`.
    /// Waits for accesses through the binding.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a window or a key refers to the key, and after the `deadline`.
    fn yield_binding(self: &Arc<Self>, pins: &Pins, number: u64, deadline: &Deadline) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, deadline.left())?;
        let take_out = || {
            pins.if_unpinned(self.index(), |_| {
                let has_it = self.binding_number() == number;
                edit.yielded |= has_it;
                has_it.then(|| self.exchange_binding(None)).flatten()
            })
        };
        let old = pins.when_unpinned(self.index(), deadline.left(), take_out)?;
        drop(edit);
        drop(many);
        drop(old);
        self.retired.wait(deadline.left())
    }
}

impl Core {
    /// Runs `change`, which must not sleep, if `mr` is not pinned. Waits for retired bindings that
    /// pin it, and unbinds keys that yield. Sleeps for some seconds at most.
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
        let deadline = Deadline::new(call_timeout());
        self.unbind_yielding(mr, &deadline).map_err(|_| EBUSY)?;
        self.pins
            .when_unpinned(mr.index(), deadline.left(), attempt)?
    }

    /// Unbinds all keys that yield and refer, at any level, to `mr`. Sleeps.
    ///
    /// An access that is in progress at the deadline keeps the leaves, although its key is unbound.
    /// A key that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound, if a window or a key that does not yield refers to `mr` or to
    /// such a key. `EBUSY` too after the deadline, `EINTR` if the process was killed, `ENOMEM`.
    fn unbind_yielding(&self, mr: &Mr, deadline: &Deadline) -> Result {
        // A key over another key has more levels, so it is unbound first.
        for of in self.yielding_over(mr.index())?.values() {
            of.holder.yield_binding(&self.pins, of.number, deadline)?;
        }
        Ok(())
    }

    /// Returns the keys that refer, at any level, to the MR at `index`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a window or a key that does not yield refers to the MR or to such a key; `EINTR`
    /// if the process was killed; `ENOMEM`.
    fn yielding_over(&self, index: u32) -> Result<Yielding> {
        let mut found = Yielding::new();
        // The keys whose pins are to be looked at.
        let mut next = KVVec::new();
        next.push(index, GFP_MAYFAIL)?;
        while let Some(index) = next.pop() {
            self.pins.each(index, |pin| {
                sched::check_killed()?;
                let Some((level, of)) = yielding(pin)? else {
                    return Ok(());
                };
                let key = (Reverse(level), of.holder.index());
                if found.get(&key).is_none() {
                    next.push(of.holder.index(), GFP_MAYFAIL)?;
                    found.try_create_and_insert(key, of, GFP_MAYFAIL)?;
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// Returns the binding of a key that yields, and its number of levels, for a pin that is live.
///
/// # Errors
///
/// `EBUSY` if the pin is live, and not that of a key that yields.
fn yielding(pin: FoundPin<Region>) -> Result<Option<(usize, PinnedFor)>> {
    if !pin.is_live {
        return Ok(None);
    }
    let of = pin.of.ok_or(EBUSY)?;
    let Kind::Key { yields: true, .. } = of.holder.kind else {
        return Err(EBUSY);
    };
    let binding = of.holder.binding.get();
    let level = binding
        .filter(|binding| binding.number == of.number)
        .map(|binding| binding.depth());
    // Another thread may just have unbound the key.
    Ok(level.map(|level| (level, of)))
}
