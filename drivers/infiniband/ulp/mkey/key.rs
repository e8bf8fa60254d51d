// SPDX-License-Identifier: GPL-2.0

//! Indirect keys: a caller's description becomes a binding.
//!
//! A description is checked completely before anything changes. Each lkey in it is looked up and
//! pinned once.

pub(crate) mod indexed;
mod leaf;
pub(crate) mod nest;
mod registered;
pub(crate) mod request;
mod stage;
pub(crate) mod uapi;

use crate::{
    backend::Backend,
    counters::{self, Count},
    kernel_ext::{
        alloc::{zeroable, zeroed, GFP_MAYFAIL},
        error::eloop,
        rdma::{Access, Device, Mr, OwnedMr, Pd},
        sync::{srcu, users::Patience},
    },
    layout::{Block, Entry, List, Listing, MAX_DIMS},
    limits::{cost, owner::OwnerCharge},
    mkey_core::Core,
    region::{
        binding::{self, Binding, KLayout, Leaf, MAX_DEPTH, MAX_ENTRIES},
        indices::MAX_INDICES,
        rebind::{apply, Change, Refused, Turn},
        rights::{supported, Origin},
        staged::StagedLayouts,
        tag, Kind, Region,
    },
};
use core::mem;
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// A key, found by the caller's MR.
pub(crate) struct Key<'a> {
    core: &'a Core,
    ibdev: &'a Device,
    mr: &'a Mr,
    pd: &'a Pd,
    region: Arc<Region>,
    max_entries: u32,
}

impl<'a> Key<'a> {
    /// Returns the key whose MR is `mr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `mr` is not a key.
    pub(crate) fn of(core: &'a Core, mr: &'a Mr, pd: &'a Pd) -> Result<Self> {
        let region = core.region_of(mr).ok_or(EINVAL)?;
        let Kind::Key { max_entries, .. } = region.kind else {
            return Err(EINVAL);
        };
        Ok(Self {
            core,
            ibdev: mr.device(),
            mr,
            pd,
            region,
            max_entries,
        })
    }

    /// Begins a description of `count` entries or blocks with the access flags `access`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `count` is 0 or an access flag is not supported. `ENOSPC` if `count` exceeds
    /// [`MAX_ENTRIES`] or the number that the key was created with.
    pub(crate) fn describe(&self, count: u32, access: Access) -> Result<Description<'_>> {
        if count > MAX_ENTRIES {
            return Err(ENOSPC);
        }
        self.describe_indexed(count, access)
    }

    /// Begins a description of blocks at `count` indices. As for [`Self::describe`], but the number
    /// that the key was created with is the only limit.
    pub(crate) fn describe_indexed(&self, count: u32, access: Access) -> Result<Description<'_>> {
        if count == 0 {
            return Err(EINVAL);
        }
        if !supported(access) {
            return Err(EINVAL);
        }
        if count > self.max_entries {
            return Err(ENOSPC);
        }
        Ok(Description {
            access,
            found: Found {
                key: self,
                charge: self.region.charge.beside(cost::BINDING)?,
                leaves: KVVec::new(),
                last: None,
                by_lkey: RBTree::new(),
            },
            count: count as usize,
            list: None,
            blocks: KVVec::new(),
        })
    }

    /// Returns the key to its state after creation.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or a bound key refers to the key; `EINTR` as for
    /// [`Region::unbind`].
    pub(crate) fn unbind(&self) -> Result {
        let (pins, hw) = (&self.core.pins, &self.core.hw);
        self.region
            .unbind(pins, hw, self.mr, Origin::Call, None, self.patience())?;
        if let Ok(staged) = self.staged() {
            staged.clear();
        }
        counters::add(Count::Unbind, 1);
        Ok(())
    }

    /// Returns how long a rebind waits for accesses to the old binding. Kernel users free the
    /// memory when the call returns, so a kill does not end their wait.
    fn patience(&self) -> Patience {
        if self.pd.is_kernels() {
            Patience::Endless
        } else {
            Patience::Killable
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

    /// Runs `look` on the binding, or on [`None`] if the key is not bound. Binds wait meanwhile, so
    /// `look` must not sleep.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(Option<&Binding>) -> T) -> T {
        let guard = srcu::read();
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
    let mr = OwnedMr::new(pd, 1)?;
    core.hw.claim(&mr);
    let old = core.old.clone();
    let kind = Kind::Key {
        max_entries,
        old,
        yields,
        staged,
    };
    core.adopt(&mr, kind, charge)?;
    Ok(mr)
}

/// The leaves of a description that is being made.
struct Found<'a> {
    key: &'a Key<'a>,
    /// The charge to the owner of the key.
    charge: OwnerCharge,
    leaves: KVVec<Leaf>,
    /// The lkey that was named last, and the number of its leaf.
    last: Option<(u32, u32)>,
    /// All leaves but the first.
    by_lkey: RBTree<u32, u32>,
}

