// SPDX-License-Identifier: GPL-2.0

//! Repeated blocks that form one piece: its dimensions and the cursor.

use core::num::NonZeroU64;

use super::dims::MAX_DIMS;
use super::extent::{Extent, Reach};
use super::pattern::Pattern;
use super::run::{step, Row, Run};

/// A dimension.
#[derive(Clone, Copy, Debug)]
struct Axis {
    count: NonZeroU64,
    stride: i64,
}

impl Axis {
    const UNUSED: Self = Self {
        count: NonZeroU64::MIN,
        stride: 0,
    };

    /// Returns the address `index` steps after `addr`.
    ///
    /// Intermediate sums may leave the address space although the result does not. So all address
    /// arithmetic of an accepted layout wraps.
    fn advance(&self, addr: u64, index: u64) -> u64 {
        addr.wrapping_add((self.stride as u64).wrapping_mul(index))
    }

    /// Returns the stride of a dimension that continues where this one ends, unless it overflows.
    fn next_stride(&self) -> Option<i64> {
        self.stride
            .checked_mul(i64::try_from(self.count.get()).ok()?)
    }
}

/// One piece, repeated.
///
/// Dimensions that only continue the piece, or one another, are merged: a layout of contiguous
/// bytes is one piece without dimensions.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    piece: Run,
    bytes: NonZeroU64,
    /// Innermost first.
    axes: [Axis; MAX_DIMS],
    used: usize,
}

impl Grid {
    /// Makes a grid of the piece, of `bytes` bytes, and the count and stride of each dimension,
    /// innermost first.
    pub(super) fn new(
        piece: Run,
        bytes: NonZeroU64,
        dims: impl Iterator<Item = (NonZeroU64, i64)>,
    ) -> Self {
        let mut grid = Self {
            piece,
            bytes,
            axes: [Axis::UNUSED; MAX_DIMS],
            used: 0,
        };
        for (count, stride) in dims.filter(|(count, _)| count.get() != 1) {
            grid.push(count, stride);
        }
        grid
    }

    fn push(&mut self, count: NonZeroU64, stride: i64) {
        let last = self.used.checked_sub(1);
        if let Some(axis) = last.and_then(|last| self.axes.get_mut(last)) {
            if axis.next_stride() == Some(stride) {
                if let Some(product) = axis.count.checked_mul(count) {
                    axis.count = product;
                    return;
                }
            }
        } else if u64::try_from(stride) == Ok(self.bytes.get()) {
            if let Some(product) = self.bytes.checked_mul(count) {
                self.bytes = product;
                self.piece.len = product.get();
                return;
            }
        }
        if let Some(axis) = self.axes.get_mut(self.used) {
            *axis = Axis { count, stride };
            self.used = self.used.saturating_add(1);
        }
    }

    /// Returns the extent of the pieces, if all addresses fit 64 bits.
    #[inline]
    pub(super) fn extent(&self) -> Option<Extent> {
        let piece = &self.piece;
        let mut extent = Extent::new(piece.leaf, piece.addr, piece.len)?;
        for axis in self.axes.iter().take(self.used) {
            extent = extent.repeat(axis.count.get(), axis.stride)?;
        }
        Some(extent)
    }

    /// Returns the pieces and their extent.
    pub(super) fn reach(&self) -> Option<Reach> {
        let axes = self.axes.iter().take(self.used);
        Some(Reach {
            extent: self.extent()?,
            count: axes.fold(1, |count, axis| count.saturating_mul(axis.count.get())),
        })
    }

    /// Returns the row that is exactly `len` bytes from `offset` on, a range of the layout that is not
    /// empty. Returns [`None`] if it takes several rows, and for rows that need all dimensions.
    #[inline]
    pub(super) fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        step();
        let index = offset / self.bytes;
        let pos = offset.wrapping_sub(index.wrapping_mul(self.bytes.get()));
        let [axis, ..] = &self.axes;
        let left = axis.count.get().checked_sub(index)?;
        let (bytes, count) = if len <= self.bytes.get().wrapping_sub(pos) {
            (len, 1)
        } else if pos == 0 && len % self.bytes == 0 {
            step();
            (self.bytes.get(), len / self.bytes)
        } else {
            return None;
        };
        let addr = axis.advance(self.piece.addr, index).wrapping_add(pos);
        (count <= left).then(|| Row {
            stride: axis.stride,
            count,
            ..Row::of(self.piece.leaf, addr, bytes)
        })
    }

    /// Returns the grid as a pattern.
    pub(super) fn pattern(&self) -> Pattern<'_> {
        let first = Row::of(self.piece.leaf, self.piece.addr, self.piece.len);
        let (counts, strides) = (
            self.axes.map(|axis| axis.count.get()),
            self.axes.map(|axis| axis.stride),
        );
        Pattern::repeated(0, counts, &first, strides)
    }
}

