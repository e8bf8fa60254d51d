// SPDX-License-Identifier: GPL-2.0

//! Descriptions that are being made, part by part, and their entries in the structures of the uAPI,
//! for an ioctl (`api/uverbs.rs`) and for a work request (`key/request.rs`).

use crate::{
    bindings::{
        ib_uverbs_mkey_block as UapiBlock,
        ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_sge as UapiSge, //
    },
    errors::{Refused, Result},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr::Right, Access},
        sync::rcu_arc::RcuUnique,
    },
    key::{Described, Key},
    layout::{Block, Entry, List, Shape, MAX_DIMS},
    limits::cost,
    region::{
        binding::{self, Binding, KLayout, MAX_DEPTH, MAX_ENTRIES},
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
        let mut binding = match self.region.take_room() {
            Some(kept) => kept,
            None => Binding::empty(self.region.charge.beside(cost::BINDING)?)?,
        };
        binding.number = self.region.state.next_number();
        Ok(Description {
            access,
            found: Found {
                key: self,
                binding,
                needed: cost::BINDING,
                last: None,
                by_lkey: RBTree::new(),
            },
            count: count as usize,
            entries: None,
            blocks: None,
        })
    }
}

/// The leaves of a description that is being made.
pub(super) struct Found<'a> {
    key: &'a Key<'a>,
    /// The binding, with its number, leaves, and charge.
    binding: RcuUnique<Binding>,
    /// The bytes that the binding takes. The charge is at least as much.
    needed: i64,
    /// The lkey that was named last, and the number of its leaf.
    last: Option<(u32, u32)>,
    /// All leaves but the first.
    by_lkey: RBTree<u32, u32>,
}

impl Found<'_> {
    /// Charges `bytes` bytes more for the description, unless the charge of the room covers them.
    fn charge(&mut self, bytes: i64) -> Result {
        self.needed = self.needed.checked_add(bytes).ok_or(Refused::MEMORY)?;
        Ok(self.binding.cover(self.needed)?)
    }

    /// Returns the number of the leaf that `lkey` names.
    pub(super) fn leaf(&mut self, lkey: u32) -> Result<u32> {
        match self.last {
            Some((last, index)) if last == lkey => Ok(index),
            _ => {
                let index = self.other_leaf(lkey)?;
                self.last = Some((lkey, index));
                Ok(index)
            }
        }
    }

    /// Returns the number of a leaf other than the last one.
    #[inline(never)]
    fn other_leaf(&mut self, lkey: u32) -> Result<u32> {
        let leaves = &self.binding.leaves;
        if leaves.first().is_some_and(|leaf| leaf.lkey == lkey) {
            return Ok(0);
        }
        if let Some(index) = self.by_lkey.get(&lkey) {
            return Ok(*index);
        }
        let index = u32::try_from(leaves.len())?;
        if lkey == self.key.mr.lkey() {
            return Err(Refused::ITSELF.with(lkey));
        }
        if index > 0 {
            self.charge(cost::LEAF)?;
        }
        let key = self.key;
        let of = PinnedFor {
            holder: key.region.state.clone(),
            number: self.binding.number,
        };
        let pinned = key.core().pin_leaf(lkey, key.pd, MAX_DEPTH - 1, Some(of));
        let mut leaf = pinned.map_err(|error| Refused::of_leaf(error, lkey))?;
        key.count_registered(&mut leaf)?;
        self.binding.leaves.push(leaf, GFP_MAYFAIL)?;
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
    /// The entries of a list; [`None`] before the first one.
    entries: Option<KVVec<Entry>>,
    /// The blocks with the memory of their shape; [`None`] before the first one.
    blocks: Option<(KVVec<Block>, KBox<Shape>)>,
}

/// A range, as a caller describes it.
pub(crate) trait Range {
    /// Returns the lkey, the address and the length.
    fn parts(&self) -> Result<(u32, u64, u64)>;
}

