// SPDX-License-Identifier: GPL-2.0

//! The storage of the indices of an indexed layout. The kernel stores an index in the size in which
//! the caller gave it: 4 or 8 bytes.

use crate::layout::{AsIndexed, IndexSlice, Indexed, Indices};
use kernel::prelude::*;

/// The most indices of one key.
pub(crate) const MAX_INDICES: u32 = crate::bindings::IB_MKEY_MAX_INDICES;

/// Indices in memory that need not be contiguous.
pub(crate) enum KIndices {
    /// Of 32 bits.
    U32(KVVec<u32>),
    /// Of 64 bits.
    U64(KVVec<u64>),
}

impl Indices for KIndices {
    fn as_slice(&self) -> IndexSlice<'_> {
        match self {
            Self::U32(indices) => IndexSlice::U32(indices),
            Self::U64(indices) => IndexSlice::U64(indices),
        }
    }
}

/// An indexed layout of this module. It is in a box, so that [`KLayout`] is not larger for other
/// layouts.
///
/// [`KLayout`]: crate::region::binding::KLayout
pub(crate) type KIndexed = KBox<Indexed<KIndices>>;

impl AsIndexed for KIndexed {
    type Indices = KIndices;

    fn as_indexed(&self) -> &Indexed<KIndices> {
        self
    }
}