/// A cursor over the rows of a [`Grid`].
#[derive(Clone, Debug)]
pub(super) struct GridWalk<'a> {
    grid: &'a Grid,
    /// Address of the first byte of the next row, without the innermost index.
    start: u64,
    /// The innermost index of the next row; zero except for the first one.
    inner: u64,
    /// The other indices.
    digits: [u64; MAX_DIMS - 1],
}

impl<'a> GridWalk<'a> {
    /// Returns a cursor at the piece of `offset`, and the position in the piece.
    pub(super) fn seek(grid: &'a Grid, offset: u64) -> (Self, u64) {
        step();
        let index = offset / grid.bytes;
        let pos = offset.wrapping_sub(index.wrapping_mul(grid.bytes.get()));
        let [row, outer @ ..] = &grid.axes;
        let mut walk = Self {
            grid,
            start: grid.piece.addr,
            inner: index,
            digits: [0; MAX_DIMS - 1],
        };
        step();
        // In one dimension, or in the first row, no other division is needed.
        if index >= row.count.get() {
            walk.inner = index % row.count;
            let mut index = index / row.count;
            let used = grid.used.saturating_sub(1);
            for (axis, digit) in outer.iter().zip(&mut walk.digits).take(used) {
                step();
                *digit = index % axis.count;
                index /= axis.count;
                walk.start = axis.advance(walk.start, *digit);
            }
        }
        (walk, pos)
    }

    /// Returns the next row, or its pieces that are in `bytes` bytes, at least one.
    pub(super) fn next_row(&mut self, bytes: u64) -> Row {
        self.next_pieces((bytes / self.grid.bytes).max(1))
    }

    /// Returns the next row, but at most `most` pieces of it, which is not zero.
    ///
    /// That takes constant time on average, because no dimension but the innermost one has a count
    /// of one.
    #[inline]
    fn next_pieces(&mut self, most: u64) -> Row {
        step();
        let [axis, outer @ ..] = &self.grid.axes;
        let piece = &self.grid.piece;
        let left = axis.count.get().saturating_sub(self.inner);
        let row = Row {
            stride: axis.stride,
            count: left.min(most),
            ..Row::of(piece.leaf, axis.advance(self.start, self.inner), piece.len)
        };
        if most < left {
            self.inner = self.inner.wrapping_add(most);
            return row;
        }
        self.inner = 0;
        let used = self.grid.used.saturating_sub(1);
        for (axis, digit) in outer.iter().zip(&mut self.digits).take(used) {
            step();
            let next = digit.saturating_add(1);
            if next < axis.count.get() {
                *digit = next;
                self.start = axis.advance(self.start, 1);
                break;
            }
            let back = (axis.stride as u64).wrapping_mul(*digit);
            self.start = self.start.wrapping_sub(back);
            *digit = 0;
        }
        row
    }

    /// Returns the bytes and the number of the pieces in `bytes` bytes, if there are several.
    #[inline]
    pub(super) fn even(&self, bytes: u64) -> Option<(u64, u64)> {
        let count = bytes / self.grid.bytes;
        (count > 1).then(|| (self.grid.bytes.get().wrapping_mul(count), count))
    }

    /// Takes the next `count` pieces. The first one is at position `at` of the access.
    pub(super) fn take(&mut self, count: u64, at: u64) -> GridRows<'_, 'a> {
        GridRows {
            left: count,
            at,
            walk: self,
        }
    }
}

/// Rows of pieces of one size, which follow one another in the access; an iterator over [`Row`].
#[derive(Debug)]
pub struct GridRows<'r, 'a> {
    walk: &'r mut GridWalk<'a>,
    /// The number of pieces that are left.
    left: u64,
    /// Position of the next row in the access.
    at: u64,
}

impl GridRows<'_, '_> {
    /// Returns the leaf.
    pub fn leaf(&self) -> u32 {
        self.walk.grid.piece.leaf
    }

    /// Returns the bytes of a piece, which all rows have.
    pub fn piece_len(&self) -> u64 {
        self.walk.grid.piece.len
    }
}

impl Iterator for GridRows<'_, '_> {
    type Item = Row;

    #[inline]
    fn next(&mut self) -> Option<Row> {
        if self.left == 0 {
            return None;
        }
        let row = self.walk.next_pieces(self.left);
        let at = self.at;
        self.left = self.left.wrapping_sub(row.count);
        self.at = at.wrapping_add(row.len.wrapping_mul(row.count));
        Some(Row { at, ..row })
    }
}
