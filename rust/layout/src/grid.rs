// SPDX-License-Identifier: GPL-2.0

//! Interleaved layouts whose blocks are one piece: the form with the fast cursor.

use core::num::NonZeroU64;

use super::steps::step;
use super::{Run, MAX_DIMS};

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

    /// The address `index` steps from `addr`.
    ///
    /// Intermediate sums may leave the address space where the result does
    /// not, so all address arithmetic of an accepted layout wraps.
    fn advance(&self, addr: u64, index: u64) -> u64 {
        addr.wrapping_add((self.stride as u64).wrapping_mul(index))
    }

    /// The address `index` steps before `addr`.
    fn retreat(&self, addr: u64, index: u64) -> u64 {
        addr.wrapping_sub((self.stride as u64).wrapping_mul(index))
    }

    /// The stride of a dimension that goes on where this one ends.
    fn next_stride(&self) -> Option<i64> {
        self.stride
            .checked_mul(i64::try_from(self.count.get()).ok()?)
    }
}

/// One piece, repeated.
///
/// Dimensions that only continue the piece, or one another, are gone: a layout
/// that describes contiguous bytes is one piece without dimensions.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    piece: Run,
    bytes: NonZeroU64,
    /// Innermost first.
    axes: [Axis; MAX_DIMS],
    used: usize,
}

impl Grid {
    /// Repeats `piece`, which has `bytes` bytes.
    ///
    /// `dims` gives count and stride of each dimension, innermost first.
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

    /// The piece of `offset`, the position in it, what is left of its row, and
    /// a cursor to the rows after it.
    pub(super) fn seek(&self, offset: u64) -> (Run, u64, Row, GridWalk<'_>) {
        step();
        let pos = offset % self.bytes;
        let mut index = offset / self.bytes;
        let mut digits = [0; MAX_DIMS];
        for (axis, digit) in self.axes.iter().zip(&mut digits).take(self.used) {
            step();
            *digit = index % axis.count;
            index /= axis.count;
        }
        let [inner, digits @ ..] = digits;
        let [row, outer @ ..] = &self.axes;
        let start = outer
            .iter()
            .zip(&digits)
            .fold(self.piece.addr, |addr, (axis, digit)| {
                axis.advance(addr, *digit)
            });
        let walk = GridWalk {
            piece: self.piece,
            row,
            outer,
            start,
            digits,
        };
        let (piece, row) = walk.row(inner);
        (piece, pos, row, walk)
    }
}

/// Pieces of one leaf and size, at one distance, that never join one another.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Of the next piece, if there is one.
    addr: u64,
    len: u64,
    stride: u64,
    left: u64,
}

impl Row {
    /// A row without pieces.
    pub(super) const EMPTY: Self = Self {
        addr: 0,
        len: 0,
        stride: 0,
        left: 0,
    };

    /// Address and length of the next piece.
    #[inline]
    pub(super) fn next_piece(&mut self) -> Option<(u64, u64)> {
        self.left = self.left.checked_sub(1)?;
        let addr = self.addr;
        self.addr = addr.wrapping_add(self.stride);
        Some((addr, self.len))
    }
}

/// A cursor over the rows of a [`Grid`], endless.
#[derive(Clone, Debug)]
pub(super) struct GridWalk<'a> {
    piece: Run,
    row: &'a Axis,
    outer: &'a [Axis; MAX_DIMS - 1],
    /// Where the row that it is at starts.
    start: u64,
    digits: [u64; MAX_DIMS - 1],
}

impl GridWalk<'_> {
    /// Goes on to the next row; returns its first piece and the others.
    ///
    /// That takes constant time on average, since no dimension that is left
    /// has a count of one.
    pub(super) fn next_row(&mut self) -> (Run, Row) {
        for (axis, digit) in self.outer.iter().zip(&mut self.digits) {
            step();
            let next = digit.saturating_add(1);
            if next < axis.count.get() {
                *digit = next;
                self.start = axis.advance(self.start, 1);
                break;
            }
            self.start = axis.retreat(self.start, *digit);
            *digit = 0;
        }
        self.row(0)
    }

    /// The piece at `index` in the row, and those after it.
    fn row(&self, index: u64) -> (Run, Row) {
        let addr = self.row.advance(self.start, index);
        let row = Row {
            addr: self.row.advance(addr, 1),
            len: self.piece.len,
            stride: self.row.stride as u64,
            left: self.row.count.get().saturating_sub(index).saturating_sub(1),
        };
        (Run { addr, ..self.piece }, row)
    }
}
