// SPDX-License-Identifier: GPL-2.0

//! Indirect keys: a caller's description becomes a binding.
//!
//! A description is checked completely before anything changes. Each lkey in it is looked up and
//! pinned once.

pub(crate) mod indexed;
mod leaf;
mod nest;

use crate::{
    backend::Backend,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::eloop,
        rdma::{Access, Device, Mr, OwnedMr, Pd},
        sync::{srcu, users::Patience},
    },
    layout::{Block, Entry, List, MAX_DIMS},
    limits::{cost, owner::OwnerCharge},
    mkey_core::Core,
    region::{
        binding::{self, Binding, KLayout, Leaf, MAX_DEPTH, MAX_ENTRIES},
        indices::MAX_INDICES,
        rebind::{apply, Change, Refused},
        rights::{supported, Origin},
        Kind, Region,
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
        let Kind::Key { max_entries } = region.kind else {
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
            key: self,
            access,
            charge: self.region.charge.beside(cost::BINDING)?,
            leaves: KVVec::new(),
            last: None,
            by_lkey: RBTree::new(),
            count: count as usize,
            entries: KVVec::new(),
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
            .unbind(pins, hw, self.mr, Origin::Local, self.patience())
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

    /// Runs `look` on the binding, or on [`None`] if the key is not bound. Binds wait meanwhile, so
    /// `look` must not sleep.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(Option<&Binding>) -> T) -> T {
        let guard = srcu::read();
        look(self.region.binding.get(&guard).as_deref())
    }
}

/// Makes an unbound key of up to `max_entries` entries, blocks or indices.
///
/// # Errors
///
/// `EINVAL` if `max_entries` is 0 or exceeds [`MAX_INDICES`]; `ENOMEM`.
pub(crate) fn create(core: &Core, pd: &Pd, max_entries: u32) -> Result<OwnedMr> {
    if max_entries == 0 || max_entries > MAX_INDICES {
        return Err(EINVAL);
    }
    let charge = core.charge(pd, cost::REGION)?;
    let mr = OwnedMr::new(pd, 1)?;
    core.hw.claim(&mr);
    core.adopt(&mr, Kind::Key { max_entries }, charge)?;
    Ok(mr)
}

/// A description that is being made, entry by entry.
pub(crate) struct Description<'a> {
    key: &'a Key<'a>,
    access: Access,
    /// The charge to the owner of the key.
    charge: OwnerCharge,
    leaves: KVVec<Leaf>,
    /// The lkey that was named last, and the number of its leaf.
    last: Option<(u32, u32)>,
    /// All leaves but the first.
    by_lkey: RBTree<u32, u32>,
    count: usize,
    entries: KVVec<Entry>,
    blocks: KVVec<Block>,
}

impl<'a> Description<'a> {
    /// Returns the number of the leaf that `lkey` names.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `lkey` names no MR in the key's protection domain, `EOPNOTSUPP` for an MR that
    /// cannot be a leaf, `ERANGE` for an MR without bytes, `ELOOP` for the key itself and for a key
    /// of [`MAX_DEPTH`] levels, `ENOMEM`.
    #[inline(always)]
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
        let leaf = key.core.pin_leaf(key.ibdev, lkey, key.pd, MAX_DEPTH - 1)?;
        self.leaves.push(leaf, GFP_MAYFAIL)?;
        if index > 0 {
            self.by_lkey
                .try_create_and_insert(lkey, index, GFP_MAYFAIL)?;
        }
        Ok(index)
    }

    /// Adds a range of the MR `lkey`. As for [`Self::leaf`].
    #[inline(always)]
    pub(crate) fn range(&mut self, lkey: u32, addr: u64, length: u64) -> Result {
        let entry = Entry::new(self.leaf(lkey)?, addr, length);
        if self.entries.push_within_capacity(entry).is_err() {
            self.first_range(entry)?;
        }
        Ok(())
    }

    /// Adds the first range.
    #[inline(never)]
    fn first_range(&mut self, entry: Entry) -> Result {
        self.charge.grow(cost::entries(self.count)?)?;
        self.entries.reserve(self.count, GFP_MAYFAIL)?;
        Ok(self.entries.push_within_capacity(entry)?)
    }

    /// Adds a block of the MR `lkey`. As for [`Self::leaf`].
    pub(crate) fn block(
        &mut self,
        lkey: u32,
        addr: u64,
        bytes_count: u64,
        stride: [i64; MAX_DIMS],
    ) -> Result {
        let block = Block::new(self.leaf(lkey)?, addr, bytes_count, stride);
        if self.blocks.is_empty() {
            self.charge.grow(cost::blocks(self.count)?)?;
            self.blocks.reserve(self.count, GFP_MAYFAIL)?;
        }
        Ok(self.blocks.push_within_capacity(block)?)
    }

    /// Ends a description of ranges, one after another.
    ///
    /// # Errors
    ///
    /// Those of [`crate::layout::Error`]; `ERANGE`, `EACCES` and `ELOOP` as for [`Binding::new`].
    pub(crate) fn list(mut self) -> Result<Described<'a>> {
        let entries = mem::take(&mut self.entries);
        self.finish(KLayout::List(List::new(entries)?))
    }

    /// Ends a description of repeated blocks. As for [`Self::list`].
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
        self.charge.grow(bytes)
    }

    fn finish(self, layout: KLayout) -> Result<Described<'a>> {
        let key = self.key;
        let binding = Binding::new(
            layout,
            self.leaves,
            self.access,
            key.pd,
            Some(self.charge),
            None,
        )?;
        Ok(Described { key, binding })
    }
}

/// A description that has been checked completely.
pub(crate) struct Described<'a> {
    key: &'a Key<'a>,
    binding: Arc<Binding>,
}

impl Described<'_> {
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
            .map_err(|refused| self.why(refused.error))
    }

    fn change(&self, number: usize) -> Change<'_> {
        Change::new(&self.key.region, self.key.mr, number, self.binding.clone())
    }

    fn why(&self, error: Error) -> Error {
        // If a key refers to this one, the two may form a circle.
        if error == EBUSY && nest::reaches(&self.binding, self.key.mr.lkey()) {
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
    })
}
