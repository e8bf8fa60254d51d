// SPDX-License-Identifier: GPL-2.0

//! Indirect keys: a caller's description becomes a binding.
//!
//! A description is checked completely before anything changes. Each lkey in it is looked up and
//! pinned once.

mod description;
pub(crate) mod indexed;
pub(crate) mod leaf;
pub(crate) mod nest;
mod registered;
pub(crate) mod request;
mod stage;
pub(crate) mod uapi;

pub(crate) use description::{Description, Range};

use crate::{
    backend::{pins::Pins, Backend, Claimed, ClaimedMr, Hw},
    counters::{self, Count},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::eloop,
        rdma::{mr_key, Mr, OwnedMr, Pd},
        sync::{srcu, users::Timeout},
    },
    limits::cost,
    mkey_core::{Core, Lookup},
    region::{
        binding::Binding,
        indices::MAX_INDICES,
        old::OldBindings,
        rebind::{apply, Change, QueuedBind, Refused},
        rights::Origin,
        staged::StagedLayouts,
        Kind, Region,
    },
};
use kernel::{prelude::*, sync::Arc};

/// The parts of the device that change with the binding of a key.
struct Parts<'a> {
    old: &'a OldBindings,
    pins: &'a Arc<Pins>,
}

/// A key, found by the caller's MR.
pub(crate) struct Key<'a> {
    core: &'a Core,
    mr: &'a Claimed,
    pd: &'a Pd,
    region: Arc<Region>,
    max_entries: u32,
}

impl<'a> Key<'a> {
    /// Returns the key whose MR is `mr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `mr` is not a key; `EOPNOTSUPP` for an MR of a device that is not extended.
    pub(crate) fn of(mr: &'a Mr, pd: &'a Pd) -> Result<Self> {
        let core = Core::of(mr.device())?;
        let mr = Hw::claimed(mr).ok_or(EINVAL)?;
        let region = core.region_of(mr).ok_or(EINVAL)?;
        let Kind::Key { max_entries, .. } = region.kind else {
            return Err(EINVAL);
        };
        Ok(Self {
            core,
            mr,
            pd,
            region,
            max_entries,
        })
    }

    /// Returns the core of the key's device.
    pub(crate) fn core(&self) -> &'a Core {
        self.core
    }

    /// Returns what a change of the binding needs.
    ///
    /// # Errors
    ///
    /// None, because the region is one of a key.
    #[inline]
    fn parts(&self) -> Result<Parts<'_>> {
        match &self.region.kind {
            Kind::Key { old, pins, .. } => Ok(Parts { old, pins }),
            _ => Err(EINVAL),
        }
    }

    /// Returns the key to its state after creation.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or a bound key refers to the key; `EINTR` as for
    /// [`Region::unbind`].
    pub(crate) fn unbind(&self) -> Result {
        let Parts { pins, .. } = self.parts()?;
        self.region
            .unbind(pins, self.mr, Origin::Call, None, self.timeout())?;
        if let Ok(staged) = self.staged() {
            staged.clear();
        }
        counters::add(Count::Unbind, 1);
        Ok(())
    }

    /// Returns how long a rebind waits for accesses to the old binding. A kill does not end
    /// the wait of a kernel user, which frees the memory when the call returns.
    fn timeout(&self) -> Timeout {
        if self.pd.is_kernels() {
            Timeout::Never
        } else {
            Timeout::WhenKilled
        }
    }

    /// Returns the MR of the key.
    pub(crate) fn mr(&self) -> &Mr {
        self.mr
    }

    /// Returns the number of entries that the key was created with.
    pub(crate) fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// Returns the region of the key.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Runs `look` on the binding, or on [`None`] if the key is unbound. Binds wait meanwhile, so
    /// `look` must not sleep.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(Option<&Binding>) -> T) -> T {
        let guard = srcu::read_brief();
        look(self.region.binding.get(&guard).as_deref())
    }
}

/// Makes an unbound key of up to `max_entries` entries, blocks or indices. If it `yields`, the
/// deregistration of one of its leaves unbinds it.
///
/// # Errors
///
/// `EINVAL` if `max_entries` is 0 or exceeds [`MAX_INDICES`]; `ENOMEM`.
pub(crate) fn create(core: &Core, pd: &Pd, max_entries: u32, yields: bool) -> Result<OwnedMr> {
    if max_entries == 0 || max_entries > MAX_INDICES {
        return Err(EINVAL);
    }
    let (bytes, staged) = if pd.is_kernels() {
        (cost::KERNELS_KEY, Some(StagedLayouts::new()?))
    } else {
        (cost::REGION, None)
    };
    let charge = core.charge(pd, bytes)?;
    let (mr, ()) = OwnedMr::new(pd, 1, |new| core.hw.claim(new).map(|_| ()))?;
    let kind = Kind::Key {
        max_entries,
        old: core.old.clone(),
        pins: core.pins.clone(),
        yields,
        staged,
    };
    core.adopt(&mr, kind, charge)?;
    Ok(mr)
}

