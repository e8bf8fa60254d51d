// SPDX-License-Identifier: GPL-2.0

//! The runs of an access: its contiguous bytes, joined from rows.

use std::borrow::Borrow;
use std::iter::FusedIterator;
use std::ops::DerefMut;

use ib_mkey_layout::{AsIndexed, Block, Entry, Error, Layout, Row, Rows, Run, Shape};

/// A layout, of which the tests read runs.
pub trait HasRuns {
    /// Returns the runs that make up `len` bytes from `offset` on, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the range is outside the layout.
    fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error>;
}

impl<E, B, P, I> HasRuns for Layout<E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        Ok(Runs::new(self.rows(offset, len)?))
    }
}

/// The runs of a range of offsets, in order; an iterator over [`Run`].
///
/// Each run is as long as possible: no run continues the previous one in the same leaf.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// The pieces that were not returned yet, before those of `rows`.
    row: Option<Row>,
    rows: Rows<'a>,
}

impl<'a> Runs<'a> {
    fn new(mut rows: Rows<'a>) -> Self {
        let row = rows.next();
        Self { row, rows }
    }

    /// Advances to the next piece, and returns it.
    fn advance(&mut self) -> Option<Run> {
        self.row = match self.row {
            Some(row) if row.count > 1 => Some(row.skip(1)),
            _ => self.rows.next(),
        };
        self.row.map(|row| row.piece())
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut run = self.row?.piece();
        while let Some(next) = self.advance() {
            // Address zero does not follow the last address.
            if next.leaf != run.leaf || run.addr.checked_add(run.len) != Some(next.addr) {
                break;
            }
            run.len += next.len;
        }
        Some(run)
    }
}

impl FusedIterator for Runs<'_> {}