impl Found<'_> {
    /// Returns the number of the leaf that `lkey` names.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `lkey` names no MR in the key's protection domain, `EOPNOTSUPP` for an MR that
    /// cannot be a leaf, `ERANGE` for an MR without bytes, `ELOOP` for the key itself and for a key
    /// of [`MAX_DEPTH`] levels, `ENOMEM`.
    #[inline]
    fn leaf(&mut self, lkey: u32) -> Result<u32> {
        match self.last {
            Some((last, index)) if last == lkey => Ok(index),
            _ => {
                let index = self.other_leaf(lkey)?;
                self.last = Some((lkey, index));
                Ok(index)
            }
        }
    }

    /// Returns the number of a leaf other than the last one. As for [`Self::leaf`].
    #[inline(never)]
    fn other_leaf(&mut self, lkey: u32) -> Result<u32> {
        if self.leaves.first().is_some_and(|leaf| leaf.lkey == lkey) {
            return Ok(0);
        }
        if let Some(index) = self.by_lkey.get(&lkey) {
            return Ok(*index);
        }
        let index = u32::try_from(self.leaves.len())?;
        if lkey == self.key.mr.lkey() {
            return Err(eloop());
        }
        if index > 0 {
            self.charge.grow(cost::LEAF)?;
        }
        let key = self.key;
        let mut leaf = key.core.pin_leaf(key.ibdev, lkey, key.pd, MAX_DEPTH - 1)?;
        key.count_registered(&mut leaf)?;
        self.leaves.push(leaf, GFP_MAYFAIL)?;
        if index > 0 {
            self.by_lkey
                .try_create_and_insert(lkey, index, GFP_MAYFAIL)?;
        }
        Ok(index)
    }
}

zeroable!(Entry);

/// A description that is being made, part by part.
pub(crate) struct Description<'a> {
    found: Found<'a>,
    access: Access,
    count: usize,
    /// The ranges; [`None`] before the first one.
    list: Option<Listing<KVVec<Entry>>>,
    blocks: KVVec<Block>,
}

/// A range, as a caller describes it.
pub(crate) trait Range {
    /// Returns the lkey with what must be zero above it, the address and the length.
    fn parts(&self) -> (u64, u64, u64);
}

/// Returns the lkey in the first of [`Range::parts`].
///
/// # Errors
///
/// `EINVAL` if a bit above the lkey is set.
fn lkey(name: u64) -> Result<u32> {
    u32::try_from(name).map_err(|_| EINVAL)
}

impl<'a> Description<'a> {
    /// Adds ranges. Those beyond the number of the description are ignored.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a range whose unused bits are not zero; those of [`Found::leaf`]; `ENOMEM`.
    #[inline(always)]
    pub(crate) fn ranges<R: Range>(&mut self, ranges: &[R]) -> Result {
        if self.list.is_none() {
            if let Some(first) = ranges.first() {
                self.first_range(first.parts().0)?;
            }
        }
        let Some(list) = &mut self.list else {
            return Ok(());
        };
        let found = &mut self.found;
        list.add(ranges, R::parts, |name| found.leaf(lkey(name)?))
    }

    /// Returns the number of ranges that were added. After an error, this is the number of the range
    /// that was wrong.
    pub(crate) fn added(&self) -> u32 {
        self.list.as_ref().map_or(0, |list| list.added() as u32)
    }

    /// Makes room for all ranges, the first of which is of the leaf `name`.
    #[inline(never)]
    fn first_range(&mut self, name: u64) -> Result {
        self.found.leaf(lkey(name)?)?;
        self.charge(cost::entries(self.count)?)?;
        self.list = Some(Listing::new(zeroed(self.count)?));
        Ok(())
    }

    /// Returns the number of the leaf that `lkey` names. As for [`Found::leaf`].
    fn leaf(&mut self, lkey: u32) -> Result<u32> {
        self.found.leaf(lkey)
    }

