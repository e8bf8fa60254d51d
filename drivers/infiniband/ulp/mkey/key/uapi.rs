// SPDX-License-Identifier: GPL-2.0

//! The entries of descriptions in the uAPI's structures: those of an ioctl (`api/uverbs.rs`) and
//! those of a work request (`key/request.rs`).

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
    key::{indexed::Pattern, Description, Range},
    layout::MAX_DIMS,
};
use kernel::prelude::*;

impl Range for UapiSge {
    fn parts(&self) -> Result<(u32, u64, u64)> {
        match self.comp_mask {
            0 => Ok((self.lkey, self.addr, self.length)),
            mask => Err(Refused::COMP_MASK.with(mask)),
        }
    }
}

impl From<&UapiIndexed> for Pattern {
    fn from(layout: &UapiIndexed) -> Self {
        Self {
            lkey: layout.lkey,
            addr: layout.addr,
            unit: layout.unit,
            bytes_count: layout.bytes_count,
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

/// Returns the first `num_dims` values of `buffer`, for the repeat counts of a layout.
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
