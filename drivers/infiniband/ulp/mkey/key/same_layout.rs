// SPDX-License-Identifier: GPL-2.0

//! Comparison of a description with the layout of an earlier binding of the key.
//!
//! A program that binds a key for each message often describes the same blocks in another buffer.
//! Only the lkey and the address of the description then differ from the earlier layout. The
//! other fields were checked when that layout was made, and need no second check.

use crate::{
    bindings::{
        ib_uverbs_mkey_block as UapiBlock,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST, ib_uverbs_mkey_layout as UapiLayout,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_ANY_TAG as ANY_TAG,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_REMOTE_INV as REMOTE_INV,
        ib_uverbs_mkey_sge as UapiSge,
    },
    kernel_ext::transmute::slice_of,
    key::request::check_header,
    region::binding::KLayout,
};
use core::mem::size_of;

/// A description whose layout has the same shape as an earlier one: its other parts.
pub(crate) struct SameLayout {
    /// The lkey of the only leaf.
    pub(crate) lkey: u32,
    /// The address of the block, or of the first range.
    pub(crate) addr: u64,
    /// `true` if a request may name the unbound key by any tag.
    pub(crate) any_tag: bool,
    /// `true` if peers may invalidate the binding even if it has no remote access flag.
    pub(crate) remote_inv: bool,
}

impl SameLayout {
    /// Compares `block`, which is repeated `repeat_count` times in each dimension, with `old`.
    /// Returns [`None`] unless `block` describes the layout `old`, at any address.
    #[inline]
    pub(crate) fn of_block(repeat_count: &[u64], block: &UapiBlock, old: &KLayout) -> Option<Self> {
        let KLayout::Interleaved(old) = old else {
            return None;
        };
        // Unused strides of the old block are zero, as those of a description must be.
        let is_like =
            block.comp_mask == 0 && old.is_like(repeat_count, block.bytes_count, &block.stride);
        is_like.then_some(Self::at(block.lkey, block.addr))
    }

    /// Compares a list of `ranges` with `old`. Returns [`None`] unless the list describes the
    /// layout `old`, at any address of one leaf.
    #[inline]
    pub(crate) fn of_ranges(ranges: &[UapiSge], old: &KLayout) -> Option<Self> {
        let KLayout::List(old) = old else {
            return None;
        };
        let first = ranges.first()?;
        let is_one = |range: &UapiSge| range.lkey == first.lkey && range.comp_mask == 0;
        let is_like = ranges.iter().all(is_one)
            && old.is_like(ranges.iter().map(|range| (range.addr, range.length)));
        is_like.then_some(Self::at(first.lkey, first.addr))
    }

    fn at(lkey: u32, addr: u64) -> Self {
        Self {
            lkey,
            addr,
            any_tag: false,
            remote_inv: false,
        }
    }

    /// Compares `text` with `old`. `text` is a description that does not change meanwhile. Returns
    /// [`None`] unless it describes the layout `old`, at any address of one leaf.
    #[inline]
    pub(crate) fn of(text: &[u8], old: &KLayout) -> Option<Self> {
        let (header, rest) = text.split_at_checked(size_of::<UapiLayout>())?;
        let [header] = slice_of::<UapiLayout>(header)? else {
            return None;
        };
        check_header(header).ok()?;
        let same = match header.kind {
            KIND_INTERLEAVED => {
                let counts = (header.num_dims as usize).checked_mul(size_of::<u64>())?;
                let (counts, block) = rest.split_at_checked(counts)?;
                let ([block], 1) = (slice_of::<UapiBlock>(block)?, header.num_entries) else {
                    return None;
                };
                Self::of_block(slice_of(counts)?, block, old)
            }
            KIND_LIST => {
                let ranges = slice_of::<UapiSge>(rest)?;
                let is_list = header.num_dims == 0 && header.num_entries as usize == ranges.len();
                is_list.then(|| Self::of_ranges(ranges, old)).flatten()
            }
            _ => None,
        }?;
        Some(Self {
            any_tag: header.comp_mask & ANY_TAG != 0,
            remote_inv: header.comp_mask & REMOTE_INV != 0,
            ..same
        })
    }
}
