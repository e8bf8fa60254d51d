// SPDX-License-Identifier: GPL-2.0

//! Blocks of one size at the places that indices give.

use core::num::NonZeroU64;

use super::blocks::whole;
use super::rows::{check_range, Chain, Place, Rows, Walk};
use super::segments::SHORT;
use super::steps::step;
use super::{Error, Extent, IndexSlice, Indices, Pieces, Reach, Row, Run, Runs, Scale, Scattered};

/// The largest number of indices that are examined for one row.
const MAX_LOOK: usize = 1024;

/// The number of indices that are examined if it is not known that more are needed.
pub(super) const SHORT_LOOK: usize = 16;

/// The largest number of indices that are taken as scattered pieces at once: those of a packet of
/// short blocks. A long row among them is copied piece by piece.
const SCATTERED: usize = 512;

/// Blocks of one size, one after another, each at the place that an index gives.
///
/// The block of index `i` is `block_len` bytes from `addr + i * unit` on.
#[derive(Debug)]
pub struct Indexed<I> {
    indices: I,
    leaf: u32,
    scale: Scale,
    block_len: u64,
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
        let (min, max) = indices.as_slice().bounds().ok_or(Error::Zero)?;
        if unit == 0 || block_len == 0 {
            return Err(Error::Zero);
        }
        let count = u64::try_from(indices.as_slice().len()).map_err(|_| Error::Overflow)?;
        let at = |index: u64| addr.checked_add(index.checked_mul(unit)?);
        let before_last = block_len.saturating_sub(1);
        let ends = || {
            let (start, last) = (at(min)?, at(max)?.checked_add(before_last)?);
            Some((start, last, count.checked_mul(block_len)?))
        };
        let (start, last, length) = ends().ok_or(Error::Overflow)?;
        Ok(Self {
            indices,
            leaf,
            scale: Scale {
                addr,
                unit,
                start,
                last,
            },
            block_len,
            length,
        })
    }

    /// Returns the number of bytes; never zero.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the leaf's number, as the caller gave it.
    pub fn leaf(&self) -> u32 {
        self.leaf
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
        self.block_len
    }

    /// Returns the indices as they were given.
    pub fn indices(&self) -> IndexSlice<'_> {
        self.indices.as_slice()
    }

    /// Returns block number `at`, if there is one.
    pub fn block(&self, at: usize) -> Option<Run> {
        let index = self.indices.as_slice().get(at)?;
        Some(Run {
            leaf: self.leaf,
            addr: self.scale.place(index),
            len: self.block_len,
        })
    }

    /// Returns the extent of all blocks.
    pub fn extent(&self) -> Extent {
        Extent::between(self.leaf, self.scale.start, self.scale.last)
    }

    /// Returns the pieces and their extent.
    pub(super) fn reach(&self) -> Reach {
        Reach {
            extent: self.extent(),
            count: self.indices.as_slice().len() as u64,
        }
    }

    /// See [`Layout::rows`](super::Layout::rows).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::rows`](super::Layout::rows).
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64) -> Result<Rows<'_>, Error> {
        check_range(offset, len, self.length)?;
        if len == 0 {
            return Ok(Rows::EMPTY);
        }
        Ok(self.chain(offset, len).ok_or(Error::Range)?.into())
    }

    /// Returns the cursor over a range, which must not be empty and must be within the layout.
    #[inline(always)]
    pub(super) fn chain(&self, offset: u64, len: u64) -> Option<Chain<IndexedWalk<'_>>> {
        let (mut walk, pos) = self.seek(offset)?;
        let most = len.saturating_add(pos);
        let place = Place {
            row: walk.next_row(most)?,
            pos,
        };
        Some(Chain::new(len, (place, walk)))
    }

    /// See [`Layout::only_row`](super::Layout::only_row).
    #[inline]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        check_range(offset, len, self.length).ok()?;
        // No block is that long.
        if len == 0 || len > self.block_len {
            return None;
        }
        let (walk, pos) = self.seek(offset)?;
        let run = self.block(walk.at)?.part(pos, len).ok()?;
        Some(Row::of(run.leaf, run.addr, run.len))
    }

    /// Returns whole blocks that make up `len` bytes from `offset` on, unless they are many or
    /// begin with a long row. See [`Layout::only_pieces`](super::Layout::only_pieces).
    #[inline(always)]
    pub(super) fn only_pieces(&self, offset: u64, len: u64) -> Option<Pieces<'_>> {
        let (first, count) = whole(offset, len, NonZeroU64::new(self.block_len)?)?;
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        if !(2..=SCATTERED).contains(&count) {
            return None;
        }
        let indices = self.indices.as_slice();
        // This looks at one index more than a short row has, because a longer row is copied as a
        // row.
        let (held, _) = indices.stretch(first, SHORT_LOOK + 1)?;
        if held > SHORT as usize {
            return None;
        }
        step();
        Some(Pieces::Scattered(Scattered {
            leaf: self.leaf,
            len: self.block_len,
            at: 0,
            places: indices.places(first..first.checked_add(count)?, self.scale)?,
        }))
    }

    /// Returns the place of `offset`. Its row may be shorter than possible.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        let (mut walk, pos) = self.seek(offset)?;
        let row = walk.take_row(SHORT_LOOK)?;
        Some(Place { row, pos })
    }

    /// See [`Layout::runs`](super::Layout::runs).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::runs`](super::Layout::runs).
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        Ok(Runs::new(len, self.rows(offset, len)?))
    }

    /// See [`Layout::resolve`](super::Layout::resolve).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::resolve`](super::Layout::resolve).
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        check_range(offset, len, self.length)?;
        if len == 0 {
            return Err(Error::Zero);
        }
        let (walk, pos) = self.seek(offset).ok_or(Error::Range)?;
        self.block(walk.at).ok_or(Error::Range)?.part(pos, len)
    }

    /// Returns a cursor at the block of `offset`, and the position in the block.
    fn seek(&self, offset: u64) -> Option<(IndexedWalk<'_>, u64)> {
        step();
        let at = offset.checked_div(self.block_len)?;
        let pos = offset.wrapping_sub(at.wrapping_mul(self.block_len));
        let walk = IndexedWalk {
            indices: self.indices.as_slice(),
            // This does not fail, because the number of indices is a `usize`.
            at: usize::try_from(at).ok()?,
            held: 0,
            leaf: self.leaf,
            scale: self.scale,
            block_len: self.block_len,
        };
        Some((walk, pos))
    }
}

