// SPDX-License-Identifier: GPL-2.0

//! Descriptions that kernel users stage for REG_MR (`region/staged.rs`), in the format of
//! `key/request.rs`.
//!
//! This file checks what depends on the description alone. Leaves, ranges and access flags are
//! checked when the request executes, because an earlier request of the queue may register a leaf.

use crate::{
    bindings::{
        ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST, ib_uverbs_mkey_layout as UapiLayout,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_BASE as BASE,
        ib_uverbs_mkey_sge as UapiSge, IB_MKEY_LAYOUT_VERSION,
    },
    errors::{Refused, Result},
    key::{indexed::Pattern, Key},
    layout::{IndexSlice, MAX_DIMS},
    region::{
        binding::MAX_ENTRIES,
        staged::{Staged, StagedLayouts},
        Kind,
    },
};
use core::mem::size_of;
use kernel::prelude::*;

/// Adds the `length` bytes of an entry, `times` times, to the length of a layout.
fn add(total: u64, length: u64, times: u64) -> Result<u64> {
    if length == 0 {
        return Err(Refused::NO_BYTES);
    }
    let all = length.checked_mul(times).ok_or(Refused::LENGTH)?;
    total.checked_add(all).ok_or(Refused::LENGTH)
}

impl Key<'_> {
    /// Returns the staged layouts of the key, which is not that of a process.
    pub(crate) fn staged(&self) -> Result<&StagedLayouts> {
        match &self.region.kind {
            Kind::Key {
                staged: Some(staged),
                ..
            } => Ok(staged),
            _ => Err(Refused::NOT_A_KEY),
        }
    }

    /// Stages a layout of `count` entries, blocks or indices under the rkey that `ib_mr` has now. The
    /// addresses of the key will begin at `base`.
    fn stage(
        &self,
        base: u64,
        header: UapiLayout,
        count: usize,
        write: impl FnOnce(&mut Staged) -> Result,
    ) -> Result {
        if count == 0 {
            return Err(Refused::EMPTY);
        }
        let most = self.max_entries.min(MAX_ENTRIES);
        if count > most as usize {
            return Err(Refused::TOO_MANY.with(most));
        }
        let charge = &self.region.charge;
        self.staged()?.stage(self.mr.rkey(), charge, |to| {
            to.push(header.as_bytes())?;
            to.push(base.as_bytes())?;
            write(to)
        })
    }

    /// Stages ranges, one after another: the address, the length and the lkey of each. Does not
    /// sleep.
    pub(crate) fn stage_list(
        &self,
        base: u64,
        ranges: impl ExactSizeIterator<Item = (u64, u64, u32)>,
    ) -> Result {
        let count = ranges.len();
        let header = header::<UapiSge>(KIND_LIST, count, 0);
        self.stage(base, header, count, |to| {
            let mut total = 0;
            for (at, (addr, length, lkey)) in ranges.enumerate() {
                total = add(total, length, 1).map_err(|why| why.at(at as u32))?;
                let entry = UapiSge {
                    addr,
                    length,
                    lkey,
                    comp_mask: 0,
                };
                to.push(entry.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Stages blocks that repeat: the address, the length, the lkey and the strides of each.
    pub(crate) fn stage_interleaved(
        &self,
        base: u64,
        repeat_count: &[u64],
        blocks: impl ExactSizeIterator<Item = (u64, u64, u32, [i64; MAX_DIMS])>,
    ) -> Result {
        let (count, dims) = (blocks.len(), repeat_count.len());
        if dims == 0 || dims > MAX_DIMS {
            return Err(Refused::DIMS.with(dims as u64));
        }
        let header = header::<UapiBlock>(KIND_INTERLEAVED, count, dims);
        self.stage(base, header, count, |to| {
            let mut times = 1u64;
            for (dim, repeat) in repeat_count.iter().enumerate() {
                if *repeat == 0 {
                    return Err(Refused::NO_REPEAT.with(dim as u64));
                }
                times = times.checked_mul(*repeat).ok_or(Refused::LENGTH)?;
                to.push(repeat.as_bytes())?;
            }
            let mut total = 0;
            for (at, (addr, bytes_count, lkey, mut stride)) in blocks.enumerate() {
                total = add(total, bytes_count, times).map_err(|why| why.at(at as u32))?;
                stride.iter_mut().skip(dims).for_each(|unused| *unused = 0);
                let block = UapiBlock {
                    addr,
                    bytes_count,
                    stride,
                    lkey,
                    comp_mask: 0,
                };
                to.push(block.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Stages blocks at indices.
    pub(crate) fn stage_indexed(
        &self,
        base: u64,
        pattern: Pattern,
        indices: IndexSlice<'_>,
    ) -> Result {
        let count = indices.len();
        let header = header::<UapiIndexed>(KIND_INDEXED, 1, 0);
        self.stage(base, header, count, |to| {
            add(0, pattern.bytes_count, count as u64)?;
            if pattern.unit == 0 {
                return Err(Refused::NO_UNIT);
            }
            let (index_bytes, bytes) = match indices {
                IndexSlice::U32(indices) => (size_of::<u32>(), indices.as_bytes()),
                IndexSlice::U64(indices) => (size_of::<u64>(), indices.as_bytes()),
            };
            let layout = UapiIndexed {
                addr: pattern.addr,
                unit: pattern.unit,
                bytes_count: pattern.bytes_count,
                indices: 0,
                num_indices: count as u32,
                index_bytes: index_bytes as u32,
                lkey: pattern.lkey,
                comp_mask: 0,
            };
            to.push(layout.as_bytes())?;
            Ok(to.push(bytes)?)
        })
    }
}

/// Returns the header of a description with `count` elements of type `T`.
fn header<T>(kind: u32, count: usize, dims: usize) -> UapiLayout {
    UapiLayout {
        version: IB_MKEY_LAYOUT_VERSION,
        kind,
        // Larger numbers are refused before the header is stored.
        num_entries: count as u32,
        entry_size: size_of::<T>() as u32,
        num_dims: dims as u32,
        comp_mask: BASE,
    }
}
