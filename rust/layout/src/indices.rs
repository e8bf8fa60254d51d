// SPDX-License-Identifier: GPL-2.0

//! Indices of 32 or 64 bits.

use core::ops::Range;

use super::steps::step;
use super::{Places, Scale};

/// Indices of one of two sizes.
#[derive(Clone, Copy, Debug)]
pub enum IndexSlice<'a> {
    /// 32-bit indices.
    U32(&'a [u32]),
    /// 64-bit indices.
    U64(&'a [u64]),
}

impl<'a> IndexSlice<'a> {
    /// Returns the number of indices.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(indices) => indices.len(),
            Self::U64(indices) => indices.len(),
        }
    }

    /// Returns `true` if there are no indices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns index number `at`, if there is one.
    #[inline]
    pub fn get(&self, at: usize) -> Option<u64> {
        match self {
            Self::U32(indices) => indices.get(at).copied().map(u64::from),
            Self::U64(indices) => indices.get(at).copied(),
        }
    }

    /// Returns the smallest and the largest index.
    pub(super) fn bounds(&self) -> Option<(u64, u64)> {
        fn of<T: Copy + Ord>(indices: &[T]) -> Option<(T, T)> {
            let first = *indices.first()?;
            Some(indices.iter().fold((first, first), |(min, max), index| {
                (min.min(*index), max.max(*index))
            }))
        }
        match self {
            Self::U32(indices) => of(indices).map(|(min, max)| (min.into(), max.into())),
            Self::U64(indices) => of(indices),
        }
    }

    /// Returns the places of the indices in `range`, if all of these exist.
    #[inline(always)]
    pub(super) fn places(self, range: Range<usize>, scale: Scale) -> Option<Places<'a>> {
        Some(match self {
            Self::U32(indices) => Places::U32(indices.get(range)?, scale),
            Self::U64(indices) => Places::U64(indices.get(range)?, scale),
        })
    }

    /// Returns the number of leading indices, at most `most`, that have one distance, and the
    /// distance.
    #[inline]
    pub(super) fn stretch(&self, at: usize, most: usize) -> Option<(usize, u64)> {
        fn of<T: Copy + Into<u64>>(indices: &[T], at: usize, most: usize) -> Option<(usize, u64)> {
            let rest = indices.get(at..)?;
            let rest = rest.get(..most).unwrap_or(rest);
            let (first, rest) = rest.split_first()?;
            let mut last: u64 = (*first).into();
            let next = rest.first().map_or(last, |next| (*next).into());
            let (distance, up) = (next.wrapping_sub(last), next >= last);
            let mut count = 1usize;
            for index in rest {
                step();
                let index: u64 = (*index).into();
                if index.wrapping_sub(last) != distance || (index >= last) != up {
                    break;
                }
                last = index;
                count = count.saturating_add(1);
            }
            Some((count, distance))
        }
        match self {
            Self::U32(indices) => of(indices, at, most),
            Self::U64(indices) => of(indices, at, most),
        }
    }
}

/// Storage of indices.
pub trait Indices {
    /// Returns the indices, the same ones each time.
    fn as_slice(&self) -> IndexSlice<'_>;
}

impl Indices for IndexSlice<'_> {
    #[inline]
    fn as_slice(&self) -> IndexSlice<'_> {
        *self
    }
}
