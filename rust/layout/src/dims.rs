// SPDX-License-Identifier: GPL-2.0

//! Repeat counts of an interleaved layout, and index tuples.

use core::num::NonZeroU64;

use super::steps::step;
use super::Error;

/// Dimensions of an interleaved layout, at most.
pub const MAX_DIMS: usize = 8;

/// An index in each dimension, zero in those that the layout does not have.
pub(super) type Digits = [u64; MAX_DIMS];

/// How often blocks are repeated, outermost dimension first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dims {
    counts: [NonZeroU64; MAX_DIMS],
    used: usize,
}

impl Dims {
    pub(super) fn new(repeat_count: &[u64]) -> Result<Self, Error> {
        let mut dims = Self {
            counts: [NonZeroU64::MIN; MAX_DIMS],
            used: repeat_count.len(),
        };
        if dims.used == 0 {
            return Err(Error::Zero);
        }
        if dims.used > MAX_DIMS {
            return Err(Error::TooManyDims);
        }
        for (count, repeat) in dims.counts.iter_mut().zip(repeat_count) {
            *count = NonZeroU64::new(*repeat).ok_or(Error::Zero)?;
        }
        Ok(dims)
    }

    /// The number of dimensions.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The counts of the dimensions that there are.
    pub(super) fn counts(&self) -> &[NonZeroU64] {
        self.of(&self.counts)
    }

    /// The part of `values` for the dimensions that there are.
    #[inline]
    pub(super) fn of<'a, T>(&self, values: &'a [T; MAX_DIMS]) -> &'a [T] {
        values.get(..self.used).unwrap_or(values)
    }

    /// The number of index tuples.
    pub(super) fn product(&self) -> Option<u64> {
        self.counts()
            .iter()
            .try_fold(1u64, |product, count| product.checked_mul(count.get()))
    }

    /// The index tuple number `index`, in the order of the layout.
    pub(super) fn digits(&self, mut index: u64) -> Digits {
        let mut digits = [0; MAX_DIMS];
        for (digit, count) in self.inner_first(&mut digits) {
            step();
            *digit = index % *count;
            index /= *count;
        }
        digits
    }

    /// Goes on to the next index tuple, or from the last one to the first.
    pub(super) fn advance(&self, digits: &mut Digits) {
        for (digit, count) in self.inner_first(digits) {
            step();
            let next = digit.saturating_add(1);
            if next < count.get() {
                *digit = next;
                return;
            }
            *digit = 0;
        }
    }

    /// Indices and counts, innermost dimension first.
    fn inner_first<'a>(
        &'a self,
        digits: &'a mut Digits,
    ) -> impl Iterator<Item = (&'a mut u64, &'a NonZeroU64)> {
        // Not `rev()` of the whole, for which core keeps a panic.
        let unused = MAX_DIMS.saturating_sub(self.used);
        let digits = digits.iter_mut().rev().skip(unused);
        digits.zip(self.counts.iter().rev().skip(unused))
    }
}
