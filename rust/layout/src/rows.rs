// SPDX-License-Identifier: GPL-2.0

//! The cursors over the rows of an access.

use core::iter::FusedIterator;

use super::block::{BlocksWalk, RecordRows};
use super::grid::{GridRows, GridWalk};
use super::pieces::Pieces;
use super::run::{step, Row, Run};

/// A cursor over the rows of a layout from some piece on, endless or up to the layout's end.
#[derive(Clone, Debug)]
pub(super) enum Walk<'a> {
    Pieces(Pieces<'a>),
    Grid(GridWalk<'a>),
    Blocks(BlocksWalk<'a>),
}

impl<'a> Walk<'a> {
    /// Returns the next row: pieces that are in `bytes` bytes, at least one.
    #[inline]
    fn next_row(&mut self, bytes: u64) -> Option<Row> {
        match self {
            Self::Pieces(pieces) => pieces.next_row(bytes),
            Self::Grid(grid) => Some(grid.next_row(bytes)),
            Self::Blocks(blocks) => blocks.next_piece().map(Row::of_run),
        }
    }

    /// Returns the bytes and the number of pieces or records that are in `bytes` bytes, if
    /// [`Self::take`] is better than rows.
    #[inline]
    fn even(&self, bytes: u64) -> Option<(u64, u64)> {
        match self {
            Self::Pieces(pieces) => pieces.even(bytes),
            Self::Grid(grid) => grid.even(bytes),
            Self::Blocks(blocks) => blocks.records(bytes),
        }
    }

    /// Takes the next `count` pieces or records, which are [`even`](Self::even). They are from position
    /// `at` of the access on.
    #[inline]
    fn take(&mut self, count: u64, at: u64) -> Option<Segment<'_, 'a>> {
        Some(match self {
            Self::Pieces(pieces) => {
                let Run { leaf, len, .. } = pieces.get(0)?;
                let pieces = pieces.take(count as usize);
                Segment::List(GatherList {
                    leaf,
                    len,
                    at,
                    pieces,
                })
            }
            Self::Grid(grid) => Segment::Rows(grid.take(count, at)),
            Self::Blocks(blocks) => Segment::Records(blocks.take(count, at)),
        })
    }
}

/// Pieces of one leaf and one size, which follow one another in the access. Their distances in
/// memory differ.
#[derive(Debug)]
pub struct GatherList<'a> {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Bytes of each piece; never zero.
    pub len: u64,
    /// Position of the first piece in the access.
    pub at: u64,
    /// The pieces.
    pub pieces: Pieces<'a>,
}

/// The next pieces of an access.
#[derive(Debug)]
pub enum Segment<'r, 'a> {
    /// Pieces at one distance.
    Row(Row),
    /// Rows of pieces of one leaf and one size.
    Rows(GridRows<'r, 'a>),
    /// Rows of the fields of records. No two pieces of these rows share bytes.
    Records(RecordRows<'a>),
    /// Pieces at several distances.
    List(GatherList<'a>),
}

impl Segment<'_, '_> {
    /// Returns the leaf.
    #[inline]
    pub fn leaf(&self) -> u32 {
        match self {
            Self::Row(row) => row.leaf,
            Self::Rows(rows) => rows.leaf(),
            Self::Records(rows) => rows.leaf(),
            Self::List(list) => list.leaf,
        }
    }
}

/// The rows of a range of offsets, in order; an iterator over [`Row`].
///
/// The pieces of a row are never contiguous, because contiguous pieces are returned as one piece.
/// Adjacent rows may be contiguous.
///
/// It neither allocates nor walks the bytes before the range. A row costs a few additions and one
/// division, or no division if the range contains all of it.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// Position of the next row.
    at: u64,
    /// The bytes of rows that were not returned yet.
    left: u64,
    /// The bytes at the start of the next row that are not part of the access.
    skip: u64,
    walk: Walk<'a>,
}

impl<'a> Rows<'a> {
    /// Makes the rows of `len` bytes, from position `skip` of the next piece of `walk` on.
    pub(super) fn new(len: u64, (walk, skip): (Walk<'a>, u64)) -> Self {
        Self {
            at: 0,
            left: len,
            skip,
            walk,
        }
    }

    /// Returns no rows.
    pub(super) fn none() -> Self {
        Self::new(0, (Walk::Pieces(Pieces::Entries(&[])), 0))
    }

    /// Takes `bytes` bytes, at most those that are left. Returns their position.
    #[inline]
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.at;
        self.left = self.left.wrapping_sub(bytes);
        self.at = at.wrapping_add(bytes);
        at
    }

    /// Returns the next row, or a list of many rows or pieces.
    #[inline]
    pub fn next_segment(&mut self) -> Option<Segment<'_, 'a>> {
        if self.left == 0 {
            return None;
        }
        if self.skip == 0 {
            if let Some((bytes, count)) = self.walk.even(self.left) {
                let at = self.take(bytes);
                return self.walk.take(count, at);
            }
        }
        self.next().map(Segment::Row)
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    #[inline]
    fn next(&mut self) -> Option<Row> {
        if self.left == 0 {
            return None;
        }
        step();
        // The rest of a piece is a row.
        let bytes = if self.skip == 0 { self.left } else { 1 };
        let mut row = self.walk.next_row(bytes)?;
        if self.skip != 0 || row.len > self.left {
            row.addr = row.addr.wrapping_add(self.skip);
            row.len = row.len.wrapping_sub(self.skip).min(self.left);
            row.step = row.len;
            self.skip = 0;
        }
        row.at = self.take(row.len.wrapping_mul(row.count));
        Some(row)
    }
}

impl FusedIterator for Rows<'_> {}
