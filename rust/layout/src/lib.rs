// SPDX-License-Identifier: GPL-2.0

//! Layouts of memory keys.
//!
//! A layout describes which bytes of which leaves an indirect memory key addresses, and in which
//! order. It is a [`List`] of ranges, an [`Interleaved`] pattern of strided blocks, or [`Indexed`]
//! blocks. The addresses of the key are the offsets `0..length`.
//!
//! A layout is checked completely when it is made. After that, [`Layout::rows`] turns a range of
//! offsets into rows: pieces of one size at one distance. It computes its position and does not
//! walk the bytes before it. [`compose()`] and [`pieces()`] turn a layout over keys into one over
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

mod block;
mod compose;
mod dims;
mod extent;
mod grid;
mod indexed;
mod interleaved;
mod layouts;
mod list;
mod pattern;
mod pieces;
mod rows;
mod run;
#[cfg(test)]
mod seek_tests;

pub use self::block::{Block, RecordRows};
pub use self::compose::{compose, pieces, Counts, Inner, Place};
pub use self::dims::MAX_DIMS;
pub use self::extent::{Extent, Reach};
pub use self::grid::GridRows;
pub use self::indexed::{AsIndexed, IndexSlice, Indexed, Indices, NoIndexed};
pub use self::interleaved::{Interleaved, Shape};
pub use self::layouts::Layout;
pub use self::list::List;
pub use self::pieces::{Entry, Pieces, Scale};
pub use self::rows::{GatherList, Rows, Segment};
pub use self::run::{Error, Part, Row, Run};