impl<'a> Description<'a> {
    /// Adds ranges. Ignores ranges beyond the number that the description was begun with.
    pub(crate) fn ranges<R: Range>(&mut self, ranges: &[R]) -> Result {
        let entries = match &mut self.entries {
            Some(entries) => entries,
            None => {
                self.found.charge(cost::entries(self.count)?)?;
                self.entries.insert(self.found.binding.entries(self.count)?)
            }
        };
        let left = self.count.saturating_sub(entries.len());
        for range in ranges.get(..left).unwrap_or(ranges) {
            // CAST: A description has fewer than 2^32 entries.
            let number = entries.len() as u32;
            let (lkey, addr, length) = range.parts().map_err(|why| why.at(number))?;
            let leaf = self.found.leaf(lkey).map_err(|why| why.at(number))?;
            entries.push_within_capacity(Entry::new(leaf, addr, length))?;
        }
        Ok(())
    }

    /// Ends a description of ranges, one after another.
    pub(crate) fn list(mut self) -> Result<Described<'a>> {
        // No description is begun without entries.
        let entries = self.entries.take().ok_or(Refused::EMPTY)?;
        self.finish(KLayout::List(List::new(entries)?))
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
        let leaf = self.found.leaf(lkey);
        let leaf = leaf.map_err(|why| why.at(self.added()))?;
        let block = Block::new(leaf, addr, bytes_count, stride);
        let (blocks, _) = match &mut self.blocks {
            Some(blocks) => blocks,
            None => {
                self.found.charge(cost::blocks(self.count)?)?;
                self.blocks.insert(self.found.binding.blocks(self.count)?)
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

    pub(super) fn finish(self, layout: KLayout) -> Result<Described<'a>> {
        let Found {
            key, mut binding, ..
        } = self.found;
        binding.layout = layout;
        binding.complete(self.access, key.pd, key.most_pieces)?;
        Ok(Described {
            key,
            binding: Some(binding),
            rkey: None,
            any_portion: false,
        })
    }
}

impl Range for UapiSge {
    fn parts(&self) -> Result<(u32, u64, u64)> {
        match self.comp_mask {
            0 => Ok((self.lkey, self.addr, self.length)),
            mask => Err(Refused::COMP_MASK.with(mask)),
        }
    }
}

/// Checks the kind of a layout, the size of its entries, and that only an interleaved layout has
/// dimensions.
pub(crate) fn check_kind(kind: u32, entry_size: u32, num_dims: u32) -> Result {
    let size = match kind {
        KIND_LIST => size_of::<UapiSge>(),
        KIND_INTERLEAVED => size_of::<UapiBlock>(),
        KIND_INDEXED => size_of::<UapiIndexed>(),
        _ => return Err(Refused::KIND.with(kind)),
    };
    if entry_size as usize != size {
        return Err(Refused::ENTRY_SIZE.with(entry_size));
    }
    if kind != KIND_INTERLEAVED && num_dims != 0 {
        return Err(Refused::NOT_INTERLEAVED);
    }
    Ok(())
}

/// Returns the part of `buffer` that holds the repeat counts of `num_dims` dimensions.
pub(crate) fn counts(buffer: &mut [u64; MAX_DIMS], num_dims: u32) -> Result<&mut [u64]> {
    let counts = buffer.get_mut(..num_dims as usize);
    let counts = counts.filter(|counts| !counts.is_empty());
    counts.ok_or(Refused::DIMS.with(num_dims))
}

impl Description<'_> {
    /// Adds a block of a layout of `dims` dimensions.
    pub(crate) fn uapi_block(&mut self, block: &UapiBlock, dims: usize) -> Result {
        if block.comp_mask != 0 {
            return Err(Refused::COMP_MASK.with(block.comp_mask).at(self.added()));
        }
        let mut strides = block.stride.iter().enumerate().skip(dims);
        if let Some((dim, _)) = strides.find(|(_, stride)| **stride != 0) {
            return Err(Refused::STRIDE.with(dim as u64).at(self.added()));
        }
        self.block(block.lkey, block.addr, block.bytes_count, block.stride)
    }
}
