// SPDX-License-Identifier: GPL-2.0

//! Descriptions that are being made, part by part.

use crate::{
    errors::{Refused, Result},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr::Right, Access},
    },
    key::{Described, Key},
    layout::{Block, Entry, List, Shape, MAX_DIMS},
    limits::{cost, owner::OwnerCharge},
    region::{
        binding::{self, Binding, KLayout, Leaf, Room, MAX_DEPTH, MAX_ENTRIES},
        rights::supported,
        state::PinnedFor,
    },
};
use kernel::{ffi::c_int, prelude::*, rbtree::RBTree};

impl Key<'_> {
    /// Checks access flags that a caller gives.
    pub(crate) fn access(&self, access: u32) -> Result<Access> {
        let checked = Access::checked(self.mr().device(), access as c_int);
        checked.map_err(|error| {
            let remote = Right::RemoteWrite | Right::RemoteAtomic;
            let given = Access::from_raw(access);
            let why = if error != EINVAL {
                Refused::DEVICE_ACCESS
            } else if given.contains_any(remote) && !given.contains(Right::LocalWrite) {
                Refused::LOCAL_WRITE
            } else {
                Refused::ACCESS
            };
            why.with(access)
        })
    }

    /// Begins a description of `count` entries or blocks with the access flags `access`.
    pub(crate) fn describe(&self, count: u32, access: Access) -> Result<Description<'_>> {
        if count > MAX_ENTRIES {
            return Err(Refused::TOO_MANY.with(MAX_ENTRIES));
        }
        self.describe_indexed(count, access)
    }

    /// Begins a description of blocks at `count` indices.
    pub(crate) fn describe_indexed(&self, count: u32, access: Access) -> Result<Description<'_>> {
        if count == 0 {
            return Err(Refused::EMPTY);
        }
        if !supported(access) {
            return Err(Refused::ACCESS.with(access.into_raw()));
        }
        if count > self.max_entries {
            return Err(Refused::TOO_MANY.with(self.max_entries));
        }
        let mut room = self.region.take_room();
        let charge = match room.charge() {
            Some(charge) => charge,
            None => self.region.charge.beside(cost::BINDING)?,
        };
        Ok(Description {
            access,
            found: Found {
                key: self,
                number: self.region.state.next_number(),
                charge,
                needed: cost::BINDING,
                leaves: room.leaves(),
                last: None,
                by_lkey: RBTree::new(),
            },
            count: count as usize,
            blocks: None,
            room,
        })
    }
}

/// The leaves of a description that is being made.
pub(super) struct Found<'a> {
    key: &'a Key<'a>,
    /// The number of the binding.
    number: u64,
    /// The charge to the owner of the key, of at least `needed` bytes.
    charge: OwnerCharge,
    /// The bytes that the binding takes.
    needed: i64,
    pub(super) leaves: KVVec<Leaf>,
    /// The lkey that was named last, and the number of its leaf.
    last: Option<(u32, u32)>,
    /// All leaves but the first.
    by_lkey: RBTree<u32, u32>,
}

impl Found<'_> {
    /// Charges `bytes` bytes more for the description, unless the charge of the room covers them.
    fn charge(&mut self, bytes: i64) -> Result {
        self.needed = self.needed.checked_add(bytes).ok_or(Refused::MEMORY)?;
        Ok(self.charge.cover(self.needed)?)
    }

    /// Returns the number of the leaf that `lkey` names.
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

    /// Returns the number of the leaf that `lkey` names, and the address in its layout for the
    /// address `addr` of the caller.
    pub(super) fn place(&mut self, lkey: u32, addr: u64) -> Result<(u32, u64)> {
        let leaf = self.leaf(lkey)?;
        Ok((leaf, self.offset(leaf, addr)?))
    }

    /// Returns the number of a leaf other than the last one.
    fn other_leaf(&mut self, lkey: u32) -> Result<u32> {
        if self.leaves.first().is_some_and(|leaf| leaf.lkey == lkey) {
            return Ok(0);
        }
        if let Some(index) = self.by_lkey.get(&lkey) {
            return Ok(*index);
        }
        let index = u32::try_from(self.leaves.len())?;
        if lkey == self.key.mr.lkey() {
            return Err(Refused::ITSELF.with(lkey));
        }
        if index > 0 {
            self.charge(cost::LEAF)?;
        }
        let key = self.key;
        let of = PinnedFor {
            holder: key.region.state.clone(),
            number: self.number,
        };
        let pinned = key.core().pin_leaf(lkey, key.pd, MAX_DEPTH - 1, Some(of));
        let mut leaf = pinned.map_err(|error| Refused::of_leaf(error, lkey))?;
        key.count_registered(&mut leaf)?;
        self.leaves.push(leaf, GFP_MAYFAIL)?;
        if index > 0 {
            self.by_lkey
                .try_create_and_insert(lkey, index, GFP_MAYFAIL)?;
        }
        Ok(index)
    }
}

