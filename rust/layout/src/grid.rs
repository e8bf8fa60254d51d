// SPDX-License-Identifier: GPL-2.0

//! Interleaved layouts whose blocks form one piece: the layouts with the fast cursor.

mod walk;

use core::num::NonZeroU64;

use super::blocks::whole;
use super::compose::Pattern;
use super::rows::Place;
use super::steps::step;
use super::{Extent, Plane, Reach, Row, Run, MAX_DIMS};

pub(super) use walk::GridWalk;

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

    /// Returns the address `index` steps before `addr`.
    fn retreat(&self, addr: u64, index: u64) -> u64 {
        addr.wrapping_sub((self.stride as u64).wrapping_mul(index))
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

/// The most bytes from the beginning to the end of a row of a plane. Most of such rows are in one
/// page.
const SHORT_ROW: u64 = 2048;

impl Grid {
    /// No grid.
    pub(super) const UNUSED: Self = Self {
        piece: Run {
            leaf: 0,
            addr: 0,
            len: 0,
        },
        bytes: NonZeroU64::MIN,
        axes: [Axis::UNUSED; MAX_DIMS],
        used: 0,
    };

    /// Sets the piece of `bytes` bytes, and the count and stride of each dimension, innermost
    /// first.
    #[inline]
    pub(super) fn set(
        &mut self,
        piece: Run,
        bytes: NonZeroU64,
        dims: impl Iterator<Item = (NonZeroU64, i64)>,
    ) {
        self.piece = piece;
        self.bytes = bytes;
        // Axes beyond the dimensions stay unused.
        for axis in self.axes.iter_mut().take(self.used) {
            *axis = Axis::UNUSED;
        }
        self.used = 0;
        for (count, stride) in dims.filter(|(count, _)| count.get() != 1) {
            self.push(count, stride);
        }
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
        let mut extent = Extent::new(piece.leaf, piece.addr, piece.len).ok()?;
        for axis in self.axes.iter().take(self.used) {
            extent = extent.repeat(axis.count.get(), axis.stride).ok()?;
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

    /// Returns the grid as a pattern.
    pub(super) fn pattern(&self) -> Pattern<'_> {
        let first = Row::of(self.piece.leaf, self.piece.addr, self.piece.len);
        let (counts, strides) = (
            self.axes.map(|axis| axis.count.get()),
            self.axes.map(|axis| axis.stride),
        );
        Pattern::repeated(0, counts, &first, strides)
    }

    /// Returns the row that covers exactly `len` bytes from `offset` on. The range must not be
    /// empty and must be within the layout. Returns [`None`] if it takes several rows, or if the
    /// row is not the first one of the innermost dimension.
    #[inline(always)]
    pub(super) fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        step();
        let index = offset / self.bytes;
        let pos = offset.wrapping_sub(index.wrapping_mul(self.bytes.get()));
        let [axis, ..] = &self.axes;
        let left = axis
            .count
            .get()
            .checked_sub(index)
            .filter(|left| *left != 0)?;
        let (bytes, count) = if len <= self.bytes.get().wrapping_sub(pos) {
            (len, 1)
        } else if pos == 0 {
            step();
            (self.bytes.get(), len / self.bytes)
        } else {
            return None;
        };
        let is_all = count <= left && bytes.wrapping_mul(count) == len;
        is_all.then(|| Row {
            stride: axis.stride,
            count,
            ..Row::of(
                self.piece.leaf,
                axis.advance(self.piece.addr, index).wrapping_add(pos),
                bytes,
            )
        })
    }

    /// Returns the row that covers exactly `len` bytes from `offset` on, as [`Self::only_row`]
    /// does. The row may be any one of the innermost dimension.
    #[inline(always)]
    pub(super) fn only_outer_row(&self, offset: u64, len: u64) -> Option<Row> {
        step();
        let index = offset / self.bytes;
        let pos = offset.wrapping_sub(index.wrapping_mul(self.bytes.get()));
        let [axis, outer @ ..] = &self.axes;
        let outer = outer.get(..self.used.checked_sub(1)?)?;
        let (bytes, count) = if len <= self.bytes.get().wrapping_sub(pos) {
            (len, 1)
        } else if pos == 0 {
            step();
            (self.bytes.get(), len / self.bytes)
        } else {
            return None;
        };
        let inner = index % axis.count;
        if bytes.wrapping_mul(count) != len || count > axis.count.get().wrapping_sub(inner) {
            return None;
        }
        let start = self.start_of(outer, index / axis.count);
        Some(Row {
            stride: axis.stride,
            count,
            ..Row::of(
                self.piece.leaf,
                axis.advance(start, inner).wrapping_add(pos),
                bytes,
            )
        })
    }

    /// Returns the rows of planes that cover exactly `len` bytes from `offset` on. The range must
    /// be within the layout. Returns [`None`] unless the rows are whole and short, and are rows of
    /// one plane or of whole planes at one distance.
    #[inline(always)]
    pub(super) fn only_plane(&self, offset: u64, len: u64) -> Option<Plane> {
        let [row, column, outer @ ..] = &self.axes;
        let outer = outer.get(..self.used.checked_sub(2)?)?;
        let stride = u64::try_from(row.stride).ok()?;
        if stride.checked_mul(row.count.get())? > SHORT_ROW {
            return None;
        }
        let bytes = self.bytes.checked_mul(row.count)?;
        let (index, rows) = whole(offset, len, bytes)?;
        let (mut at, mut rest) = (index, 0);
        if index >= column.count.get() {
            at = index % column.count;
            rest = index / column.count;
        }
        let (mut rows, mut planes, mut farther) = (rows, 1, 0);
        if rows > column.count.get().wrapping_sub(at) {
            step();
            let third = outer.first()?;
            planes = rows / column.count;
            let is_whole = at == 0 && planes.wrapping_mul(column.count.get()) == rows;
            if !is_whole || planes > third.count.get().wrapping_sub(rest % third.count) {
                return None;
            }
            rows = column.count.get();
            farther = third.stride;
        }
        if rows < 2 {
            return None;
        }
        let start = column.advance(self.start_of(outer, rest), at);
        Some(Plane {
            row: Row {
                stride: row.stride,
                count: row.count.get(),
                ..Row::of(self.piece.leaf, start, self.piece.len)
            },
            far: column.stride,
            rows,
            farther,
            planes,
        })
    }

    /// Returns the address of the first piece at index `rest` of the dimensions `outer`.
    #[inline(always)]
    fn start_of(&self, outer: &[Axis], mut rest: u64) -> u64 {
        let mut start = self.piece.addr;
        for axis in outer {
            step();
            // The last dimensions, and those after an index of zero, need no division.
            if rest < axis.count.get() {
                return axis.advance(start, rest);
            }
            start = axis.advance(start, rest % axis.count);
            rest /= axis.count;
        }
        start
    }

    /// Returns the place of `offset`, and a cursor to the rows after it.
    #[inline(always)]
    pub(super) fn seek(&self, offset: u64) -> (Place, GridWalk<'_>) {
        step();
        let index = offset / self.bytes;
        let pos = offset.wrapping_sub(index.wrapping_mul(self.bytes.get()));
        let [row, outer @ ..] = &self.axes;
        let (mut inner, mut start) = (index, self.piece.addr);
        let mut digits = [0; MAX_DIMS - 1];
        step();
        // In one dimension, or in the first row, no other division is needed.
        if index >= row.count.get() {
            inner = index % row.count;
            let mut index = index / row.count;
            let used = self.used.saturating_sub(1);
            for (axis, digit) in outer.iter().zip(&mut digits).take(used) {
                step();
                *digit = index % axis.count;
                index /= axis.count;
                start = axis.advance(start, *digit);
            }
        }
        let walk = GridWalk {
            grid: self,
            start,
            digits,
        };
        let mut place = Place {
            row: walk.row(),
            pos,
        };
        if inner != 0 {
            place.row.addr = row.advance(start, inner);
            place.row.count = place.row.count.saturating_sub(inner);
        }
        (place, walk)
    }
}
