// SPDX-License-Identifier: GPL-2.0

//! Pieces of one size that follow one another in an access, but do not form a row.

use super::{Block, Entry, Row};

/// The places of scattered pieces.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// The addresses of entries.
    Entries(&'a [Entry]),
    /// The places of 32-bit indices.
    U32(&'a [u32], Scale),
    /// The places of 64-bit indices.
    U64(&'a [u64], Scale),
}

/// The place of the piece of each index of an [`Indexed`](super::Indexed) layout.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The place of index 0.
    pub addr: u64,
    /// The distance of successive indices in bytes.
    pub unit: u64,
    /// The first byte of the pieces of all indices of the layout.
    pub start: u64,
    /// The last byte of these pieces.
    pub last: u64,
}

impl Scale {
    /// Returns the place of the piece of `index`, one of the layout's indices.
    ///
    /// This does not overflow: when the layout was made, all pieces were within 64 bits.
    #[inline(always)]
    pub fn place(&self, index: u64) -> u64 {
        self.addr.wrapping_add(index.wrapping_mul(self.unit))
    }
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

/// Rows of one shape at one distance, which follow one another in the access; or several such
/// planes at one distance.
///
/// All pieces are within the access and within the extents of the layout.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// The first row. Its stride is not negative, and its pieces follow one another.
    pub row: Row,
    /// Distance in bytes from one row to the next in memory.
    pub far: i64,
    /// Number of rows of a plane; at least two.
    pub rows: u64,
    /// Distance in bytes from one plane to the next in memory. It has no meaning if there is only
    /// one plane.
    pub farther: i64,
    /// Number of planes; never zero.
    pub planes: u64,
}

/// Records of several pieces of one size, which follow one another in the access. The distance of
/// the records is constant.
///
/// All pieces are within the access and within the extents of the layout.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Bytes of each piece; never zero.
    pub len: u64,
    /// Position of the first piece in the access.
    pub at: u64,
    /// The pieces of a record, whose places are the addresses of these blocks.
    pub blocks: &'a [Block],
    /// The number to add to these addresses for the first record. The sums wrap.
    pub offset: u64,
    /// Distance in bytes from one record to the next in memory.
    pub far: i64,
    /// Number of records; never zero.
    pub count: u64,
}

/// The next pieces of an access.
#[derive(Clone, Copy, Debug)]
pub enum Pieces<'a> {
    /// Pieces at one distance.
    Row(Row),
    /// Rows at one distance.
    Plane(Plane),
    /// Records at one distance.
    Records(Records<'a>),
    /// Pieces at several distances.
    Scattered(Scattered<'a>),
}

impl Places<'_> {
    /// Returns the number of pieces.
    #[inline]
    pub fn count(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::U32(indices, _) => indices.len(),
            Self::U64(indices, _) => indices.len(),
        }
    }

    /// Returns the address of piece `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Entries(entries) => entries.get(index).map(Entry::addr),
            Self::U32(indices, scale) => indices
                .get(index)
                .map(|index| scale.place(u64::from(*index))),
            Self::U64(indices, scale) => indices.get(index).map(|index| scale.place(*index)),
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

impl Plane {
    /// Returns the number of bytes of a row.
    #[inline]
    pub fn row_bytes(&self) -> u64 {
        self.row.len.wrapping_mul(self.row.count)
    }

    /// Returns the number of bytes of all planes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let rows = self.rows.wrapping_mul(self.planes);
        self.row_bytes().wrapping_mul(rows)
    }

    /// Returns the rows.
    pub fn rows(self) -> impl Iterator<Item = Row> {
        (0..self.planes).flat_map(move |plane| {
            let farther = (self.farther as u64).wrapping_mul(plane);
            let first = self.rows.wrapping_mul(plane);
            (0..self.rows).map(move |index| {
                let far = (self.far as u64).wrapping_mul(index);
                let before = self.row_bytes().wrapping_mul(first.wrapping_add(index));
                Row {
                    addr: self.row.addr.wrapping_add(farther).wrapping_add(far),
                    at: self.row.at.wrapping_add(before),
                    ..self.row
                }
            })
        })
    }
}

impl<'a> Records<'a> {
    /// Returns the number of bytes of a record.
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        self.len.wrapping_mul(self.blocks.len() as u64)
    }

    /// Returns the lowest address of the blocks, and the distance from there to the end of the
    /// highest one. Returns [`None`] if there is no block.
    #[inline]
    pub fn span(&self) -> Option<(u64, u64)> {
        let (first, rest) = self.blocks.split_first()?;
        let (mut lowest, mut highest) = (first.addr(), first.addr());
        for block in rest {
            lowest = lowest.min(block.addr());
            highest = highest.max(block.addr());
        }
        Some((
            lowest,
            highest.wrapping_sub(lowest).saturating_add(self.len),
        ))
    }

    /// Returns the pieces, each as a row.
    pub fn rows(self) -> impl Iterator<Item = Row> + 'a {
        (0..self.count).flat_map(move |index| {
            let far = (self.far as u64).wrapping_mul(index);
            let offset = self.offset.wrapping_add(far);
            let at = self
                .at
                .wrapping_add(self.record_bytes().wrapping_mul(index));
            (0u64..).zip(self.blocks).map(move |(before, block)| Row {
                at: at.wrapping_add(self.len.wrapping_mul(before)),
                ..Row::of(self.leaf, block.addr().wrapping_add(offset), self.len)
            })
        })
    }
}

impl Pieces<'_> {
    /// Returns the number of bytes.
    #[inline(always)]
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Row(row) => row.len.wrapping_mul(row.count),
            Self::Plane(plane) => plane.bytes(),
            Self::Records(records) => records.record_bytes().wrapping_mul(records.count),
            Self::Scattered(scattered) => {
                scattered.len.wrapping_mul(scattered.places.count() as u64)
            }
        }
    }

    /// Returns the leaf.
    #[inline]
    pub fn leaf(&self) -> u32 {
        match self {
            Self::Row(row) => row.leaf,
            Self::Plane(plane) => plane.row.leaf,
            Self::Records(records) => records.leaf,
            Self::Scattered(scattered) => scattered.leaf,
        }
    }
}
