// SPDX-License-Identifier: GPL-2.0

//! The layout of a key: one of three kinds.

use core::borrow::Borrow;
use core::ops::DerefMut;

use super::block::Block;
use super::extent::{Extent, Reach};
use super::indexed::{AsIndexed, NoIndexed};
use super::interleaved::{Interleaved, Shape};
use super::list::List;
use super::pieces::Entry;
use super::rows::{Rows, Walk};
use super::run::{check_range, Error, Part, Row, Run};

/// The layout that is bound to a key.
///
/// `E` stores the entries of a list, `B` the blocks of an interleaved layout and `P` its shape; `I`
/// is or stores an [`Indexed`](super::Indexed).
// If `P` is a box, the variants have similar sizes.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Layout<E, B, P = Shape, I = NoIndexed> {
    /// Ranges, one after another.
    List(List<E>),
    /// Strided blocks.
    Interleaved(Interleaved<B, P>),
    /// Blocks of one size at the places that indices give.
    Indexed(I),
}

impl<E, B, P, I> Layout<E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    /// Returns the number of bytes that the key addresses; never zero.
    pub fn length(&self) -> u64 {
        match self {
            Self::List(list) => list.length(),
            Self::Interleaved(interleaved) => interleaved.length(),
            Self::Indexed(indexed) => indexed.as_indexed().length(),
        }
    }

    /// Returns the number of entries, blocks or indices.
    pub fn count(&self) -> usize {
        match self {
            Self::List(list) => list.entries().len(),
            Self::Interleaved(interleaved) => interleaved.blocks().len(),
            Self::Indexed(indexed) => indexed.as_indexed().indices().len(),
        }
    }

    /// Returns the number of the first entry, block or index whose extent is `wanted`.
    pub fn position(&self, mut wanted: impl FnMut(Extent) -> bool) -> Option<usize> {
        let extent = |at: usize| match self {
            Self::List(list) => list.entries().get(at)?.extent(),
            Self::Interleaved(interleaved) => interleaved.extent(at),
            Self::Indexed(indexed) => indexed.as_indexed().extent(at),
        };
        (0..self.count()).find(|at| extent(*at).is_some_and(&mut wanted))
    }

    /// Calls `each` with the pieces and their extent, in order: once for adjacent entries in one
    /// leaf, once for each block, or once for all indices.
    ///
    /// # Errors
    ///
    /// The first error of `each`, which ends the calls.
    pub fn reach<R>(&self, mut each: impl FnMut(Reach) -> Result<(), R>) -> Result<(), R> {
        match self {
            Self::List(list) => list.reach(each),
            Self::Interleaved(interleaved) => (0..interleaved.blocks().len())
                .filter_map(|index| interleaved.reach(index))
                .try_for_each(each),
            Self::Indexed(indexed) => each(indexed.as_indexed().reach()),
        }
    }

    /// Returns the row that is exactly `len` bytes from `offset` on, if it is found without a cursor.
    /// Most accesses are one row, and a cursor takes longer to make than to copy a small row.
    #[inline]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        let (piece, pos) = match self {
            _ if len == 0 => return None,
            Self::Interleaved(interleaved) => return interleaved.only_row(offset, len),
            Self::List(list) => list.piece(offset)?,
            Self::Indexed(indexed) if len > indexed.as_indexed().block_len() => return None,
            Self::Indexed(indexed) => indexed.as_indexed().piece(offset)?,
        };
        piece.part(pos, len).ok().map(Row::of_run)
    }

    /// Returns the rows that make up `len` bytes from `offset` on, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the range is outside the layout.
    #[inline]
    pub fn rows(&self, offset: u64, len: u64) -> Result<Rows<'_>, Error> {
        check_range(offset, len, self.length())?;
        if len == 0 {
            return Ok(Rows::none());
        }
        let pieces = |(walk, pos)| (Walk::Pieces(walk), pos);
        let found = match self {
            Self::List(list) => list.seek(offset).map(pieces),
            Self::Interleaved(interleaved) => interleaved.seek(offset),
            Self::Indexed(indexed) => indexed.as_indexed().seek(offset).map(pieces),
        };
        Ok(Rows::new(len, found.ok_or(Error::Range)?))
    }

    /// Returns the one place of `len` bytes from `offset` on, for an access that cannot be split.
    ///
    /// # Errors
    ///
    /// - [`Error::Range`] if the range is outside the layout.
    /// - [`Error::Zero`] if `len` is zero.
    /// - [`Error::Straddles`] if the bytes are in several entries or blocks, even if these are
    ///   contiguous in memory.
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        check_range(offset, len, self.length())?;
        if len == 0 {
            return Err(Error::Zero(Part::All));
        }
        let found = match self {
            Self::List(list) => list.piece(offset),
            Self::Interleaved(interleaved) => interleaved.piece(offset),
            Self::Indexed(indexed) => indexed.as_indexed().piece(offset),
        };
        let (piece, pos) = found.ok_or(Error::Range)?;
        piece.part(pos, len)
    }
}