/// A description that is being made, part by part.
pub(crate) struct Description<'a> {
    pub(super) found: Found<'a>,
    access: Access,
    count: usize,
    /// The blocks with the memory of their shape; [`None`] before the first one.
    blocks: Option<(KVVec<Block>, KBox<Shape>)>,
    /// The memory that the key keeps, without the parts that were taken out.
    room: Room,
}

/// A range, as a caller describes it.
pub(crate) trait Range {
    /// Returns the lkey, the address and the length.
    fn parts(&self) -> Result<(u32, u64, u64)>;
}

/// A description of ranges, one after another.
pub(crate) struct Ranges<'a> {
    of: Description<'a>,
    entries: KVVec<Entry>,
}

impl<'a> Ranges<'a> {
    /// Adds ranges. Ignores ranges beyond the number that the description was begun with.
    pub(crate) fn add<R: Range>(&mut self, ranges: &[R]) -> Result {
        let room = self.of.count.saturating_sub(self.entries.len());
        for range in ranges.iter().take(room) {
            // CAST: A description has fewer than 2^32 entries.
            let number = self.entries.len() as u32;
            let (lkey, addr, length) = range.parts().map_err(|why| why.at(number))?;
            let place = self.of.found.place(lkey, addr);
            let (leaf, addr) = place.map_err(|why| why.at(number))?;
            if self.entries.is_empty() {
                self.of.charge(cost::entries(self.of.count)?)?;
                self.entries = self.of.room.entries(self.of.count)?;
            }
            let entry = Entry::new(leaf, addr, length);
            self.entries.push_within_capacity(entry)?;
        }
        Ok(())
    }

    /// Ends the description.
    pub(crate) fn finish(self) -> Result<Described<'a>> {
        // `List::new()` refuses an empty list.
        self.of.finish(KLayout::List(List::new(self.entries)?))
    }
}

impl<'a> Description<'a> {
    /// Begins the ranges of the description.
    pub(crate) fn ranges(self) -> Ranges<'a> {
        Ranges {
            of: self,
            entries: KVVec::new(),
        }
    }

    /// Returns the number of blocks that were added.
    pub(super) fn added(&self) -> u32 {
        let added = self.blocks.as_ref().map_or(0, |(blocks, _)| blocks.len());
        // CAST: A description has fewer than 2^32 blocks.
        added as u32
    }

    /// Adds a block of the MR `lkey`.
    pub(crate) fn block(
        &mut self,
        lkey: u32,
        addr: u64,
        bytes_count: u64,
        stride: [i64; MAX_DIMS],
    ) -> Result {
        let place = self.found.place(lkey, addr);
        let (leaf, addr) = place.map_err(|why| why.at(self.added()))?;
        let block = Block::new(leaf, addr, bytes_count, stride);
        let (blocks, _) = match &mut self.blocks {
            Some(blocks) => blocks,
            None => {
                self.found.charge(cost::blocks(self.count)?)?;
                self.blocks.insert(self.room.blocks(self.count)?)
            }
        };
        Ok(blocks.push_within_capacity(block)?)
    }

    /// Ends a description of repeated blocks.
    pub(crate) fn interleaved(mut self, repeat_count: &[u64]) -> Result<Described<'a>> {
        // No description is begun without blocks.
        let blocks = self.blocks.take().ok_or(Refused::EMPTY)?;
        self.finish(binding::interleaved(repeat_count, blocks)?)
    }

    /// Charges `bytes` bytes more for this description.
    pub(super) fn charge(&mut self, bytes: i64) -> Result {
        self.found.charge(bytes)
    }

    pub(super) fn finish(mut self, layout: KLayout) -> Result<Described<'a>> {
        self.found.begin_at_zero();
        let Found {
            key,
            number,
            charge,
            leaves,
            ..
        } = self.found;
        let mut binding = Binding::new(
            layout,
            leaves,
            self.access,
            key.pd,
            Some(charge),
            None,
            key.most_pieces,
        )?;
        binding.number = number;
        Ok(Described {
            key,
            binding: Some(self.room.fill(binding)?),
            rkey: None,
            any_portion: false,
        })
    }
}
