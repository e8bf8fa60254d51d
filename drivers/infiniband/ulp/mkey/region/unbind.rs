// SPDX-License-Identifier: GPL-2.0

//! Unbinds of a region: by a call, by an invalidation, and when a leaf is deregistered.

use super::{binding::Binding, pins::Pins, rights::Origin, tag, Kind, Region};
use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::Mr,
        sync::{
            lock::LockMany,
            srcu,
            users::Patience, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::ordering,
        Arc, //
    },
};

impl Region {
    /// Returns `true` if a peer may invalidate the binding.
    fn may_invalidate(&self) -> bool {
        let guard = srcu::read();
        let binding = self.binding.get(&guard);
        binding.is_some_and(|binding| binding.peers_may_end())
    }

    /// Removes the binding and changes the tag of the lkey and rkey. No access is left when this
    /// returns without an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` as for [`Self::bind`]; `EINVAL` for a request if the region has another key than `key`,
    /// and for a peer if the binding does not allow it; those of
    /// [`Users::wait`](crate::kernel_ext::sync::users::Users::wait). After an error of the wait the
    /// region is unbound, and no access begins.
    pub(crate) fn unbind(
        &self,
        pins: &Pins,
        hw: &Hw,
        mr: &Mr,
        origin: Origin,
        key: Option<u32>,
        patience: Patience,
    ) -> Result {
        let may = || origin != Origin::Remote || self.may_invalidate();
        self.take_out(pins, mr.index(), patience, may, || {
            // The lock of the pins excludes `Backend::suspend`. The state of an MR that is being
            // deregistered stays: accesses would begin for which the deregistration does not wait.
            if !hw.is_open(mr) && !hw.is_free(mr) {
                return Err(EINVAL);
            }
            let now = hw.key(mr);
            // Another request was first.
            if key.is_some_and(|key| key != now) {
                return Err(EINVAL);
            }
            hw.withdraw(mr);
            if let Kind::Key { .. } = self.kind {
                self.lapsed.store(false, ordering::Relaxed);
                let next = tag::next(now);
                self.rekey(hw, mr, next);
                // The kernel user that posts a request may write the fields at the same time.
                if origin == Origin::Call || !mr.is_kernels() {
                    mr.set_key(next);
                }
            }
            Ok(())
        })
    }

    /// Takes the binding of the region, at `index`, out if it `may`, and drops it after the accesses
    /// through it. Runs `change` first, under the lock of the pins. If that fails, the binding stays.
    /// As for [`Self::unbind`].
    pub(super) fn take_out(
        &self,
        pins: &Pins,
        index: u32,
        patience: Patience,
        may: impl FnOnce() -> bool,
        change: impl Fn() -> Result,
    ) -> Result {
        let many = LockMany::new();
        let edit = match patience {
            Patience::Bounded(jiffies) => many.lock_within(&self.edit, jiffies).ok_or(EBUSY)?,
            _ => many.lock(&self.edit),
        };
        self.settle_left(patience)?;
        if !may() {
            return Err(EINVAL);
        }
        let take = || {
            pins.if_free(index, || {
                change()?;
                Ok(self.binding.swap(None))
            })
        };
        let old = match take() {
            Err(EBUSY) => {
                self.settle_pinning(index, patience)?;
                take()?
            }
            taken => taken?,
        };
        let (old, waited) = self.settle(old, patience);
        drop(edit);
        drop(many);
        if let Some(old) = old {
            self.reuse(old);
        }
        waited
    }

    /// Drops an old binding, for which [`Self::settle`] waited, and keeps its memory for the next one.
    pub(crate) fn reuse(&self, old: Arc<Binding>) {
        if let Some(unused) = Binding::recycle(old) {
            drop(self.unused.put(unused));
        }
    }
}
