// SPDX-License-Identifier: GPL-2.0

//! Runs of contiguous bytes, and the cursor over them.

use core::iter::FusedIterator;
use core::slice;

use super::grid::{GridWalk, Row};
use super::interleaved::BlocksWalk;
use super::steps::step;
use super::{Entry, Error};

/// Contiguous bytes of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes; never zero.
    pub len: u64,
}

impl Run {
    /// The rest of the run after its first `pos` bytes, fewer than it has.
    pub(super) fn skip(self, pos: u64) -> Self {
        Self {
            leaf: self.leaf,
            // Within the run, whose addresses were checked when the layout was made.
            addr: self.addr.wrapping_add(pos),
            len: self.len.saturating_sub(pos),
        }
    }

    /// `len` bytes after the first `pos`, if the run has them.
    pub(super) fn part(self, pos: u64, len: u64) -> Result<Self, Error> {
        let rest = self.skip(pos);
        if len == 0 {
            Err(Error::Zero)
        } else if len > rest.len {
            Err(Error::Straddles)
        } else {
            Ok(Self { len, ..rest })
        }
    }
}

/// Checks that `len` bytes from `offset` on are within `length`.
pub(super) fn check_range(offset: u64, len: u64, length: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= length => Ok(()),
        _ => Err(Error::Range),
    }
}

/// What gives the pieces after those at hand, endlessly or up to the layout's end.
#[derive(Clone, Debug)]
pub(super) enum Walk<'a> {
    List(slice::Iter<'a, Entry>),
    Grid(GridWalk<'a>),
    Blocks(BlocksWalk<'a>),
}

/// The runs of a range of offsets, in order; an iterator over [`Run`].
///
/// It neither allocates nor divides: a run costs a few additions.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// Bytes not given out yet.
    left: u64,
    /// The next run or its beginning, at least one byte of it; of no meaning
    /// if nothing is left.
    held: Run,
    /// The pieces that follow what is held, before those of `walk`. They do
    /// not join it.
    row: Row,
    walk: Walk<'a>,
}

impl<'a> Runs<'a> {
    /// `left` bytes that begin with `first` and go on with the pieces of `walk`.
    pub(super) fn new(left: u64, first: Run, walk: Walk<'a>) -> Self {
        Self::with_row(left, first, Row::EMPTY, walk)
    }

    /// `left` bytes that begin with `first` and go on with the pieces of `row`,
    /// then those of `walk`.
    pub(super) fn with_row(left: u64, first: Run, row: Row, walk: Walk<'a>) -> Self {
        Self {
            left,
            held: first,
            row,
            walk,
        }
    }

    /// Returns the number of bytes in the runs yet to come.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Gives out what is held, with all that joins it.
    fn next_joined(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let Self {
            left,
            held,
            row,
            walk,
        } = self;
        Some(match walk {
            Walk::List(entries) => join(left, held, || entries.next().map(Entry::piece)),
            Walk::Blocks(blocks) => join(left, held, || blocks.next_piece()),
            Walk::Grid(grid) => {
                let leaf = held.leaf;
                join(left, held, || {
                    if let Some((addr, len)) = row.next_piece() {
                        return Some(Run { leaf, addr, len });
                    }
                    let (piece, rest) = grid.next_row();
                    *row = rest;
                    Some(piece)
                })
            }
        })
    }
}

/// Gives out `held` with the pieces that join it, and holds the first one that does not.
#[inline(always)]
fn join(left: &mut u64, held: &mut Run, mut next_piece: impl FnMut() -> Option<Run>) -> Run {
    let mut run = *held;
    while run.len < *left {
        step();
        let Some(piece) = next_piece() else {
            break;
        };
        // Address zero does not follow the last byte of all.
        if piece.leaf != run.leaf || piece.addr != run.addr.wrapping_add(run.len) || piece.addr == 0
        {
            *left = left.saturating_sub(run.len);
            *held = piece;
            return run;
        }
        run.len = run.len.saturating_add(piece.len);
    }
    run.len = run.len.min(*left);
    *left = 0;
    run
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if let Some(left @ 1..) = self.left.checked_sub(self.held.len) {
            if let Some((addr, len)) = self.row.next_piece() {
                step();
                let run = self.held;
                self.left = left;
                self.held.addr = addr;
                self.held.len = len;
                return Some(run);
            }
        }
        self.next_joined()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left != 0), usize::try_from(self.left).ok())
    }
}

impl FusedIterator for Runs<'_> {}
