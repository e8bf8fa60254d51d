// SPDX-License-Identifier: GPL-2.0

//! Runs of contiguous bytes, and the cursor over them.

use core::iter::FusedIterator;

use super::steps::step;
use super::{Error, Row, Rows};

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
    /// Returns the run without its first `pos` bytes. The run must have more bytes than that.
    pub(super) fn skip(self, pos: u64) -> Self {
        Self {
            leaf: self.leaf,
            // This is within the run, whose addresses were checked when the layout was made.
            addr: self.addr.wrapping_add(pos),
            len: self.len.saturating_sub(pos),
        }
    }

    /// Returns `len` bytes after the first `pos`, if the run has them.
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

/// The runs of a range of offsets, in order; an iterator over [`Run`].
///
/// It neither allocates nor divides more often than [`Rows`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// The bytes of runs that were not returned yet.
    left: u64,
    /// The next pieces, if any bytes are left.
    row: Row,
    rows: Rows<'a>,
}

impl<'a> Runs<'a> {
    /// Makes the runs of `len` bytes, from rows in the order of the access.
    pub(super) fn new(len: u64, mut rows: Rows<'a>) -> Self {
        let row = rows.next();
        Self {
            left: len,
            row: row.unwrap_or(Row::of(0, 0, 0)),
            rows,
        }
    }

    /// Returns the number of bytes in the remaining runs.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Advances to the next piece; returns `false` if there is none.
    #[inline]
    fn step(&mut self) -> bool {
        if self.row.count > 1 {
            self.row = self.row.skip(1);
            return true;
        }
        match self.rows.next() {
            Some(row) => {
                self.row = row;
                true
            }
            None => false,
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let mut run = self.row.piece();
        loop {
            step();
            self.left = self.left.saturating_sub(self.row.len);
            if !self.step() {
                return Some(run);
            }
            let next = self.row.piece();
            // Address zero does not follow the last address.
            if next.leaf != run.leaf || run.addr.checked_add(run.len) != Some(next.addr) {
                return Some(run);
            }
            run.len = run.len.saturating_add(next.len);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left != 0), usize::try_from(self.left).ok())
    }
}

impl FusedIterator for Runs<'_> {}