/// A cursor over the rows of an [`Indexed`] layout.
#[derive(Clone, Debug)]
pub(super) struct IndexedWalk<'a> {
    indices: IndexSlice<'a>,
    /// The number of the next index.
    at: usize,
    /// The number of indices of the current row, which end before `at`.
    held: usize,
    leaf: u32,
    scale: Scale,
    block_len: u64,
}

impl IndexedWalk<'_> {
    /// Returns the next row. Examines no more indices than `bytes` bytes need.
    #[inline]
    pub(super) fn next_row(&mut self, bytes: u64) -> Option<Row> {
        let most = match usize::try_from(bytes.checked_div(self.block_len)?) {
            Ok(most) => most.saturating_add(1).min(MAX_LOOK),
            Err(_) => MAX_LOOK,
        };
        self.take_row(most)
    }

    /// Returns the next row, of at most `most` indices.
    #[inline]
    fn take_row(&mut self, most: usize) -> Option<Row> {
        step();
        let (mut count, distance) = self.indices.stretch(self.at, most)?;
        let first = self.indices.get(self.at)?;
        let addr = self.scale.place(first);
        let next = addr.wrapping_add(distance.wrapping_mul(self.scale.unit));
        let stride = super::row::distance(addr, next).unwrap_or_else(|| {
            count = 1;
            0
        });
        self.at = self.at.saturating_add(count);
        self.held = count;
        let row = Row {
            stride,
            count: count as u64,
            ..Row::of(self.leaf, addr, self.block_len)
        };
        Some(if count == 1 { row } else { row.joined() })
    }
}

impl<'a> Walk<'a> for IndexedWalk<'a> {
    #[inline(always)]
    fn next_row(&mut self, left: u64) -> Option<Row> {
        self.next_row(left)
    }

    #[inline(always)]
    fn take(&mut self, held: &Row, left: u64, at: u64) -> Option<Pieces<'a>> {
        // Blocks that continue one another are one longer piece.
        if self.held > SHORT as usize || held.len != self.block_len {
            return None;
        }
        let first = self.at.checked_sub(usize::try_from(held.count).ok()?)?;
        let rest = self.indices.len().checked_sub(first)?;
        let most = usize::try_from(left.checked_div(held.len)?).ok()?;
        // The number is limited, because the next pieces may be a long row again.
        let count = rest.min(most).min(SCATTERED);
        if count < 2 {
            return None;
        }
        step();
        self.at = first.checked_add(count)?;
        let places = self.indices.places(first..self.at, self.scale)?;
        Some(Pieces::Scattered(Scattered {
            leaf: self.leaf,
            len: self.block_len,
            at,
            places,
        }))
    }
}
