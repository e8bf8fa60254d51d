// SPDX-License-Identifier: GPL-2.0

//! Layouts of memory keys.
//!
//! A layout says which bytes of which leaves an indirect memory key addresses,
//! and in which order. It is either a [`List`] of ranges, one after another,
//! or an [`Interleaved`] pattern of strided blocks, or [`Indexed`] blocks.
//! Addresses of the key are zero-based: they are offsets `0..length`.
//!
//! A layout is checked completely when it is made. After that, [`Layout::rows`]
//! turns a range of offsets into rows of pieces of one size at one distance; it
//! computes its position and never walks what lies before it.
//! [`Layout::rows_of`] does that for a row whose leaf is a key itself.
//!
//! Nothing here allocates, recurses, panics or is `unsafe`, and nothing knows
//! the kernel: a leaf is a number that the caller gave it. The caller also
//! brings the storage of the entries, anything that derefs to a slice.
//!
//! These files are both a Cargo crate, for its tests, and a module of the
//! kernel module's crate. Paths are therefore relative, and what only suits a
//! crate's root is left out when `MODULE` is set, as the kernel does.

#![cfg_attr(not(MODULE), no_std)]
#![cfg_attr(MODULE, allow(dead_code, unreachable_pub, unused_imports))]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod blocks;
mod dims;
mod error;
mod extent;
mod grid;
mod indexed;
mod interleaved;
mod list;
mod nest;
mod row;
mod rows;
mod runs;
#[cfg(test)]
mod seek_tests;
mod steps;

use core::borrow::Borrow;
use core::ops::DerefMut;

pub use self::dims::MAX_DIMS;
pub use self::error::Error;
pub use self::extent::{Extent, Reach};
pub use self::indexed::{AsIndexed, IndexSlice, Indexed, Indices, NoIndexed};
pub use self::interleaved::{Block, Interleaved, Shape};
pub use self::list::{Entry, List};
pub use self::nest::RowsOf;
pub use self::row::{Order, Row};
pub use self::rows::Rows;
pub use self::runs::{Run, Runs};

/// What is bound to a key.
///
/// `E` and `B` store the entries of a list and the blocks of an interleaved
/// layout, `P` the rest of the latter; `I` is or stores an [`Indexed`].
// With a `P` that is a box, the variants are of one size.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Layout<E, B, P = Shape, I = NoIndexed> {
    /// Ranges, one after another.
    List(List<E>),
    /// Strided blocks.
    Interleaved(Interleaved<B, P>),
    /// Blocks of one size where indices say.
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

    /// Returns the bytes that entry or block `index` reaches in its leaf, or
    /// for index 0 what all indexed blocks reach.
    ///
    /// Gives [`None`] if there is no such entry or block.
    pub fn extent(&self, index: usize) -> Option<Extent> {
        match self {
            Self::List(list) => list.extent(index),
            Self::Interleaved(interleaved) => interleaved.extent(index),
            Self::Indexed(indexed) => (index == 0).then(|| indexed.as_indexed().extent()),
        }
    }

    /// Shows to `each` what the pieces reach, in order: those of adjacent entries
    /// of one leaf together, those of each block, or those of all indices.
    ///
    /// # Errors
    ///
    /// The first one of `each`, which then sees no more.
    #[inline]
    pub fn reach<R>(&self, mut each: impl FnMut(Reach) -> Result<(), R>) -> Result<(), R> {
        match self {
            Self::List(list) => list.reach(each),
            Self::Interleaved(interleaved) => (0..interleaved.blocks().len())
                .filter_map(|index| interleaved.reach(index))
                .try_for_each(each),
            Self::Indexed(indexed) => each(indexed.as_indexed().reach()),
        }
    }

    /// Returns the rows that make up `len` bytes from `offset` on.
    ///
    /// Adjacent pieces of a row can continue one another only where adjacent
    /// rows do: a row of contiguous pieces is one piece.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the bytes are not all within the layout's length.
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64, order: Order) -> Result<Rows<'_>, Error> {
        match self {
            Self::List(list) => list.rows(offset, len),
            Self::Interleaved(interleaved) => interleaved.rows(offset, len, order),
            Self::Indexed(indexed) => indexed.as_indexed().rows(offset, len),
        }
    }

    /// Returns the row that makes up `len` bytes from `offset` on, if there is one
    /// and it is found without a cursor: what [`Self::rows`] gives then, in any
    /// order.
    ///
    /// A single block in one dimension gives it for whole blocks and for a part of
    /// one: that is most accesses, for which a cursor takes longer than the rest.
    #[inline(always)]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        match self {
            Self::Interleaved(interleaved) => interleaved.only_row(offset, len),
            Self::List(_) | Self::Indexed(_) => None,
        }
    }

    /// Returns the rows that make up the pieces of `outer`, a row whose leaf is
    /// the key with this layout.
    ///
    /// A position in the access is one of the access that gave `outer`. Where
    /// pieces of `outer` advance by whole pieces of this layout, or several are
    /// in one piece of it, there is one row for many of them.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if a piece is not all within the layout's length.
    #[inline(always)]
    pub fn rows_of(&self, outer: Row, order: Order) -> Result<RowsOf<'_, E, B, P, I>, Error> {
        RowsOf::new(self, outer, order)
    }

    /// Returns the place of `offset`, which must be less than the length.
    fn place(&self, offset: u64) -> Option<rows::Place> {
        match self {
            Self::List(list) => list.place(offset),
            Self::Interleaved(interleaved) => interleaved.place(offset),
            Self::Indexed(indexed) => indexed.as_indexed().place(offset),
        }
    }

    /// Returns the runs that make up `len` bytes from `offset` on, in order.
    ///
    /// Each run is as long as it can be: no run continues, in the same leaf,
    /// where the one before it ended.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the bytes are not all within the layout's length.
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        match self {
            Self::List(list) => list.runs(offset, len),
            Self::Interleaved(interleaved) => interleaved.runs(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().runs(offset, len),
        }
    }

    /// Returns the one place where `len` bytes from `offset` on are, for an
    /// access that cannot be split.
    ///
    /// # Errors
    ///
    /// - [`Error::Range`] if the bytes are not all within the layout's length.
    /// - [`Error::Zero`] if `len` is zero.
    /// - [`Error::Straddles`] if they are not all in one entry or block, even
    ///   where the next one happens to continue in memory.
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        match self {
            Self::List(list) => list.resolve(offset, len),
            Self::Interleaved(interleaved) => interleaved.resolve(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().resolve(offset, len),
        }
    }
}
