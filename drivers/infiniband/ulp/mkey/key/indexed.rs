// SPDX-License-Identifier: GPL-2.0

//! Descriptions of blocks of one size. An index gives the place of each block.

use crate::{
    bindings::ib_uverbs_mkey_indexed as UapiIndexed,
    errors::{Refused, Result},
    kernel_ext::{alloc::GFP_MAYFAIL, rdma::Access, uaccess::read_all},
    key::{Described, Description, Key},
    layout::{IndexSlice, Indexed},
    limits::cost,
    region::binding::{KIndexed, KIndices, KLayout, Leaf, MAX_INDICES},
};
use kernel::prelude::*;

/// The parts of an indexed layout except the indices.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    /// The leaf.
    pub(crate) lkey: u32,
    /// The address of index zero.
    pub(crate) addr: u64,
    /// Bytes from one index to the next.
    pub(crate) unit: u64,
    /// Bytes of a block.
    pub(crate) bytes_count: u64,
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

impl<'a> Description<'a> {
    /// Ends a description of blocks at `indices`.
    pub(crate) fn indexed(mut self, pattern: Pattern, indices: KIndices) -> Result<Described<'a>> {
        let leaf = self.found.leaf(pattern.lkey)?;
        let (unit, len) = (pattern.unit, pattern.bytes_count);
        let layout = Indexed::new(leaf, pattern.addr, unit, len, indices)?;
        self.finish(KLayout::Indexed(KBox::new(layout, GFP_MAYFAIL)?))
    }
}

/// Allocates memory for `count` indices. Charges it to the owner of the description's key.
pub(super) fn index_vec<T>(description: &mut Description<'_>, count: u32) -> Result<KVVec<T>> {
    let count = usize::try_from(count)?;
    description.charge(cost::indices::<T>(count)?)?;
    Ok(KVVec::with_capacity(count, GFP_MAYFAIL)?)
}

/// Describes blocks at the indices in `indices`.
pub(crate) fn describe<'k>(
    key: &'k Key<'_>,
    access: Access,
    pattern: Pattern,
    indices: IndexSlice<'_>,
) -> Result<Described<'k>> {
    let too_many = |_| Refused::TOO_MANY.with(MAX_INDICES);
    let count = u32::try_from(indices.len()).map_err(too_many)?;
    let mut description = key.describe_indexed(count, access)?;
    let indices = match indices {
        IndexSlice::U32(from) => {
            let mut to = index_vec(&mut description, count)?;
            to.extend_from_slice(from, GFP_MAYFAIL)?;
            KIndices::U32(to)
        }
        IndexSlice::U64(from) => {
            let mut to = index_vec(&mut description, count)?;
            to.extend_from_slice(from, GFP_MAYFAIL)?;
            KIndices::U64(to)
        }
    };
    description.indexed(pattern, indices)
}

/// Describes `layout`, whose indices are in user memory.
pub(crate) fn describe_user<'k>(
    key: &'k Key<'_>,
    access: Access,
    layout: &UapiIndexed,
) -> Result<Described<'k>> {
    if layout.comp_mask != 0 {
        return Err(Refused::COMP_MASK.with(layout.comp_mask));
    }
    let unread = |error| Refused::from(error).of_array(layout.indices);
    let (addr, count) = (layout.indices, layout.num_indices);
    let mut description = key.describe_indexed(count, access)?;
    let indices = match layout.index_bytes {
        4 => {
            let mut to = index_vec(&mut description, count)?;
            read_all(addr, count, &mut to).map_err(unread)?;
            KIndices::U32(to)
        }
        8 => {
            let mut to = index_vec(&mut description, count)?;
            read_all(addr, count, &mut to).map_err(unread)?;
            KIndices::U64(to)
        }
        bytes => return Err(Refused::INDEX_BYTES.with(bytes)),
    };
    description.indexed(Pattern::from(layout), indices)
}

/// Returns the description of a bound layout of `count` indices. The address of the indices is zero
/// in it.
pub(crate) fn describe_binding(layout: &KIndexed, count: u32, leaves: &[Leaf]) -> UapiIndexed {
    UapiIndexed {
        addr: layout.addr(),
        unit: layout.unit(),
        bytes_count: layout.block_len(),
        indices: 0,
        num_indices: count,
        index_bytes: match layout.indices() {
            IndexSlice::U32(_) => 4,
            IndexSlice::U64(_) => 8,
        },
        lkey: leaves
            .get(layout.leaf() as usize)
            .map_or(0, |leaf| leaf.lkey),
        comp_mask: 0,
    }
}
