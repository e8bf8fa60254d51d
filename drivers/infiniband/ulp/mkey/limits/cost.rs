// SPDX-License-Identifier: GPL-2.0

//! What regions and bindings take of the kernel's memory, as it is charged to their owners: what the
//! allocators give, or more. `limits/sizes.rs` compares it with the sizes of the structures.
//!
//! The memory of stock MRs is not counted: they are not this module's.

use crate::layout::{Block, Entry};
use core::mem::size_of;
use kernel::{page::PAGE_SIZE, prelude::*};

/// Bytes of a region: rxe's structure, its first table of pages and its place among the device's
/// regions, what uverbs and the resource tracking keep, and the region of this module.
pub(crate) const REGION: i64 = 1024;

/// Bytes of a binding beside its entries or indices: the binding with its reference count and users,
/// the shape, and one leaf.
pub(crate) const BINDING: i64 = 512;

/// Bytes of each leaf but the first: the leaf in a table that has up to twice the room, and a node
/// among the pins of the device.
pub(crate) const LEAF: i64 = 256;

/// Bytes of a leaf of a flat list, in a table that has up to twice the room, and of a node while the
/// list is made.
pub(crate) const REACHED: i64 = 128;

/// Bytes of a flat list beside its entries and leaves.
pub(super) const FLAT: i64 = 128;

/// Bytes that rxe keeps for each page of a region.
const PAGE: usize = 16;

/// The largest block of the slab and page allocators that is a power of two; beyond, what is
/// allocated is whole pages.
const LARGEST: usize = PAGE_SIZE << 10;

/// Returns what the allocators give for `bytes` bytes.
fn allocation(bytes: usize) -> Result<i64> {
    let given = if bytes > LARGEST {
        bytes.checked_next_multiple_of(PAGE_SIZE)
    } else {
        bytes.checked_next_power_of_two()
    };
    Ok(i64::try_from(given.ok_or(ENOMEM)?)?)
}

/// Returns the bytes of `count` things of a type, one after another.
fn array<T>(count: usize) -> Result<i64> {
    allocation(count.checked_mul(size_of::<T>()).ok_or(ENOMEM)?)
}

/// Returns the bytes of a list of `count` entries.
pub(crate) fn entries(count: usize) -> Result<i64> {
    array::<Entry>(count)
}

/// Returns the bytes of a flat list of `count` entries, leaves apart.
pub(crate) fn flat(count: usize) -> Result<i64> {
    FLAT.checked_add(entries(count)?).ok_or(ENOMEM)
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

/// Returns the bytes of a region for fast registration of up to `max` elements: it has room for two
/// lists.
pub(crate) fn fast_reg(max: usize) -> Result<i64> {
    let lists = BINDING
        .checked_add(entries(max)?)
        .and_then(|one| one.checked_mul(2));
    lists
        .and_then(|lists| lists.checked_add(REGION))
        .ok_or(ENOMEM)
}
