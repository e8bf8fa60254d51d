// SPDX-License-Identifier: GPL-2.0

//! The cursor over the rows of an access.
//!
//! The functions that make and advance a cursor are always inlined. Otherwise a cursor is moved
//! after it is made, which takes longer than making it.

use core::iter::FusedIterator;

use super::blocks::BlocksWalk;
use super::grid::GridWalk;
use super::indexed::IndexedWalk;
use super::list_walk::ListWalk;
use super::steps::step;
use super::{Error, Pieces, Row};

/// Checks that `len` bytes from `offset` on are within `length`.
pub(super) fn check_range(offset: u64, len: u64, length: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= length => Ok(()),
        _ => Err(Error::Range),
    }
}

/// The place of an offset in a layout: a position in a piece, and the piece in a row.
///
/// Positions in the row are offsets relative to the piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The piece and those after it.
    pub(super) row: Row,
    /// The number of bytes of the piece before the offset.
    pub(super) pos: u64,
}

/// The source of the rows after the current one, endless or up to the layout's end.
pub(super) trait Walk<'a> {
    /// Returns the next row; `left` bytes are needed.
    fn next_row(&mut self, left: u64) -> Option<Row>;

    /// Takes pieces of several rows. The first is the current row, of which `held` is left. The
    /// pieces begin at position `at` in the access, which has `left` more bytes.
    ///
    /// Returns [`None`] if it is better to take the current row alone. The current row then stays.
    #[inline(always)]
    fn take(&mut self, _held: &Row, _left: u64, _at: u64) -> Option<Pieces<'a>> {
        None
    }
}

/// A cursor over the pieces of an access; an iterator over the same pieces as rows.
pub trait Cursor<'a>: Iterator<Item = Row> + Into<Rows<'a>> {
    /// Returns the next row, or pieces of several rows.
    #[inline(always)]
    fn next_pieces(&mut self) -> Option<Pieces<'a>> {
        self.next().map(Pieces::Row)
    }
}

/// The work of an access that needs a cursor.
///
/// Each kind of layout has its own cursor, and the work is compiled for each of them. One cursor
/// for all kinds would take longer to make and to advance.
pub trait Walker<'a> {
    /// The result.
    type Output;

    /// Does the work on the pieces of `rows`.
    fn walk(self, rows: impl Cursor<'a>) -> Self::Output;
}

/// Makes a cursor of any kind.
pub(super) struct IntoRows;

impl<'a> Walker<'a> for IntoRows {
    type Output = Rows<'a>;

    #[inline(always)]
    fn walk(self, rows: impl Cursor<'a>) -> Rows<'a> {
        rows.into()
    }
}

/// Rows that follow one another in the access.
#[derive(Clone, Debug)]
pub(super) struct Chain<W> {
    /// Position of the next byte.
    at: u64,
    /// Bytes of the access.
    end: u64,
    /// The bytes at the start of `held` that are not part of the access.
    skip: u64,
    /// The next row, if `at` is not at the end.
    held: Row,
    walk: W,
}

impl<'a, W: Walk<'a>> Chain<W> {
    /// Makes a cursor over `end` bytes that begin at `place` and continue with the rows of `walk`.
    #[inline(always)]
    pub(super) fn new(end: u64, (place, walk): (Place, W)) -> Self {
        Self {
            at: 0,
            end,
            skip: place.pos,
            held: place.row,
            walk,
        }
    }

    /// Returns pieces of several rows from the next one on, if the walk takes them.
    #[inline(always)]
    fn next_many(&mut self) -> Option<Pieces<'a>> {
        let left = self.end.wrapping_sub(self.at);
        if self.skip != 0 || left <= self.held.len {
            return None;
        }
        let pieces = self.walk.take(&self.held, left, self.at)?;
        self.at = self.at.wrapping_add(pieces.bytes());
        if self.at != self.end {
            self.held = self.walk.next_row(self.end.wrapping_sub(self.at))?;
        }
        Some(pieces)
    }

    /// Returns the next row.
    #[inline(always)]
    fn next_row(&mut self) -> Option<Row> {
        let left = self.end.checked_sub(self.at).filter(|left| *left != 0)?;
        step();
        let mut row = self.held;
        row.at = self.at;
        if self.skip != 0 || row.len > left {
            row.addr = row.addr.wrapping_add(self.skip);
            row.len = row.len.wrapping_sub(self.skip).min(left);
            row.count = 1;
            self.skip = 0;
        } else {
            row.step = row.len;
            if row.len.checked_mul(row.count).is_none_or(|all| all > left) {
                row.count = left.checked_div(row.len)?;
            }
        }
        // This is at most `left`.
        self.at = self.at.wrapping_add(row.len.wrapping_mul(row.count));
        if self.at != self.end {
            self.held = if row.count < self.held.count {
                self.held.skip(row.count)
            } else {
                self.walk.next_row(self.end.wrapping_sub(self.at))?
            };
        }
        Some(row)
    }
}

impl<'a, W: Walk<'a>> Iterator for Chain<W> {
    type Item = Row;

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        self.next_row()
    }
}

impl<'a, W: Walk<'a>> Cursor<'a> for Chain<W>
where
    Rows<'a>: From<Self>,
{
    #[inline(always)]
    fn next_pieces(&mut self) -> Option<Pieces<'a>> {
        match self.next_many() {
            Some(pieces) => Some(pieces),
            None => self.next().map(Pieces::Row),
        }
    }
}

/// A cursor of any kind.
#[derive(Clone, Debug)]
enum Kind<'a> {
    Empty,
    List(Chain<ListWalk<'a>>),
    Grid(Chain<GridWalk<'a>>),
    Indexed(Chain<IndexedWalk<'a>>),
    Blocks(BlocksWalk<'a>),
}

/// The rows of a range of offsets; an iterator over [`Row`].
///
/// It neither allocates nor walks the bytes before the range. A row costs a few additions and one
/// division, or no division if the range contains all of it.
#[derive(Clone, Debug)]
pub struct Rows<'a>(Kind<'a>);

/// Makes the rows of a cursor of one kind.
macro_rules! from {
    ($kind:ident, $cursor:ty) => {
        impl<'a> From<$cursor> for Rows<'a> {
            #[inline(always)]
            fn from(cursor: $cursor) -> Self {
                Self(Kind::$kind(cursor))
            }
        }
    };
}

from!(List, Chain<ListWalk<'a>>);
from!(Grid, Chain<GridWalk<'a>>);
from!(Indexed, Chain<IndexedWalk<'a>>);
from!(Blocks, BlocksWalk<'a>);

impl Rows<'_> {
    /// No rows.
    pub(super) const EMPTY: Self = Self(Kind::Empty);
}

impl Iterator for Rows<'_> {
    type Item = Row;

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        match &mut self.0 {
            Kind::Empty => None,
            Kind::List(list) => list.next(),
            Kind::Grid(grid) => grid.next(),
            Kind::Indexed(indexed) => indexed.next(),
            Kind::Blocks(blocks) => blocks.next(),
        }
    }
}

impl FusedIterator for Rows<'_> {}
