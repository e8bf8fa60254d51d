// SPDX-License-Identifier: GPL-2.0

//! The entries of descriptions in the uAPI's structures: those of an ioctl (`api/uverbs.rs`) and
//! those of a work request (`key/request.rs`).

use crate::{
    bindings::{
        ib_uverbs_mkey_block as UapiBlock,
        ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_sge as UapiSge, //
    },
    key::{indexed::Pattern, Description, Range},
    layout::MAX_DIMS,
};
use kernel::prelude::*;

impl Range for UapiSge {
    fn parts(&self) -> (u64, u64, u64) {
        let name = u64::from(self.comp_mask) << 32 | u64::from(self.lkey);
        (name, self.addr, self.length)
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

/// Returns the first `num_dims` values of `buffer`, for the repeat counts of a layout.
///
/// # Errors
///
/// `EINVAL` for no dimension and for more than [`MAX_DIMS`].
pub(crate) fn counts(buffer: &mut [u64; MAX_DIMS], num_dims: u32) -> Result<&mut [u64]> {
    let counts = buffer.get_mut(..num_dims as usize);
    counts.filter(|counts| !counts.is_empty()).ok_or(EINVAL)
}

impl Description<'_> {
    /// Adds a block of a layout of `dims` dimensions.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::block`]; `EINVAL` for a field that must be zero.
    pub(crate) fn uapi_block(&mut self, block: &UapiBlock, dims: usize) -> Result {
        let mut unused = block.stride.iter().skip(dims);
        if block.comp_mask != 0 || unused.any(|stride| *stride != 0) {
            return Err(EINVAL);
        }
        self.block(block.lkey, block.addr, block.bytes_count, block.stride)
    }
}
