// SPDX-License-Identifier: GPL-2.0

//! The reasons for which a layout, or an access to it, is refused.

use core::fmt;

/// The reason for which a layout, or an access to it, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No entries, no dimensions, or a count or byte count of zero.
    Zero,
    /// More dimensions than [`MAX_DIMS`](super::MAX_DIMS).
    TooManyDims,
    /// The length or the address of a byte does not fit 64 bits.
    Overflow,
    /// Bytes outside of the leaf.
    OutOfLeaf,
    /// Offsets beyond the length of the layout.
    Range,
    /// An unsplittable access that spans several entries or blocks.
    Straddles,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "zero count or byte count",
            Self::TooManyDims => "too many dimensions",
            Self::Overflow => "length or address does not fit 64 bits",
            Self::OutOfLeaf => "block outside of its leaf",
            Self::Range => "offsets beyond the layout's length",
            Self::Straddles => "access straddles two blocks",
        })
    }
}
