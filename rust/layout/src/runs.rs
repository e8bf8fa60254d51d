// SPDX-License-Identifier: GPL-2.0

//! Runs of contiguous bytes, and the cursor over them.

use core::iter::FusedIterator;
use core::slice;

use super::grid::GridWalk;
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

/// What gives the pieces after the first one, endlessly or up to the layout's end.
#[derive(Clone, Debug)]
pub(super) enum Walk<'a> {
    List(slice::Iter<'a, Entry>),
    Grid(GridWalk<'a>),
    Blocks(BlocksWalk<'a>),
}

impl Walk<'_> {
    #[inline]
    fn next_piece(&mut self) -> Option<Run> {
        step();
        match self {
            Self::List(entries) => entries.next().map(Entry::piece),
            Self::Grid(grid) => Some(grid.next_piece()),
            Self::Blocks(blocks) => blocks.next_piece(),
        }
    }
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
    walk: Walk<'a>,
}

impl<'a> Runs<'a> {
    /// `left` bytes that begin with `first` and go on with the pieces of `walk`.
    pub(super) fn new(left: u64, first: Run, walk: Walk<'a>) -> Self {
        Self {
            left,
            held: first,
            walk,
        }
    }

    /// Returns the number of bytes in the runs yet to come.
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let mut run = self.held;
        while run.len < self.left {
            let Some(piece) = self.walk.next_piece() else {
                break;
            };
            if piece.leaf != run.leaf || piece.addr != run.addr.wrapping_add(run.len) {
                self.left = self.left.saturating_sub(run.len);
                self.held = piece;
                return Some(run);
            }
            run.len = run.len.saturating_add(piece.len);
        }
        run.len = run.len.min(self.left);
        self.left = 0;
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left != 0), usize::try_from(self.left).ok())
    }
}

impl FusedIterator for Runs<'_> {}
