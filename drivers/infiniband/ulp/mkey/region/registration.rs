// SPDX-License-Identifier: GPL-2.0

//! Registrations of the elements that a kernel user mapped (`region/fast_reg.rs`): REG_MR, LOCAL_INV
//! and SEND with invalidate.

use crate::{
    backend::{
        pins::{IsPinned, Unpinned},
        Claimed,
    },
    kernel_ext::{
        rdma::{mr::Right, mr_key, Access, Pd},
        sync::{pending::Timeout, rcu_arc::RcuArc},
    },
    region::{
        binding::{Binding, Registered},
        fast_reg::FastReg,
        rights::{self, serves_peers, Origin},
        Kind, Region,
    },
};
use kernel::{prelude::*, sync::Arc};

/// The active layout, kept by a leaf of a key.
pub(crate) struct Active {
    pub(crate) binding: RcuArc<Binding>,
    /// The access flags of the registration.
    pub(crate) access: Access,
}

impl Region {
    /// Makes the staged layout active. `key` becomes the lkey and the rkey.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR that is not for fast registration, if the MR is registered already, has no
    /// staged layout or is in another protection domain, if `key` names another MR, and if an access
    /// flag is not supported.
    pub(crate) fn register(
        self: &Arc<Self>,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        access: Access,
    ) -> Result {
        let fast = self.fast_reg()?;
        // The mapped memory may not be persistent, so it cannot be flushed to persistence.
        let supported = rights::supported(access) && !access.contains(Right::FlushPersistent);
        if mr.pd() != pd.as_raw() || !supported {
            return Err(EINVAL);
        }
        // A deregistration does not close the MR meanwhile.
        fast.pins
            .exclude(|_| self.register_mapped(fast, mr, key, access))
    }

    /// Makes the staged layout of `fast` active. Does not sleep. The caller holds the lock of the
    /// pins. The errors are those of [`Self::register`].
    fn register_mapped(
        self: &Arc<Self>,
        fast: &FastReg,
        mr: &Claimed,
        key: u32,
        access: Access,
    ) -> Result {
        let mut slots = fast.slots.lock();
        let own = mr_key::is_same_index(key, mr.key());
        if !mr.is_free() || !own || !self.binding.is_empty() || !self.state.retired.is_none() {
            return Err(EINVAL);
        }
        let mapped = slots.staged.take_if(|binding| binding.layout.length() != 0);
        let mut binding = mapped.ok_or(EINVAL)?;
        // The binding always allows local write, because the driver checks that flag of the MR. A
        // peer's write does not require the flag here.
        binding.access = access | Right::LocalWrite;
        // Some ULPs set `iova` to another address than that of the first element, after mapping.
        binding.start = mr.iova();
        if let Some(registered) = binding.registered_mut() {
            *registered = Registered { key, access };
        }
        // The region has no binding, as the check above showed under the same lock.
        let before = self.exchange_binding(Some(binding));
        mr.register(key, access);
        self.registered_as(key);
        drop(slots);
        drop(before);
        Ok(())
    }

    /// Ends the registration, unless a bound key refers to its elements. No access to them is left
    /// when this returns. Sleeps if accesses are in progress. The wait is short, because these
    /// accesses copy kernel memory and wait for nothing.
    ///
    /// # Errors
    ///
    /// [`IsPinned`] if a bound key refers to the elements. In the inner result: `EINVAL` for
    /// another key or protection domain than those of the registration, and for a peer if the
    /// registration has no remote access flag.
    pub(super) fn end_registration(
        self: &Arc<Self>,
        fast: &FastReg,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
    ) -> Result<Result, IsPinned> {
        let withdraw = |_: &Unpinned<'_>| self.withdraw(fast, mr, pd, key, origin);
        let withdrawn = fast.pins.if_unpinned(mr.index(), withdraw)?;
        Ok(withdrawn.map(|active| {
            // This gives the layout back, unless accesses keep it.
            drop(active);
            // An endless wait has no error.
            let _ = self.state.retired.wait(Timeout::Never);
        }))
    }

    /// Takes the active layout out. Does not sleep. The caller holds the lock of the pins, and the
    /// MR is not pinned.
    fn withdraw(
        self: &Arc<Self>,
        fast: &FastReg,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
    ) -> Result<Option<RcuArc<Binding>>> {
        if mr.pd() != pd.as_raw() {
            return Err(EINVAL);
        }
        // Not under `slots`: a deregistration may take the layout out meanwhile. This reference is
        // then the last one, and gives the layout back under `slots`.
        let serves = || {
            let active = self.binding.get();
            active.is_some_and(|active| serves_peers(active.access))
        };
        if origin == Origin::Remote && !serves() {
            return Err(EINVAL);
        }
        let _slots = fast.slots.lock();
        // The state of an MR that is being deregistered must stay.
        if key != mr.key() || (!mr.is_open() && !mr.is_free()) {
            return Err(EINVAL);
        }
        if !self.binding.is_empty() {
            mr.invalidate();
        }
        Ok(self.exchange_binding(None))
    }

    /// Ends a fast registration by LOCAL_INV, or by a peer's SEND with invalidate. Waits at most as
    /// long as `timeout` allows for retired bindings that pin the MR. The errors are those of
    /// [`Self::end_registration`].
    /// Fails with `EINVAL` for an MR that is not for fast registration.
    pub(crate) fn invalidate_registration(
        self: &Arc<Self>,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
        timeout: Timeout,
    ) -> Result {
        let fast = self.fast_reg()?;
        let end = || self.end_registration(fast, mr, pd, key, origin);
        fast.pins.when_unpinned(mr.index(), timeout, end)?
    }

    fn fast_reg(&self) -> Result<&FastReg> {
        match &self.kind {
            Kind::FastReg(fast) => Ok(fast),
            _ => Err(EINVAL),
        }
    }

    /// Returns the active layout, for a leaf of a key. The caller holds the lock of the pins, and
    /// drops the layout before it unpins the MR.
    pub(crate) fn active(&self) -> Option<Active> {
        let binding = self.binding.get()?;
        let access = binding.registered()?.access;
        Some(Active { binding, access })
    }

    /// Returns `true` if `length` bytes from address `iova` on are registered.
    pub(crate) fn is_registered(&self, iova: u64, length: u64) -> bool {
        self.binding.get().is_some_and(|active| {
            let whole = active.layout.length();
            length <= whole && iova.wrapping_sub(active.start) <= whole - length
        })
    }
}
