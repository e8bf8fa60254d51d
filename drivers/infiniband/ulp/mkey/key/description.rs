// SPDX-License-Identifier: GPL-2.0

//! Descriptions that are being made, part by part.

use crate::{
    kernel_ext::{alloc::GFP_MAYFAIL, error::eloop, rdma::Access},
    key::{Described, Key},
    layout::{Block, Entry, List, Shape, MAX_DIMS},
    limits::{cost, owner::OwnerCharge},
    region::{
        binding::{self, Binding, KLayout, Leaf, Room, MAX_DEPTH, MAX_ENTRIES},
        rights::supported,
        state::PinnedFor,
    },
};
use kernel::{prelude::*, rbtree::RBTree};

impl Key<'_> {
    /// Checks the access flags `access`, and the number of entries, blocks or indices.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `count` is 0 or an access flag is not supported. `ENOSPC` if `count` exceeds the
    /// number that the key was created with.
    pub(crate) fn check(&self, count: u32, access: Access) -> Result {
        if count == 0 || !supported(access) {
            Err(EINVAL)
        } else if count > self.max_entries {
            Err(ENOSPC)
        } else {
            Ok(())
        }
    }

    /// Begins a description of `count` entries or blocks with the access flags `access`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if `count` exceeds [`MAX_ENTRIES`]; the errors of [`Self::check`]; `ENOMEM`.
    pub(crate) fn describe(&self, count: u32, access: Access) -> Result<Description<'_>> {
        if count > MAX_ENTRIES {
            return Err(ENOSPC);
        }
        self.describe_indexed(count, access)
    }

    /// Begins a description of blocks at `count` indices.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::check`]; `ENOMEM`.
    pub(crate) fn describe_indexed(&self, count: u32, access: Access) -> Result<Description<'_>> {
        self.check(count, access)?;
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
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    fn charge(&mut self, bytes: i64) -> Result {
        self.needed = self.needed.checked_add(bytes).ok_or(ENOMEM)?;
        self.charge.cover(self.needed)
    }

    /// Returns the number of the leaf that `lkey` names.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `lkey` names no MR in the key's protection domain, `EOPNOTSUPP` for an MR that
    /// cannot be a leaf, `ERANGE` for an MR without bytes, `ELOOP` for the key itself and for a key
    /// of [`MAX_DEPTH`] levels, `ENOMEM`.
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

    /// Returns the number of a leaf other than the last one. The errors are those of
    /// [`Self::leaf`].
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
            self.charge(cost::LEAF)?;
        }
        let key = self.key;
        let of = PinnedFor {
            holder: key.region.state.clone(),
            number: self.number,
        };
        let mut leaf = key.core().pin_leaf(lkey, key.pd, MAX_DEPTH - 1, Some(of))?;
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
    /// Returns the lkey, the address and the length. The upper 32 bits of the lkey must be zero.
    fn parts(&self) -> (u64, u64, u64);
}

/// Returns the lkey in `name`, the first value of [`Range::parts`].
///
/// # Errors
///
/// `EINVAL` if a bit above the lkey is set.
fn lkey(name: u64) -> Result<u32> {
    u32::try_from(name).map_err(|_| EINVAL)
}

/// A description of ranges, one after another.
pub(crate) struct Ranges<'a> {
    of: Description<'a>,
    entries: KVVec<Entry>,
}

impl<'a> Ranges<'a> {
    /// Adds ranges. Ignores ranges beyond the number that the description was begun with.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a range whose unused bits are not zero; the errors of [`Found::leaf`]; `ERANGE`
    /// before the first byte of a leaf; `ENOMEM`.
    pub(crate) fn add<R: Range>(&mut self, ranges: &[R]) -> Result {
        let room = self.of.count.saturating_sub(self.entries.len());
        for range in ranges.iter().take(room) {
            let (name, addr, length) = range.parts();
            let leaf = self.of.leaf(lkey(name)?)?;
            let addr = self.of.found.offset(leaf, addr)?;
            if self.entries.is_empty() {
                self.of.charge(cost::entries(self.of.count)?)?;
                self.entries = self.of.room.entries(self.of.count)?;
            }
            let entry = Entry::new(leaf, addr, length);
            self.entries.push_within_capacity(entry)?;
        }
        Ok(())
    }

    /// Returns the number of ranges that were added. After an error, this is the number of the
    /// range that was wrong.
    pub(crate) fn added(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Ends the description.
    ///
    /// # Errors
    ///
    /// The errors of [`crate::layout::Error`] and of [`Binding::new`].
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

    /// Returns the number of the leaf that `lkey` names. The errors are those of [`Found::leaf`].
    pub(super) fn leaf(&mut self, lkey: u32) -> Result<u32> {
        self.found.leaf(lkey)
    }

    /// Adds a block of the MR `lkey`. The errors are those of [`Found::leaf`]; `ERANGE` and
    /// `ENOMEM`.
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
        let (blocks, _) = match &mut self.blocks {
            Some(blocks) => blocks,
            None => {
                self.found.charge(cost::blocks(self.count)?)?;
                self.blocks.insert(self.room.blocks(self.count)?)
            }
        };
        Ok(blocks.push_within_capacity(block)?)
    }

    /// Ends a description of repeated blocks. The errors are those of [`Ranges::finish`].
    pub(crate) fn interleaved(mut self, repeat_count: &[u64]) -> Result<Described<'a>> {
        // No description is begun without blocks.
        let blocks = self.blocks.take().ok_or(EINVAL)?;
        self.finish(binding::interleaved(repeat_count, blocks)?)
    }

    /// Charges `bytes` bytes more for this description.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
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
            any_tag: false,
        })
    }
}