    /// Adds a block of the MR `lkey`. As for [`Found::leaf`].
    pub(crate) fn block(
        &mut self,
        lkey: u32,
        addr: u64,
        bytes_count: u64,
        stride: [i64; MAX_DIMS],
    ) -> Result {
        let leaf = self.leaf(lkey)?;
        let addr = self.found.offset(leaf, addr)?;
        let block = Block::new(leaf, addr, bytes_count, stride);
        if self.blocks.is_empty() {
            self.charge(cost::blocks(self.count)?)?;
            self.blocks.reserve(self.count, GFP_MAYFAIL)?;
        }
        Ok(self.blocks.push_within_capacity(block)?)
    }

    /// Ends a description of ranges, one after another.
    ///
    /// # Errors
    ///
    /// Those of [`crate::layout::Error`]; `ERANGE`, `EACCES` and `ELOOP` as for [`Binding::new`].
    #[inline(always)]
    pub(crate) fn list(mut self) -> Result<Described<'a>> {
        // Without ranges the list is empty, which is an error.
        let list = match self.list.take() {
            Some(list) => self.found.offsets(list.list()?)?,
            None => List::new(KVVec::new())?,
        };
        self.finish(KLayout::List(list))
    }

    /// Ends a description of repeated blocks. As for [`Self::list`].
    #[inline(always)]
    pub(crate) fn interleaved(mut self, repeat_count: &[u64]) -> Result<Described<'a>> {
        let blocks = mem::take(&mut self.blocks);
        self.finish(binding::interleaved(repeat_count, blocks)?)
    }

    /// Charges `bytes` bytes more for this description.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    pub(crate) fn charge(&mut self, bytes: i64) -> Result {
        self.found.charge.grow(bytes)
    }

    #[inline(always)]
    fn finish(mut self, layout: KLayout) -> Result<Described<'a>> {
        self.found.begin_at_zero();
        let Found {
            key,
            charge,
            leaves,
            ..
        } = self.found;
        let binding = Binding::new(layout, leaves, self.access, key.pd, Some(charge), None)?;
        Ok(Described {
            key,
            binding,
            rkey: None,
            any_tag: false,
        })
    }
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
    /// Makes `rkey` the lkey and rkey of the key, with the bind.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more than the low 8 bits differ.
    pub(crate) fn choose(&mut self, rkey: u32) -> Result {
        if !tag::same_mr(rkey, self.key.mr.rkey()) {
            return Err(EINVAL);
        }
        self.rkey = Some(rkey);
        Ok(())
    }

    /// Lets peers invalidate the binding even if it has no remote access flag.
    pub(crate) fn let_peers_end(&self) {
        self.binding.let_peers_end();
    }

    /// Binds the key to the description.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a memory window or another bound key refers to the key, `ELOOP` if the key
    /// would refer to itself.
    pub(crate) fn bind(self) -> Result {
        let mut change = [self.change(0)];
        let (core, patience) = (self.key.core, self.key.patience());
        apply(&core.pins, &core.hw, &mut change, patience)
            .map_err(|refused| self.why(refused.error))?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    /// Returns `true` if a request may name the key by `rkey` now.
    pub(crate) fn is_named(&self, rkey: u32) -> bool {
        self.any_tag || self.key.core.hw.key(self.key.mr) == rkey
    }

    /// Binds the key to the description in the order of a queue, for a work request that names it
    /// by the rkey `key`, or by its MR. The lkey and rkey become `new_key`.
    ///
    /// # Errors
    ///
    /// As for [`Self::bind`], and those of [`Region::bind_in_turn`].
    pub(crate) fn bind_in_turn(
        &self,
        key: Option<u32>,
        new_key: u32,
        patience: Patience,
    ) -> Result {
        let Key {
            core, mr, region, ..
        } = self.key;
        let turn = Turn {
            old: &core.old,
            key,
            any_tag: self.any_tag,
            new_key,
            patience,
        };
        let bound = region.bind_in_turn(&turn, &core.pins, &core.hw, mr, &self.binding);
        bound.map_err(|error| self.why(error))?;
        counters::add(Count::Bind, 1);
        Ok(())
    }

    fn change(&self, number: usize) -> Change<'_> {
        let Key { region, mr, .. } = self.key;
        let mut change = Change::new(region, mr, number, self.binding.clone());
        change.key = self.rkey;
        change
    }

    fn why(&self, error: Error) -> Error {
        // If a key refers to this one, the two may form a circle.
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
    let (core, patience) = (first.key.core, first.key.patience());
    apply(&core.pins, &core.hw, &mut changes, patience).map_err(|Refused { number, error }| {
        let why = all.get(number).map(|described| described.why(error));
        refused(number, why.unwrap_or(error))
    })?;
    counters::add(Count::Bind, all.len());
    Ok(())
}
