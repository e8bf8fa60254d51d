// SPDX-License-Identifier: GPL-2.0

//! The cursor over the rows of an access.
//!
//! The functions that make and advance a cursor are always inlined. Otherwise a cursor is moved
//! after it is made, which takes longer than making it.

use core::iter::FusedIterator;

use super::blocks::BlocksWalk;
use super::grid::GridWalk;
use super::indexed::IndexedWalk;
use super::list::ListWalk;
use super::steps::step;
use super::{Error, Row};

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
    /// The number of pieces of the row before this one.
    pub(super) before: u64,
}

/// The source of the rows after the current one, endless or up to the layout's end.
#[derive(Clone, Debug)]
pub(super) enum Walk<'a> {
    List(ListWalk<'a>),
    Grid(GridWalk<'a>),
    Indexed(IndexedWalk<'a>),
}

impl Walk<'_> {
    /// Returns the next row; `left` bytes are needed.
    #[inline(always)]
    fn next_row(&mut self, left: u64) -> Option<Row> {
        match self {
            Self::List(list) => list.next_row(),
            Self::Grid(grid) => Some(grid.next_row()),
            Self::Indexed(indexed) => indexed.next_row(left),
        }
    }
}

/// Rows that follow one another in the access.
#[derive(Clone, Debug)]
pub(super) struct Chain<'a> {
    /// Position of the next byte.
    at: u64,
    /// Bytes of the access.
    end: u64,
    /// The bytes at the start of `held` that are not part of the access.
    skip: u64,
    /// The next row, if `at` is not at the end.
    held: Row,
    walk: Walk<'a>,
}

impl Chain<'_> {
    /// Returns the next row, with at most `most` pieces, which must not be zero.
    #[inline(always)]
    fn next_row(&mut self, most: u64) -> Option<Row> {
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
            row.count = row.count.min(most);
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

#[derive(Clone, Debug)]
enum Cursor<'a> {
    Empty,
    Chain(Chain<'a>),
    Blocks(BlocksWalk<'a>),
}

/// The rows of a range of offsets; an iterator over [`Row`].
///
/// It neither allocates nor walks the bytes before the range. A row costs a few additions and one
/// division, or no division if the range contains all of it.
#[derive(Clone, Debug)]
pub struct Rows<'a>(Cursor<'a>);

impl<'a> Rows<'a> {
    /// No rows.
    pub(super) const EMPTY: Self = Self(Cursor::Empty);

    /// Returns the rows of `end` bytes that begin at `place` and continue with those of `walk`.
    #[inline(always)]
    pub(super) fn new(end: u64, place: Place, walk: Walk<'a>) -> Self {
        Self(Cursor::Chain(Chain {
            at: 0,
            end,
            skip: place.pos,
            held: place.row,
            walk,
        }))
    }

    /// Returns the rows of several blocks.
    pub(super) fn of_blocks(walk: BlocksWalk<'a>) -> Self {
        Self(Cursor::Blocks(walk))
    }

    /// Returns the next row, with at most `most` pieces, which must not be zero. If there are
    /// several blocks, the row may have more.
    #[inline(always)]
    pub(super) fn next_of(&mut self, most: u64) -> Option<Row> {
        match &mut self.0 {
            Cursor::Empty => None,
            Cursor::Chain(chain) => chain.next_row(most),
            Cursor::Blocks(blocks) => blocks.next_row(),
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        self.next_of(u64::MAX)
    }
}

impl FusedIterator for Rows<'_> {}
