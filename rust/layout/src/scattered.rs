// SPDX-License-Identifier: GPL-2.0

//! Scattered pieces: pieces of one size at any places, which follow one another in an access.

use super::{Entry, Row};

/// The places of scattered pieces.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// Those of entries.
    Entries(&'a [Entry]),
    /// `addr + index * unit`, for each of the indices.
    U32 {
        /// The indices.
        indices: &'a [u32],
        /// The place of index 0.
        addr: u64,
        /// The distance of successive indices in bytes.
        unit: u64,
    },
    /// The same with 64-bit indices.
    U64 {
        /// The indices.
        indices: &'a [u64],
        /// The place of index 0.
        addr: u64,
        /// The distance of successive indices in bytes.
        unit: u64,
    },
}

/// Pieces of one leaf and one size, which follow one another in the access. Their distances in
/// memory differ.
///
/// All pieces are within the access and within the extents of the layout.
#[derive(Clone, Copy, Debug)]
pub struct Scattered<'a> {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Bytes of each piece; never zero.
    pub len: u64,
    /// Position of the first piece in the access.
    pub at: u64,
    /// Their places.
    pub places: Places<'a>,
}

/// The next pieces of an access.
#[derive(Clone, Copy, Debug)]
pub enum Pieces<'a> {
    /// Pieces at one distance.
    Row(Row),
    /// Pieces at several distances.
    Scattered(Scattered<'a>),
}

impl Places<'_> {
    /// Returns the number of pieces.
    #[inline]
    pub fn count(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::U32 { indices, .. } => indices.len(),
            Self::U64 { indices, .. } => indices.len(),
        }
    }

    /// Returns the address of piece `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        // This cannot overflow: the layout was checked when it was made.
        let place = |index: u64, addr: u64, unit: u64| addr.wrapping_add(index.wrapping_mul(unit));
        match self {
            Self::Entries(entries) => entries.get(index).map(Entry::addr),
            Self::U32 {
                indices,
                addr,
                unit,
            } => indices
                .get(index)
                .map(|index| place(u64::from(*index), *addr, *unit)),
            Self::U64 {
                indices,
                addr,
                unit,
            } => indices.get(index).map(|index| place(*index, *addr, *unit)),
        }
    }
}

impl<'a> Scattered<'a> {
    /// Returns the pieces, each as a row.
    pub fn rows(self) -> impl Iterator<Item = Row> + 'a {
        (0..self.places.count()).filter_map(move |index| {
            let row = Row::of(self.leaf, self.places.get(index)?, self.len);
            let before = self.len.wrapping_mul(index as u64);
            let at = self.at.wrapping_add(before);
            Some(Row { at, ..row })
        })
    }
}

impl Pieces<'_> {
    /// Returns the leaf.
    #[inline]
    pub fn leaf(&self) -> u32 {
        match self {
            Self::Row(row) => row.leaf,
            Self::Scattered(scattered) => scattered.leaf,
        }
    }
}
