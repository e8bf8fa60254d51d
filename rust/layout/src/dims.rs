// SPDX-License-Identifier: GPL-2.0

//! Repeat counts of an interleaved layout, and index tuples.

use core::num::NonZeroU64;

use super::run::{step, Error, Part};

/// The largest number of dimensions of an interleaved layout.
pub const MAX_DIMS: usize = 8;

/// An index in each dimension, innermost first. Dimensions that the layout lacks have zero.
pub(super) type Digits = [u64; MAX_DIMS];

/// Repeat counts of each dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dims {
    /// Innermost dimension first: the one that changes fastest. Those beyond `used` are one.
    counts: [NonZeroU64; MAX_DIMS],
    used: usize,
}

impl Dims {
    /// No dimension.
    pub(super) const UNUSED: Self = Self {
        counts: [NonZeroU64::MIN; MAX_DIMS],
        used: 0,
    };

    /// Sets the repeat counts, outermost first.
    pub(super) fn set(&mut self, repeat_count: &[u64]) -> Result<(), Error> {
        if repeat_count.is_empty() {
            return Err(Error::Zero(Part::All));
        }
        if repeat_count.len() > MAX_DIMS {
            return Err(Error::TooManyDims);
        }
        // The counts of dimensions that the layout lacks stay one.
        for count in self.counts.iter_mut().take(self.used) {
            *count = NonZeroU64::MIN;
        }
        self.used = repeat_count.len();
        for (dim, repeat) in repeat_count.iter().enumerate() {
            let count = NonZeroU64::new(*repeat);
            let inner = self.used.wrapping_sub(dim).wrapping_sub(1);
            if let Some(to) = self.counts.get_mut(inner) {
                // CAST: The number is less than `MAX_DIMS`.
                *to = count.ok_or(Error::Zero(Part::Dim(dim as u32)))?;
            }
        }
        Ok(())
    }

    /// Returns the number of dimensions.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the counts of the layout's dimensions, innermost first.
    pub(super) fn counts(&self) -> &[NonZeroU64] {
        self.counts.get(..self.used).unwrap_or(&self.counts)
    }

    /// Returns the strides of the layout's dimensions, innermost first.
    pub(super) fn inner_first<'a>(
        &self,
        stride: &'a [i64; MAX_DIMS],
    ) -> impl Iterator<Item = &'a i64> {
        stride.get(..self.used).unwrap_or(stride).iter().rev()
    }

    /// Returns the number of index tuples, unless it overflows.
    pub(super) fn product(&self) -> Option<u64> {
        self.counts()
            .iter()
            .try_fold(1u64, |product, count| product.checked_mul(count.get()))
    }

    /// Returns index tuple number `index`, in the order of the layout.
    pub(super) fn digits(&self, mut index: u64) -> Digits {
        let mut digits = [0; MAX_DIMS];
        for (digit, count) in digits.iter_mut().zip(self.counts()) {
            step();
            if index < count.get() {
                *digit = index;
                break;
            }
            *digit = index % *count;
            index /= *count;
        }
        digits
    }

    /// Advances to the next index tuple. The first tuple follows the last one.
    pub(super) fn advance(&self, digits: &mut Digits) {
        for (digit, count) in digits.iter_mut().zip(self.counts()) {
            step();
            let next = digit.wrapping_add(1);
            if next < count.get() {
                *digit = next;
                return;
            }
            *digit = 0;
        }
    }
}
