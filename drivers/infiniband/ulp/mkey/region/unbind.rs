// SPDX-License-Identifier: GPL-2.0

//! Unbinds of a region, by a call and by an invalidation. `region/revocable.rs` has the unbinds by
//! the deregistration of a leaf.

use super::{binding::Binding, rights::Origin, state::Pins, Edit, Kind, Region};
use crate::{
    backend::Claimed,
    kernel_ext::{
        rdma::mr_key,
        sync::{lock::LockMany, pending::Timeout, rcu_arc::RcuArc},
    },
};
use kernel::{prelude::*, sync::Arc};

impl Region {
    /// Returns `true` if a peer may invalidate the binding.
    fn may_invalidate(&self) -> bool {
        let binding = self.binding.get();
        binding.is_some_and(|binding| binding.allows_remote_inv())
    }

    /// Removes the binding and changes the key portion of the lkey and rkey. No access is left when
    /// this returns without an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` as for [`Self::bind_as`]; `EINVAL` for a request if `key` is not the rkey of the
    /// region, and for a peer if the binding does not allow it; those of
    /// [`Pending::wait`](crate::kernel_ext::sync::pending::Pending::wait). After an error of the
    /// wait the region is unbound, and no access begins.
    pub(crate) fn unbind(
        self: &Arc<Self>,
        pins: &Pins,
        mr: &Claimed,
        origin: Origin,
        key: Option<u32>,
        timeout: Timeout,
    ) -> Result {
        let many = LockMany::new();
        let mut edit = self.lock(&many, timeout)?;
        if origin == Origin::Remote && !self.may_invalidate() {
            return Err(EINVAL);
        }
        let take = || pins.if_unpinned(mr.index(), |_| self.take_out(&mut edit, mr, origin, key));
        let old = pins.when_unpinned(mr.index(), timeout, take)??;
        drop(old);
        self.state.retired.wait(timeout)
    }

    /// Takes the binding out and changes the key portion. The caller holds the lock of the pins. As
    /// for [`Self::unbind`].
    fn take_out(
        self: &Arc<Self>,
        edit: &mut Edit,
        mr: &Claimed,
        origin: Origin,
        key: Option<u32>,
    ) -> Result<Option<RcuArc<Binding>>> {
        // The state of an MR that is being deregistered must stay: otherwise accesses could begin
        // for which the deregistration does not wait. The lock of the pins excludes
        // `rxe::suspend()`.
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
            edit.revoked = false;
            let next = mr_key::next(now);
            self.rekey(edit, mr, next);
            // A kernel user may write the fields while its request executes, so a request does not.
            if origin == Origin::Call || self.charge.user().is_some() {
                edit.write_key(mr, next);
            }
        }
        Ok(self.exchange_binding(None))
    }

    /// Takes the binding out, without waiting for accesses. No access begins after this returns.
    pub(crate) fn clear(self: &Arc<Self>, mr: &Claimed) -> Option<RcuArc<Binding>> {
        let many = LockMany::new();
        let _edit = many.lock(&self.edit);
        mr.withdraw();
        self.exchange_binding(None)
    }
}
