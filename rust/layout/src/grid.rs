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

    /// The piece of `offset`, the position in it, and a cursor to the pieces after it.
    pub(super) fn seek(&self, offset: u64) -> (Run, u64, GridWalk<'_>) {
        step();
        let mut index = offset / self.bytes;
        let pos = offset % self.bytes;
        let mut addr = self.piece.addr;
        let mut digits = [0; MAX_DIMS];
        for (axis, digit) in self.axes.iter().zip(&mut digits).take(self.used) {
            step();
            *digit = index % axis.count;
            index /= axis.count;
            addr = axis.advance(addr, *digit);
        }
        let [inner, digits @ ..] = digits;
        let [row, outer @ ..] = &self.axes;
        let walk = GridWalk {
            piece: Run { addr, ..self.piece },
            stride: row.stride as u64,
            row: row.count.get().saturating_sub(1),
            left: row.count.get().saturating_sub(1).saturating_sub(inner),
            outer,
            digits,
        };
        (walk.piece, pos, walk)
    }
}

/// A cursor over the pieces of a [`Grid`], endless.
#[derive(Clone, Debug)]
pub(super) struct GridWalk<'a> {
    /// The piece it is at.
    piece: Run,
    /// Of the innermost dimension, as an addend that wraps.
    stride: u64,
    /// Steps in a whole row of the innermost dimension.
    row: u64,
    /// Steps left in this row.
    left: u64,
    outer: &'a [Axis; MAX_DIMS - 1],
    digits: [u64; MAX_DIMS - 1],
}

impl GridWalk<'_> {
    #[inline]
    pub(super) fn next_piece(&mut self) -> Run {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.piece.addr = self.piece.addr.wrapping_add(self.stride);
            }
            None => self.next_row(),
        }
        self.piece
    }

    /// Goes on to the next row. That takes constant time on average, since no
    /// used dimension has a count of one.
    fn next_row(&mut self) {
        self.left = self.row;
        let mut addr = self
            .piece
            .addr
            .wrapping_sub(self.stride.wrapping_mul(self.row));
        for (axis, digit) in self.outer.iter().zip(&mut self.digits) {
            step();
            let next = digit.saturating_add(1);
            if next < axis.count.get() {
                *digit = next;
                addr = addr.wrapping_add(axis.stride as u64);
                break;
            }
            addr = addr.wrapping_sub((axis.stride as u64).wrapping_mul(*digit));
            *digit = 0;
        }
        self.piece.addr = addr;
    }
}
