// SPDX-License-Identifier: GPL-2.0

//! The cursor of layouts whose blocks form one piece.

use super::super::rows::Walk;
use super::super::steps::step;
use super::super::{Pieces, Plane, Row, MAX_DIMS};
use super::{Grid, SHORT_ROW};

/// An endless cursor over the rows of a [`Grid`].
#[derive(Clone, Debug)]
pub(in super::super) struct GridWalk<'a> {
    pub(super) grid: &'a Grid,
    /// Address of the first byte of the current row.
    pub(super) start: u64,
    pub(super) digits: [u64; MAX_DIMS - 1],
}

impl GridWalk<'_> {
    /// Advances to the next row.
    ///
    /// That takes constant time on average, because no remaining dimension has a count of one.
    pub(in super::super) fn next_row(&mut self) -> Row {
        let [_, outer @ ..] = &self.grid.axes;
        for (axis, digit) in outer.iter().zip(&mut self.digits) {
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
        self.row()
    }

    /// Returns the current row.
    pub(super) fn row(&self) -> Row {
        let [axis, ..] = &self.grid.axes;
        Row {
            leaf: self.grid.piece.leaf,
            addr: self.start,
            len: self.grid.piece.len,
            stride: axis.stride,
            count: axis.count.get(),
            at: 0,
            step: self.grid.piece.len,
        }
    }
}

impl<'a> Walk<'a> for GridWalk<'a> {
    #[inline(always)]
    fn next_row(&mut self, _left: u64) -> Option<Row> {
        Some(self.next_row())
    }

    #[inline(always)]
    fn take(&mut self, held: &Row, left: u64, at: u64) -> Option<Pieces<'a>> {
        let [row, column, ..] = &self.grid.axes;
        let [index, ..] = &mut self.digits;
        let rest = column.count.get().saturating_sub(*index);
        if rest < 2 || held.count != row.count.get() {
            return None;
        }
        let stride = u64::try_from(held.stride).ok()?;
        if stride.checked_mul(held.count)? > SHORT_ROW {
            return None;
        }
        let rows = left.checked_div(held.len.wrapping_mul(held.count))?;
        let rows = rows.min(rest);
        if rows < 2 {
            return None;
        }
        step();
        let after = rows.wrapping_sub(1);
        *index = index.wrapping_add(after);
        self.start = column.advance(self.start, after);
        let row = Row { at, ..*held };
        Some(Pieces::Plane(Plane {
            row,
            far: column.stride,
            rows,
            farther: 0,
            planes: 1,
        }))
    }
}