/// A description that has been checked completely.
pub(crate) struct Described<'a> {
    key: &'a Key<'a>,
    binding: Arc<Binding>,
    /// The lkey and rkey that the key gets.
    rkey: Option<u32>,
    /// `true` if a request may name the unbound key by any tag.
    any_tag: bool,
}

impl Described<'_> {
    /// Chooses `rkey` as the lkey and rkey that the bind gives the key.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more than the low 8 bits differ.
    pub(crate) fn choose(&mut self, rkey: u32) -> Result {
        if !mr_key::is_same_index(rkey, self.key.mr.rkey()) {
            return Err(EINVAL);
        }
        self.rkey = Some(rkey);
        Ok(())
    }

    /// Allows peers to invalidate the binding even if it has no remote access flag.
    pub(crate) fn allow_remote_inv(&self) {
        self.binding.allow_remote_inv();
    }

    /// Binds the key to the description.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or another bound key refers to the key, `ELOOP` if the key
    /// would refer to itself.
    pub(crate) fn bind(self) -> Result {
        let Key { mr, region, .. } = self.key;
        let Parts { pins, .. } = self.key.parts()?;
        let (new, timeout) = (&self.binding, self.key.timeout());
        let bound = region.bind_as(pins, mr, new, self.rkey, timeout);
        bound.map_err(|error| self.why(error))?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    /// Returns `true` if a request may name the key by `rkey` now.
    pub(crate) fn is_named(&self, rkey: u32) -> bool {
        self.any_tag || self.key.mr.key() == rkey
    }

    /// Binds the key to the description in the order of a queue, for a work request that names it
    /// by the rkey `key`, or by its MR. The lkey and rkey become `new_key`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::bind`] and of [`Region::bind_from_queue`].
    pub(crate) fn bind_from_queue(
        &self,
        key: Option<u32>,
        new_key: u32,
        timeout: Timeout,
    ) -> Result {
        let Key { mr, region, .. } = self.key;
        let Parts { old, pins, .. } = self.key.parts()?;
        let queued = QueuedBind {
            old,
            key,
            any_tag: self.any_tag,
            new_key,
            timeout,
        };
        let bound = region.bind_from_queue(&queued, pins, mr, &self.binding);
        bound.map_err(|error| self.why(error))?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    fn change(&self, number: usize) -> Change<'_> {
        let Key { region, mr, .. } = self.key;
        Change {
            region,
            mr,
            number,
            new: &self.binding,
            key: self.rkey,
        }
    }

    fn why(&self, error: Error) -> Error {
        // If another key refers to this key, the two keys may form a circle.
        if error == EBUSY && nest::reaches(&self.binding, self.key.mr.index()) {
            eloop()
        } else {
            error
        }
    }
}

/// Binds all keys of `all`, or none. All of them belong to one device.
///
/// # Errors
///
/// Those of [`Described::bind`], with the number of the description; `EINVAL` for a key that `all`
/// contains twice; `ENOMEM`.
pub(crate) fn bind_all(all: &[Described<'_>]) -> core::result::Result<(), Refused> {
    let Some(first) = all.first() else {
        return Ok(());
    };
    let refused = |number, error: Error| Refused { number, error };
    let mut changes =
        KVVec::with_capacity(all.len(), GFP_MAYFAIL).map_err(|err| refused(0, err.into()))?;
    for (number, described) in all.iter().enumerate() {
        changes
            .push(described.change(number), GFP_MAYFAIL)
            .map_err(|err| refused(number, err.into()))?;
    }
    let timeout = first.key.timeout();
    let Parts { pins, .. } = first.key.parts().map_err(|error| refused(0, error))?;
    apply(pins, &mut changes, timeout).map_err(|Refused { number, error }| {
        let why = all.get(number).map(|described| described.why(error));
        refused(number, why.unwrap_or(error))
    })?;
    counters::add(Count::Bind, all.len());
    Ok(())
}
