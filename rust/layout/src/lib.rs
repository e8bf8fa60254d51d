// SPDX-License-Identifier: GPL-2.0

//! Layouts of memory keys.
//!
//! A layout describes which bytes of which leaves an indirect memory key addresses, and in which
//! order. It is a [`List`] of ranges, an [`Interleaved`] pattern of strided blocks, or [`Indexed`]
//! blocks. The addresses of the key are the offsets `0..length`.
//!
//! A layout is checked completely when it is made. After that, [`Layout::rows`] turns a range of
//! offsets into rows: pieces of one size at one distance. It computes its position and does not
//! walk the bytes before it. [`compose`] and [`pieces`] turn a layout over keys into one over
//! memory.
//!
//! No code here allocates, recurses, panics or is `unsafe`, and none depends on the kernel: a leaf
//! is a number that the caller chose. The caller also provides the storage of the entries, a type
//! that derefs to a slice.
//!
//! These files are both a Cargo crate, for the tests, and a module in the kernel module's crate. So
//! paths are relative, and attributes of a crate's root are left out if `MODULE` is set, as the
//! kernel sets it.

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
mod compose;
mod dims;
mod error;
mod extent;
mod grid;
mod indexed;
mod indices;
mod interleaved;
mod list;
mod list_walk;
mod listing;
mod row;
mod rows;
mod runs;
mod scattered;
#[cfg(test)]
mod seek_tests;
mod segments;
mod shape;
mod steps;

use core::borrow::Borrow;
use core::ops::DerefMut;

pub use self::compose::{compose, pieces, Counts, Inner, Place};
pub use self::dims::MAX_DIMS;
pub use self::error::Error;
pub use self::extent::{Extent, Reach};
pub use self::indexed::{AsIndexed, Indexed, NoIndexed};
pub use self::indices::{IndexSlice, Indices};
pub use self::interleaved::Interleaved;
pub use self::list::{Entry, List};
pub use self::listing::Listing;
pub use self::row::{Order, Row};
pub use self::rows::{Cursor, Rows, Walker};
pub use self::runs::{Run, Runs};
pub use self::scattered::{Pieces, Places, Plane, Records, Scale, Scattered};
pub use self::shape::{Block, Shape};

/// The layout that is bound to a key.
///
/// `E` stores the entries of a list, `B` the blocks of an interleaved layout and `P` its shape; `I`
/// is or stores an [`Indexed`].
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

    /// Returns the extent of entry or block `index`. For index 0 of an indexed layout, returns the
    /// extent of all blocks.
    ///
    /// Returns [`None`] if there is no such entry or block.
    pub fn extent(&self, index: usize) -> Option<Extent> {
        match self {
            Self::List(list) => list.extent(index),
            Self::Interleaved(interleaved) => interleaved.extent(index),
            Self::Indexed(indexed) => (index == 0).then(|| indexed.as_indexed().extent()),
        }
    }

    /// Calls `each` with the pieces and their extent, in order: once for adjacent entries in one
    /// leaf, once for each block, or once for all indices.
    ///
    /// # Errors
    ///
    /// The first error of `each`, which ends the calls.
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
    /// The pieces of a row are never contiguous, because contiguous pieces are returned as one
    /// piece. Adjacent rows may be contiguous.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the range is outside the layout.
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64, order: Order) -> Result<Rows<'_>, Error> {
        match self {
            Self::List(list) => list.rows(offset, len),
            Self::Interleaved(interleaved) => interleaved.rows(offset, len, order),
            Self::Indexed(indexed) => indexed.as_indexed().rows(offset, len),
        }
    }

    /// Makes a cursor over `len` bytes from `offset` on, and returns the result of `walker`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the range is outside the layout, [`Error::Zero`] if it is empty.
    #[inline(always)]
    pub fn walk<'a, W: Walker<'a>>(
        &'a self,
        offset: u64,
        len: u64,
        order: Order,
        walker: W,
    ) -> Result<W::Output, Error> {
        rows::check_range(offset, len, self.length())?;
        if len == 0 {
            return Err(Error::Zero);
        }
        let output = match self {
            Self::List(list) => list.chain(offset, len).map(|rows| walker.walk(rows)),
            Self::Interleaved(interleaved) => interleaved.walk(offset, len, order, walker),
            Self::Indexed(indexed) => {
                let rows = indexed.as_indexed().chain(offset, len);
                rows.map(|rows| walker.walk(rows))
            }
        };
        output.ok_or(Error::Range)
    }

    /// Returns the one row that makes up `len` bytes from `offset` on, if there is one and it can
    /// be found without a cursor. It is the row that [`Self::rows`] returns for any order.
    ///
    /// A single block in one dimension has such a row for whole blocks and for a part of one. In
    /// other layouts, the row is a part of one entry or block. Most accesses are of these kinds,
    /// and a cursor would take longer than the rest of the access.
    #[inline(always)]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        match self {
            Self::Interleaved(interleaved) => interleaved.only_row(offset, len),
            Self::List(list) => list.only_row(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().only_row(offset, len),
        }
    }

    /// Returns the pieces that make up `len` bytes from `offset` on, if they can be found without a
    /// cursor: a row, whole rows of planes, whole records of one dimension, whole entries of one
    /// length, or whole blocks of indices. The pieces follow one another in the access, so they are
    /// right for any order.
    ///
    /// A message whose packets begin with whole pieces has no other accesses.
    #[inline(always)]
    pub fn only_pieces(&self, offset: u64, len: u64) -> Option<Pieces<'_>> {
        rows::check_range(offset, len, self.length()).ok()?;
        if len == 0 {
            return None;
        }
        match self {
            Self::Interleaved(interleaved) => interleaved.only_pieces(offset, len),
            Self::List(list) => list.only_pieces(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().only_pieces(offset, len),
        }
    }

    /// Returns the runs that make up `len` bytes from `offset` on, in order.
    ///
    /// Each run is as long as possible: no run continues the previous one in the same leaf.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the range is outside the layout.
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        match self {
            Self::List(list) => list.runs(offset, len),
            Self::Interleaved(interleaved) => interleaved.runs(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().runs(offset, len),
        }
    }

    /// Returns the one place of `len` bytes from `offset` on, for an access that cannot be split.
    ///
    /// # Errors
    ///
    /// - [`Error::Range`] if the range is outside the layout.
    /// - [`Error::Zero`] if `len` is zero.
    /// - [`Error::Straddles`] if the bytes are in several entries or blocks, even if these are
    ///   contiguous in memory.
    #[inline(always)]
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        match self {
            Self::List(list) => list.resolve(offset, len),
            Self::Interleaved(interleaved) => interleaved.resolve(offset, len),
            Self::Indexed(indexed) => indexed.as_indexed().resolve(offset, len),
        }
    }
}
