// SPDX-License-Identifier: GPL-2.0

//! Indirect keys: a caller's description becomes a binding.
//!
//! A description is checked completely before anything changes. Each lkey in it is looked up and
//! pinned once.

mod description;
pub(crate) mod indexed;
pub(crate) mod leaf;
mod registered;
pub(crate) mod request;
mod stage;

pub(crate) use description::{check_kind, counts, Description, Range};

use crate::{
    backend::Claimed,
    counters::{self, Count},
    errors::{Refused, Result},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr_key, Mr, OwnedMr, Pd},
        sched,
        sync::{pending::Timeout, rcu_arc::RcuUnique},
    },
    limits::{cost, worker::Worker},
    mkey_core::{Core, Lookup},
    region::{
        binding::{Binding, Leaf, LeafPlace, MAX_DEPTH, MAX_INDICES},
        flat::{MAX_PIECES, MAX_PIECES_OF_REQUEST},
        rebind::{apply, Change, QueuedBind, RefusedChange},
        rights::Origin,
        staged::StagedLayouts,
        Kind, Region,
    },
};
use core::{ptr, slice};
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// A key, found by the caller's MR.
pub(crate) struct Key<'a> {
    core: &'a Core,
    mr: &'a Claimed,
    pd: &'a Pd,
    region: Arc<Region>,
    max_entries: u32,
    /// The most pieces of a layout over keys.
    most_pieces: usize,
}

impl<'a> Key<'a> {
    /// Returns the key whose MR is `mr`.
    pub(crate) fn of(mr: &'a Mr, pd: &'a Pd) -> Result<Self> {
        let core = Core::of(mr.device()).map_err(|_| Refused::DEVICE)?;
        let mr = Claimed::of(mr).ok_or(Refused::NOT_A_KEY)?;
        let region: Arc<Region> = mr.object::<Region>().ok_or(Refused::NOT_A_KEY)?.into();
        let Kind::Key { max_entries, .. } = region.kind else {
            return Err(Refused::NOT_A_KEY);
        };
        Ok(Self {
            core,
            mr,
            pd,
            region,
            max_entries,
            most_pieces: MAX_PIECES,
        })
    }

    /// Limits the layouts to those that a worker of the driver may make.
    pub(crate) fn of_request(self) -> Self {
        Self {
            most_pieces: MAX_PIECES_OF_REQUEST,
            ..self
        }
    }

    /// Returns the core of the key's device.
    pub(crate) fn core(&self) -> &'a Core {
        self.core
    }

    /// Returns the key to its state after creation.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or a bound key refers to the key; `EINTR` as for
    /// [`Region::unbind`].
    pub(crate) fn unbind(&self) -> Result<(), Error> {
        let pins = &self.core.pins;
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
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Runs `look` on the binding, or on [`None`] if the key is unbound. Binds of the key wait
    /// meanwhile, so `look` must be short.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(Option<&Binding>) -> T) -> T {
        look(self.region.binding.get().as_deref())
    }
}

/// Makes an unbound key of up to `max_entries` entries, blocks or indices. If it is
/// deregistration of one of its leaves unbinds it.
pub(crate) fn create(core: &Core, pd: &Pd, max_entries: u32, revocable: bool) -> Result<OwnedMr> {
    if max_entries == 0 || max_entries > MAX_INDICES {
        return Err(Refused::MAX_ENTRIES.with(max_entries));
    }
    let (bytes, staged) = if pd.is_kernels() {
        (cost::KERNELS_KEY, Some(StagedLayouts::new()?))
    } else {
        (cost::REGION, None)
    };
    let charge = core.charge(pd, bytes)?;
    let (mr, ()) = OwnedMr::new(pd, 1, |new| Claimed::new(new).map(|_| ()))?;
    let kind = Kind::Key {
        max_entries,
        pins: core.pins.clone(),
        revocable,
        staged,
    };
    core.adopt(&mr, kind, charge)?;
    Ok(mr)
}

/// A description that has been checked completely.
pub(crate) struct Described<'a> {
    key: &'a Key<'a>,
    /// The binding; [`None`] after the bind.
    binding: Option<RcuUnique<Binding>>,
    /// The lkey and rkey that the key gets.
    rkey: Option<u32>,
    /// `true` if a request may name the unbound key by any key portion.
    any_portion: bool,
}

