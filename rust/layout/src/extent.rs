// SPDX-License-Identifier: GPL-2.0

//! The part of a leaf that an entry or block covers.

use super::run::Error;

/// The part of a leaf that an entry or block covers, from the first byte of all repetitions to the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    leaf: u32,
    start: u64,
    /// Address of the last byte. The address after it may be 2^64.
    last: u64,
}

impl Extent {
    /// Makes the extent of bytes `start..start + len` of `leaf`. Returns [`None`] without bytes, and
    /// if an address does not fit 64 bits.
    pub(super) fn new(leaf: u32, start: u64, len: u64) -> Option<Self> {
        let last = start.checked_add(len.checked_sub(1)?)?;
        Some(Self { leaf, start, last })
    }

    /// Makes the extent of bytes `start..=last` of `leaf`.
    pub(super) fn between(leaf: u32, start: u64, last: u64) -> Self {
        Self { leaf, start, last }
    }

    /// Repeats the extent `count` times, `stride` bytes apart. Returns [`None`] if an address does
    /// not fit 64 bits.
    ///
    /// The lowest repetition over several dimensions is the lowest one in each dimension. The same
    /// holds for the highest. So this function can be applied to one dimension after another.
    pub(super) fn repeat(self, count: u64, stride: i64) -> Option<Self> {
        let reach = stride.unsigned_abs().checked_mul(count.saturating_sub(1))?;
        if stride < 0 {
            let start = self.start.checked_sub(reach)?;
            Some(Self { start, ..self })
        } else {
            let last = self.last.checked_add(reach)?;
            Some(Self { last, ..self })
        }
    }

    /// Returns the leaf's number, as the caller gave it.
    pub fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Returns the lowest address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the highest address.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Checks that a leaf of `len` bytes from address `start` on contains the extent.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfLeaf`] if it does not.
    pub fn check_within(&self, start: u64, len: u64) -> Result<(), Error> {
        // Compare offsets from the leaf's start, so that a leaf may end at 2^64.
        match self.last.checked_sub(start) {
            Some(last) if self.start >= start && last < len => Ok(()),
            _ => Err(Error::OutOfLeaf),
        }
    }
}

/// Pieces of one leaf, and their extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// From the lowest byte of all pieces to the highest.
    pub extent: Extent,
    /// Number of pieces; never zero. `u64::MAX` also stands for larger numbers.
    pub count: u64,
}
