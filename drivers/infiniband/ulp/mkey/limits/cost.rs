// SPDX-License-Identifier: GPL-2.0

//! The kernel memory that is charged to the owners of regions and bindings. A charge is at least
//! the number of bytes that the allocators give. `region.rs` compares these costs with the sizes
//! of the structures.
//!
//! The memory of ordinary MRs is not charged, because this module does not allocate it.

use crate::layout::{Block, Entry};
use core::mem::size_of;
use kernel::{page::PAGE_SIZE, prelude::*};

/// Bytes of a region: rxe's structure, its first table of pages and its place in the device's table
/// of MRs, the structures of uverbs and of resource tracking, and the region of this module.
pub(crate) const REGION: i64 = 1024;

/// Bytes of a key of a kernel user: the region, and the slots for its staged layouts.
pub(crate) const KERNELS_KEY: i64 = REGION + 512;

/// Bytes of a part of a staged description. A caller that must not sleep gets a page more easily
/// than several consecutive ones.
pub(crate) const PART: usize = 4096;

/// Bytes of a part of a staged layout, and of its slot in a table that may be twice as large as
/// needed.
pub(crate) const STAGED_PART: i64 = PART as i64 + 64;

/// Bytes of a binding without its entries or indices: the binding with its reference count and
/// users, the shape, and one leaf.
pub(crate) const BINDING: i64 = 608;

/// Bytes by which a binding that is one range of a key refers to that key.
pub(crate) const RANGE: i64 = 96;

/// Bytes of each leaf except the first: the leaf, in a table that may be twice as large as
/// needed, and a node in the device's tree of pins.
pub(crate) const LEAF: i64 = 256;

/// Bytes of the layout over memory of keys over keys, without its blocks or entries and leaves.
pub(crate) const FLAT: i64 = 384;

/// Bytes of the binding of a memory window: rxe's structure, and the leaf with its pin.
pub(crate) const WINDOW: i64 = 512;

/// Bytes that rxe keeps for each page of an MR.
const PAGE: usize = 16;

/// The largest allocation that is rounded up to a power of two. Larger ones are rounded up to whole
/// pages.
const LARGEST: usize = PAGE_SIZE << 10;

/// Returns the bytes that the allocators give for a request of `bytes` bytes.
fn allocation(bytes: usize) -> Result<i64> {
    let given = if bytes > LARGEST {
        bytes.checked_next_multiple_of(PAGE_SIZE)
    } else {
        bytes.checked_next_power_of_two()
    };
    Ok(i64::try_from(given.ok_or(ENOMEM)?)?)
}

/// Returns the bytes of an array of `count` values of type `T`.
fn array<T>(count: usize) -> Result<i64> {
    allocation(count.checked_mul(size_of::<T>()).ok_or(ENOMEM)?)
}

/// Returns the bytes of a list of `count` entries.
pub(crate) fn entries(count: usize) -> Result<i64> {
    array::<Entry>(count)
}

/// Returns the bytes of an interleaved layout of `count` blocks.
pub(crate) fn blocks(count: usize) -> Result<i64> {
    array::<Block>(count)
}

/// Returns the bytes of an indexed layout of `count` indices of the type `T`.
pub(crate) fn indices<T>(count: usize) -> Result<i64> {
    array::<T>(count)
}

/// Returns the bytes of a region of `pages` pages.
pub(crate) fn pages(pages: usize) -> Result<i64> {
    let table = allocation(pages.checked_mul(PAGE).ok_or(ENOMEM)?)?;
    REGION.checked_add(table).ok_or(ENOMEM)
}

/// Returns the bytes of a region for fast registration of up to `max` elements, which has two
/// lists.
pub(crate) fn fast_reg(max: usize) -> Result<i64> {
    let lists = BINDING
        .checked_add(entries(max)?)
        .and_then(|one| one.checked_mul(2));
    lists
        .and_then(|lists| lists.checked_add(REGION))
        .ok_or(ENOMEM)
}