impl Described<'_> {
    /// Chooses `rkey` as the lkey and rkey that the bind gives the key. Only the low 8 bits may
    /// differ.
    pub(crate) fn choose(&mut self, rkey: u32) -> Result {
        if !mr_key::is_same_index(rkey, self.key.mr.rkey()) {
            return Err(Refused::RKEY.with(rkey));
        }
        self.rkey = Some(rkey);
        Ok(())
    }

    /// Allows peers to invalidate the binding even if it has no remote access flag.
    pub(crate) fn allow_remote_inv(&mut self) {
        if let Some(binding) = &mut self.binding {
            binding.allow_remote_inv();
        }
    }

    /// Lets the addresses of the key begin at `base`. The last address may be 2^64 - 1.
    pub(crate) fn begin_at(&mut self, base: u64) -> Result {
        if let Some(binding) = &mut self.binding {
            let last = binding.layout.length().wrapping_sub(1);
            base.checked_add(last).ok_or(Refused::BASE.with(base))?;
            binding.start = base;
        }
        Ok(())
    }

    /// Binds the key to the description. Fails while a memory window or another bound key refers
    /// to the key.
    pub(crate) fn bind(mut self) -> Result {
        let Key {
            core, mr, region, ..
        } = self.key;
        let (new, timeout) = (&mut self.binding, self.key.timeout());
        let bound = region.bind_as(&core.pins, mr, new, self.rkey, timeout);
        bound.map_err(|error| self.why(error.into()))?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    /// Returns `true` if a request may name the key by `rkey` now.
    pub(crate) fn is_named(&self, rkey: u32) -> bool {
        self.any_portion || self.key.mr.key() == rkey
    }

    /// Binds the key to the description in the order of a queue, for a work request that names it
    /// by the rkey `key`, or by its MR. The lkey and rkey become `new_key`.
    pub(crate) fn bind_from_queue(mut self, key: Option<u32>, new_key: u32) -> Result {
        let Key {
            core, mr, region, ..
        } = self.key;
        let mut queued = QueuedBind {
            key,
            any_portion: self.any_portion,
            new_key,
            timeout: Timeout::After(0),
        };
        let mut bound = region.bind_from_queue(&queued, &core.pins, mr, &mut self.binding);
        if bound == Err(EBUSY) {
            // Only a bind that waits counts as a worker that does.
            let worker = Worker::of(region.charge.waits());
            queued.timeout = worker.timeout;
            bound = region.bind_from_queue(&queued, &core.pins, mr, &mut self.binding);
        }
        bound.map_err(|error| match error {
            EINVAL => Refused::PORTION.with(key.unwrap_or(new_key)),
            _ => self.why(error.into()),
        })?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    fn change(&mut self, number: usize) -> Change<'_> {
        let Key { region, mr, .. } = self.key;
        Change {
            region,
            mr,
            number,
            new: &mut self.binding,
            key: self.rkey,
        }
    }

    /// Tells a circle from another reference to the key.
    fn why(&self, refused: Refused) -> Refused {
        let index = self.key.mr.index();
        match &self.binding {
            Some(binding) if refused == Refused::BUSY && reaches(binding, index) => Refused::CIRCLE,
            _ => refused,
        }
    }
}

/// Binds all keys of `all`, or none. All of them belong to one device.
pub(crate) fn bind_all(all: &mut [Described<'_>]) -> Result<(), RefusedChange> {
    let Some(first) = all.first() else {
        return Ok(());
    };
    let (pins, timeout) = (&first.key.core.pins, first.key.timeout());
    let count = all.len();
    let refused = |number, why| RefusedChange { number, why };
    let mut changes =
        KVVec::with_capacity(all.len(), GFP_MAYFAIL).map_err(|err| refused(0, err.into()))?;
    for (number, described) in all.iter_mut().enumerate() {
        changes
            .push(described.change(number), GFP_MAYFAIL)
            .map_err(|err| refused(number, err.into()))?;
    }
    let applied = apply(pins, &mut changes, timeout);
    drop(changes);
    applied.map_err(|RefusedChange { number, why }| {
        let described = all.get(number);
        refused(number, described.map_or(why, |one| one.why(why)))
    })?;
    counters::add(Count::Bind, count);
    Ok(())
}

/// Returns `true` if `binding` refers, at any level, to the MR at `index`. Visits each key once.
/// Sleeps, because a process can make very many keys.
///
/// Returns `false` if there is no memory for the list of visited keys.
fn reaches(binding: &Binding, index: u32) -> bool {
    let mut seen: RBTree<usize, ()> = RBTree::new();
    let mut levels: [slice::Iter<'_, Leaf>; MAX_DEPTH] = Default::default();
    let mut depth = 0usize;
    if let Some(level) = levels.first_mut() {
        *level = binding.leaves.iter();
    }
    while let Some(level) = levels.get_mut(depth) {
        let Some(leaf) = level.next() else {
            let Some(outer) = depth.checked_sub(1) else {
                return false;
            };
            depth = outer;
            continue;
        };
        if mr_key::index(leaf.lkey) == index {
            return true;
        }
        let LeafPlace::Key(inner) = &leaf.place else {
            continue;
        };
        let inner: &Binding = inner;
        let name = ptr::from_ref(inner) as usize;
        if seen.get(&name).is_some() {
            continue;
        }
        if seen.try_create_and_insert(name, (), GFP_MAYFAIL).is_err() {
            return false;
        }
        sched::cond_resched();
        depth = depth.saturating_add(1);
        if let Some(level) = levels.get_mut(depth) {
            *level = inner.leaves.iter();
        }
    }
    false
}
