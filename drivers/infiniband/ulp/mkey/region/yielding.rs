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
        sync::{srcu, users::Patience},
    },
    key::nest,
    mkey_core::Core,
    region::{
        binding::{Binding, MAX_DEPTH},
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
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
    /// A key over which another key is bound is unbound after that one, so that one pass is needed
    /// for each level. A key that is bound during the call may refer to `mr` again.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing unbound, if a window or a key that does not yield refers to `mr`;
    /// `EINTR` if the process was killed.
    pub(crate) fn unbind_yielding(&self, mr: &Mr) -> Result {
        let mut yielding = 0u32;
        self.each_yielding(mr, |_, _, binding| {
            let mut leaves = binding.leaves.iter();
            if leaves.any(|leaf| leaf.lkey >> 8 == mr.index()) {
                yielding = yielding.saturating_add(1);
            }
            Ok(())
        })?;
        // A binding pins each of its leaves once.
        if self.pins.count(mr.index()) > yielding {
            return Err(EBUSY);
        }
        for _ in 0..MAX_DEPTH {
            if !self.unbind_outermost(mr)? {
                break;
            }
        }
        Ok(())
    }

    /// Unbinds those of the keys to which no other key refers. Returns `true` if another pass may
    /// find more.
    fn unbind_outermost(&self, mr: &Mr) -> Result<bool> {
        let mut more = false;
        self.each_yielding(mr, |index, region, binding| {
            let refers = nest::reaches(&binding, mr.index());
            // It keeps the pins of the leaves.
            drop(binding);
            if !refers {
                return Ok(());
            }
            let lapse = || region.lapsed.store(true, ordering::Relaxed);
            match region.take_out(&self.pins, index, Patience::Killable, || true, lapse) {
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
