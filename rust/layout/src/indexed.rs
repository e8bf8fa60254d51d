// SPDX-License-Identifier: GPL-2.0

//! Blocks of one size at the places that indices give.

use super::extent::{Extent, Reach};
use super::pieces::{Pieces, Scale};
use super::run::{step, Error, Part, Run};

/// Indices of one of two sizes.
#[derive(Clone, Copy, Debug)]
pub enum IndexSlice<'a> {
    /// 32-bit indices.
    U32(&'a [u32]),
    /// 64-bit indices.
    U64(&'a [u64]),
}

impl IndexSlice<'_> {
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
    fn bounds(&self) -> Option<(u64, u64)> {
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

/// Blocks of one size, one after another, each at the place that an index gives.
///
/// The block of index `i` is `block_len` bytes from `addr + i * unit` on.
#[derive(Debug)]
pub struct Indexed<I> {
    indices: I,
    scale: Scale,
    /// The first and the last byte of all blocks.
    bounds: (u64, u64),
    length: u64,
}

/// The indexed variant of a [`Layout`](super::Layout): an [`Indexed`], or a small type that
/// contains or refers to one, such as a box.
pub trait AsIndexed {
    /// Storage of the indices.
    type Indices: Indices;

    /// Returns the indexed layout, the same one each time.
    fn as_indexed(&self) -> &Indexed<Self::Indices>;
}

impl<I: Indices> AsIndexed for Indexed<I> {
    type Indices = I;

    #[inline]
    fn as_indexed(&self) -> &Self {
        self
    }
}

/// The variant of a [`Layout`](super::Layout) that is never indexed.
#[derive(Debug)]
pub enum NoIndexed {}

impl AsIndexed for NoIndexed {
    type Indices = IndexSlice<'static>;

    fn as_indexed(&self) -> &Indexed<Self::Indices> {
        match *self {}
    }
}

impl<I: Indices> Indexed<I> {
    /// Makes a layout that has, for each index, a block of `block_len` bytes of `leaf`.
    ///
    /// `addr` is the address of index 0. Index 1 is `unit` bytes further, and so on.
    ///
    /// # Errors
    ///
    /// - [`Error::Zero`] if there are no indices, or if `unit` or `block_len`
    ///   is zero.
    /// - [`Error::Overflow`] if the sum of the bytes, or the address of the
    ///   last byte of a block, does not fit 64 bits.
    pub fn new(leaf: u32, addr: u64, unit: u64, block_len: u64, indices: I) -> Result<Self, Error> {
        let (min, max) = indices.as_slice().bounds().ok_or(Error::Zero(Part::All))?;
        if unit == 0 {
            return Err(Error::Zero(Part::Unit));
        }
        if block_len == 0 {
            return Err(Error::Zero(Part::Entry(0)));
        }
        let too_long = Error::Overflow(Part::All);
        let count = u64::try_from(indices.as_slice().len()).map_err(|_| too_long)?;
        let at = |index: u64| addr.checked_add(index.checked_mul(unit)?);
        let before_last = block_len.saturating_sub(1);
        let bounds = || Some((at(min)?, at(max)?.checked_add(before_last)?));
        let bounds = bounds().ok_or_else(|| {
            let is_lower = |at: &usize| indices.as_slice().get(*at) != Some(max);
            Error::Overflow(Part::entry((0..).take_while(is_lower).count()))
        })?;
        let length = count.checked_mul(block_len).ok_or(too_long)?;
        Ok(Self {
            indices,
            scale: Scale {
                leaf,
                addr,
                unit,
                len: block_len,
            },
            bounds,
            length,
        })
    }

    /// Returns the number of bytes; never zero.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the leaf's number, as the caller gave it.
    pub fn leaf(&self) -> u32 {
        self.scale.leaf
    }

    /// Returns the address of index 0.
    pub fn addr(&self) -> u64 {
        self.scale.addr
    }

    /// Returns the number of bytes from one index to the next.
    pub fn unit(&self) -> u64 {
        self.scale.unit
    }

    /// Returns the number of bytes of a block.
    pub fn block_len(&self) -> u64 {
        self.scale.len
    }

    /// Returns the indices as they were given.
    pub fn indices(&self) -> IndexSlice<'_> {
        self.indices.as_slice()
    }

    /// Returns block number `at`, if there is one.
    pub fn block(&self, at: usize) -> Option<Run> {
        let index = self.indices.as_slice().get(at)?;
        Some(self.scale.block(index))
    }

    /// Returns the extent of block number `at`, if there is one.
    pub(super) fn extent(&self, at: usize) -> Option<Extent> {
        let block = self.block(at)?;
        Extent::new(block.leaf, block.addr, block.len)
    }

    /// Returns the blocks and their extent.
    pub(super) fn reach(&self) -> Reach {
        let (start, last) = self.bounds;
        Reach {
            extent: Extent::between(self.scale.leaf, start, last),
            count: self.indices.as_slice().len() as u64,
        }
    }

    /// Returns the blocks from that of `offset` on, and the position in the first one.
    pub(super) fn seek(&self, offset: u64) -> Option<(Pieces<'_>, u64)> {
        let (at, pos) = self.find(offset)?;
        let pieces = match self.indices.as_slice() {
            IndexSlice::U32(indices) => Pieces::U32(indices.get(at..)?, self.scale),
            IndexSlice::U64(indices) => Pieces::U64(indices.get(at..)?, self.scale),
        };
        Some((pieces, pos))
    }

    /// Returns the block of `offset`, and the position in the block.
    #[inline]
    pub(super) fn piece(&self, offset: u64) -> Option<(Run, u64)> {
        let (at, pos) = self.find(offset)?;
        Some((self.block(at)?, pos))
    }

    /// Returns the number of the block of `offset`, and the position in the block.
    #[inline]
    fn find(&self, offset: u64) -> Option<(usize, u64)> {
        step();
        let at = offset.checked_div(self.scale.len)?;
        let pos = offset.wrapping_sub(at.wrapping_mul(self.scale.len));
        Some((usize::try_from(at).ok()?, pos))
    }
}
