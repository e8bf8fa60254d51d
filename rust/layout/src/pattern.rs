// SPDX-License-Identifier: GPL-2.0

//! Repeated blocks as a function from offsets to addresses.

use core::iter;

use super::block::Block;
use super::dims::MAX_DIMS;
use super::run::Row;

/// The digits of an offset: the position in a tuple, then the indices, innermost first.
type Digits = [u64; MAX_DIMS + 1];

/// A repeated block of a [`Pattern`].
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) leaf: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    /// Offset of the first byte among those of one index tuple.
    pub(super) start: u64,
    /// Innermost first.
    pub(super) strides: [i64; MAX_DIMS],
}

/// The blocks of a [`Pattern`].
enum Parts<'a> {
    /// A block that is all bytes of an index tuple.
    One(Part),
    /// The blocks of a layout of so many dimensions.
    Many(&'a [Block], usize),
}

/// Blocks that repeat in some dimensions: an interleaved layout, or pieces of another layout that
/// are at one distance.
pub(super) struct Pattern<'a> {
    /// Offset of the first byte in the layout.
    pub(super) start: u64,
    /// Bytes of an index tuple.
    pub(super) group: u64,
    /// Repeat counts, innermost first. Those beyond the dimensions are one.
    pub(super) counts: [u64; MAX_DIMS],
    parts: Parts<'a>,
}

impl<'a> Pattern<'a> {
    /// Makes a pattern of pieces at one distance. The first one is at `start` of the layout.
    pub(super) fn of_row(start: u64, row: &Row) -> Self {
        let (mut counts, mut strides) = ([1; MAX_DIMS], [0; MAX_DIMS]);
        let ([count, ..], [stride, ..]) = (&mut counts, &mut strides);
        *count = row.count;
        *stride = row.stride;
        Self::repeated(start, counts, row, strides)
    }

    /// Makes a pattern of the first piece of `row`, repeated `counts` times.
    pub(super) fn repeated(
        start: u64,
        counts: [u64; MAX_DIMS],
        row: &Row,
        strides: [i64; MAX_DIMS],
    ) -> Self {
        Self {
            start,
            group: row.len,
            counts,
            parts: Parts::One(Part {
                leaf: row.leaf,
                addr: row.addr,
                len: row.len,
                start: 0,
                strides,
            }),
        }
    }

    /// Makes a pattern of all `blocks`, with `group` bytes for each index tuple of `dims`
    /// dimensions.
    pub(super) fn of_blocks(
        group: u64,
        counts: [u64; MAX_DIMS],
        (blocks, dims): (&'a [Block], usize),
    ) -> Self {
        Self {
            start: 0,
            group,
            counts,
            parts: Parts::Many(blocks, dims),
        }
    }

    /// Returns the digits of `at`. The last one may be any number.
    pub(super) fn digits(&self, at: u64) -> Option<Digits> {
        let mut digits = [0; MAX_DIMS + 1];
        let (position, indices) = digits.split_first_mut()?;
        *position = at.checked_rem(self.group)?;
        let mut rest = at.checked_div(self.group)?;
        for (digit, count) in indices.iter_mut().zip(self.counts) {
            *digit = rest.checked_rem(count)?;
            rest = rest.checked_div(count)?;
        }
        // What is left is more than the layout has.
        let last = indices.last_mut()?;
        *last = last.checked_add(rest.checked_mul(self.counts.last().copied()?)?)?;
        Some(digits)
    }

    /// Returns the largest number of each digit, plus one.
    pub(super) fn radices(&self) -> impl Iterator<Item = u64> {
        iter::once(self.group).chain(self.counts)
    }

    /// Returns the block with the byte at `position` of an index tuple.
    pub(super) fn part(&self, position: u64) -> Option<Part> {
        match &self.parts {
            Parts::One(part) => Some(*part),
            Parts::Many(blocks, dims) => {
                let after = blocks.partition_point(|block| block.start() <= position);
                let block = blocks.get(after.checked_sub(1)?)?;
                let mut strides = [0; MAX_DIMS];
                let used = block.stride().iter().take(*dims).rev();
                for (own, stride) in strides.iter_mut().zip(used) {
                    *own = *stride;
                }
                Some(Part {
                    leaf: block.leaf(),
                    addr: block.addr(),
                    len: block.bytes_count(),
                    start: block.start(),
                    strides,
                })
            }
        }
    }

    /// Returns the blocks, in the order of their bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let mut at = 0;
        iter::from_fn(move || {
            if at >= self.group {
                return None;
            }
            let part = self.part(at)?;
            at = part.start.saturating_add(part.len);
            Some(part)
        })
    }

    /// Returns the only block, if there is one.
    pub(super) fn only(&self) -> Option<Part> {
        match &self.parts {
            Parts::Many(blocks, _) if blocks.len() != 1 => None,
            _ => self.part(0),
        }
    }
}

impl Part {
    /// Returns the distance in memory of two repetitions whose offsets have the distance `far`.
    pub(super) fn distance(&self, pattern: &Pattern<'_>, far: i64) -> Option<i64> {
        let digits = pattern.digits(far.unsigned_abs())?;
        let (position, indices) = digits.split_first()?;
        let mut sum = i64::try_from(*position).ok()?;
        for (index, stride) in indices.iter().zip(self.strides) {
            if *index != 0 {
                sum = sum.checked_add(i64::try_from(*index).ok()?.checked_mul(stride)?)?;
            }
        }
        if far < 0 {
            sum.checked_neg()
        } else {
            Some(sum)
        }
    }
}
