// SPDX-License-Identifier: GPL-2.0

//! Unbinds of a region, by a call and by an invalidation. `region/yielding.rs` has the unbinds by
//! the deregistration of a leaf.

use super::{binding::Binding, rights::Origin, Edit, Kind, Region};
use crate::{
    backend::{
        pins::{when_unpinned, Pins},
        Claimed, ClaimedMr,
    },
    kernel_ext::{
        rdma::mr_key,
        sync::{
            lock::LockMany,
            srcu::{self, Retired},
            users::Timeout, //
        },
    },
};
use kernel::prelude::*;

impl Region {
    /// Returns `true` if a peer may invalidate the binding.
    fn may_invalidate(&self) -> bool {
        let guard = srcu::read_brief();
        let binding = self.binding.get(&guard);
        binding.is_some_and(|binding| binding.allows_remote_inv())
    }

    /// Removes the binding and changes the tag of the lkey and rkey. No access is left when this
    /// returns without an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` as for [`Self::bind`]; `EINVAL` for a request if `key` is not the rkey of the
    /// region, and for a peer if the binding does not allow it; those of
    /// [`Users::wait`](crate::kernel_ext::sync::users::Users::wait). After an error of the wait the
    /// region is unbound, and no access begins.
    pub(crate) fn unbind(
        &self,
        pins: &Pins,
        mr: &Claimed,
        origin: Origin,
        key: Option<u32>,
        timeout: Timeout,
    ) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, timeout)?;
        self.wait_for_left(&mut edit, timeout)?;
        if origin == Origin::Remote && !self.may_invalidate() {
            return Err(EINVAL);
        }
        let take = || pins.if_unpinned(mr.index(), |_| self.take_out(&mut edit, mr, origin, key));
        let old = when_unpinned(take, || self.wait_for_pinning(mr.index(), timeout))??;
        let (old, waited) = self.wait_for_accesses(&mut edit, old, timeout);
        drop(edit);
        drop(many);
        drop(old);
        waited
    }

    /// Takes the binding out and changes the tag. The caller holds the lock of the pins. As for
    /// [`Self::unbind`].
    fn take_out(
        &self,
        edit: &mut Edit,
        mr: &Claimed,
        origin: Origin,
        key: Option<u32>,
    ) -> Result<Retired<Binding>> {
        // The state of an MR that is being deregistered must stay: otherwise accesses could begin
        // for which the deregistration does not wait. The lock of the pins excludes
        // `Backend::suspend`.
        if !mr.is_open() && !mr.is_free() {
            return Err(EINVAL);
        }
        let now = mr.key();
        // Another request has changed the key meanwhile.
        if key.is_some_and(|key| key != now) {
            return Err(EINVAL);
        }
        mr.withdraw();
        if let Kind::Key { .. } = self.kind {
            edit.yielded = false;
            let next = mr_key::next(now);
            self.rekey(edit, mr, next);
            // A kernel user may write the fields while its request executes, so a request does not.
            if origin == Origin::Call || self.charge.user().is_some() {
                edit.write_key(mr, next);
            }
        }
        Ok(self.exchange_binding(None))
    }
}
