// SPDX-License-Identifier: GPL-2.0

//! Pieces at any places: the entries of a list, or the blocks of indices.

use core::mem::size_of;

use super::extent::Extent;
use super::run::{distance, step, Error, Part, Row, Run};

/// A range of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    leaf: u32,
    /// Number of the first of the adjacent entries with this leaf and length. Set when the list is
    /// made, as `start` is.
    first: u32,
    addr: u64,
    length: u64,
    /// Offset of the first byte in the list.
    start: u64,
}

// The documentation gives this size as the memory that an entry takes.
const _: () = assert!(size_of::<Entry>() <= 32);

impl Entry {
    /// Describes `length` bytes of `leaf` from `addr` on.
    pub fn new(leaf: u32, addr: u64, length: u64) -> Self {
        Self {
            leaf,
            first: 0,
            addr,
            length,
            start: 0,
        }
    }

    /// Returns the leaf's number, as the caller gave it.
    pub fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Returns the address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the range.
    #[inline]
    pub(super) fn run(&self) -> Run {
        Run {
            leaf: self.leaf,
            addr: self.addr,
            len: self.length,
        }
    }

    /// Adds the bytes of `next` and returns `true`, if they continue this range.
    #[must_use]
    pub fn join(&mut self, next: &Self) -> bool {
        // Address zero does not follow the last address.
        let is_next =
            self.leaf == next.leaf && self.addr.checked_add(self.length) == Some(next.addr);
        match self.length.checked_add(next.length) {
            Some(length) if is_next => {
                self.length = length;
                true
            }
            _ => false,
        }
    }

    /// Returns the length of a list of `entries`.
    ///
    /// # Errors
    ///
    /// Those of [`List::new`](super::List::new).
    pub fn total(entries: impl Iterator<Item = Self>) -> Result<u64, Error> {
        let mut total = 0;
        for (at, entry) in entries.enumerate() {
            total = entry.end(total, at)?;
        }
        match total {
            0 => Err(Error::Zero(Part::All)),
            total => Ok(total),
        }
    }

    /// Returns the offset after the last byte of entry `at`, which begins at offset `start`.
    pub(super) fn end(&self, start: u64, at: usize) -> Result<u64, Error> {
        if self.length == 0 {
            return Err(Error::Zero(Part::entry(at)));
        }
        let extent = self.extent();
        extent.ok_or_else(|| Error::Overflow(Part::entry(at)))?;
        let end = start.checked_add(self.length);
        end.ok_or(Error::Overflow(Part::All))
    }

    /// Returns the offset of the first byte in the list.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Sets the place in the list: the offset of the first byte, and the number of the first of the
    /// adjacent entries with this leaf and length.
    pub(super) fn set_place(&mut self, start: u64, first: u32) {
        self.start = start;
        self.first = first;
    }

    /// Returns the address of the last byte of an entry of a list, which was checked.
    pub(super) fn last(&self) -> u64 {
        self.addr.wrapping_add(self.length).wrapping_sub(1)
    }

    /// Returns the bytes of the range; [`None`] if an address does not fit 64 bits.
    pub(super) fn extent(&self) -> Option<Extent> {
        Extent::new(self.leaf, self.addr, self.length)
    }
}

/// The place of the block of each index of an [`Indexed`](super::Indexed) layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub(super) leaf: u32,
    /// The place of index 0.
    pub(super) addr: u64,
    /// The distance of successive indices in bytes.
    pub(super) unit: u64,
    /// Bytes of a block.
    pub(super) len: u64,
}

impl Scale {
    /// Returns the address of the block of `index`, one of the layout's indices.
    #[inline]
    pub fn addr(&self, index: u64) -> u64 {
        self.block(index).addr
    }

    /// Returns the block of `index`, one of the layout's indices.
    ///
    /// This does not overflow: when the layout was made, all blocks were within 64 bits.
    #[inline]
    pub(super) fn block(&self, index: u64) -> Run {
        Run {
            leaf: self.leaf,
            addr: self.addr.wrapping_add(index.wrapping_mul(self.unit)),
            len: self.len,
        }
    }
}

/// Pieces at any places, in order.
#[derive(Clone, Copy, Debug)]
pub enum Pieces<'a> {
    /// The entries.
    Entries(&'a [Entry]),
    /// The blocks of 32-bit indices.
    U32(&'a [u32], Scale),
    /// The blocks of 64-bit indices.
    U64(&'a [u64], Scale),
}

/// The most pieces of a row, so that a row takes a bounded time, also if its pieces are joined.
const MAX_ROW: u64 = 256;

impl Pieces<'_> {
    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::U32(indices, _) => indices.len(),
            Self::U64(indices, _) => indices.len(),
        }
    }

    /// Returns piece `at`, if there is one.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Run> {
        match self {
            Self::Entries(entries) => entries.get(at).map(Entry::run),
            Self::U32(indices, scale) => {
                indices.get(at).map(|index| scale.block(u64::from(*index)))
            }
            Self::U64(indices, scale) => indices.get(at).map(|index| scale.block(*index)),
        }
    }

    /// Returns the first three pieces, if there are so many.
    #[inline]
    fn first_three(&self) -> Option<[Run; 3]> {
        Some(match self {
            Self::Entries(entries) => entries.first_chunk()?.each_ref().map(Entry::run),
            Self::U32(indices, scale) => {
                (*indices.first_chunk()?).map(|index: u32| scale.block(index.into()))
            }
            Self::U64(indices, scale) => (*indices.first_chunk()?).map(|index| scale.block(index)),
        })
    }

    /// Takes the first `count` pieces, or all.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Self {
        fn split<'a, T>(of: &mut &'a [T], count: usize) -> &'a [T] {
            let (taken, rest) = of.split_at_checked(count).unwrap_or((*of, &[]));
            *of = rest;
            taken
        }
        match self {
            Self::Entries(entries) => Self::Entries(split(entries, count)),
            Self::U32(indices, scale) => Self::U32(split(indices, count), *scale),
            Self::U64(indices, scale) => Self::U64(split(indices, count), *scale),
        }
    }

    /// Returns the bytes and the number of the first pieces in `bytes` bytes that have the leaf and
    /// size of the first one, unless they begin with a row.
    #[inline]
    pub(super) fn even(&self, bytes: u64) -> Option<(u64, u64)> {
        let [first, second, third] = self.first_three()?;
        let is_even = |piece: &Run| (piece.leaf, piece.len) == (first.leaf, first.len);
        if !is_even(&second) || !is_even(&third) {
            return None;
        }
        let most = usize::try_from(bytes.checked_div(first.len)?).ok()?;
        let far = second.addr.wrapping_sub(first.addr);
        if most < 3 || far == first.len || third.addr.wrapping_sub(second.addr) == far {
            return None;
        }
        let most = most.min(self.count());
        let count = match self {
            Self::Entries(entries) => {
                let (first, entries) = (entries.first()?.first, entries.get(..most)?);
                match entries.last() {
                    Some(last) if last.first == first => most,
                    _ => entries.partition_point(|entry| {
                        step();
                        entry.first == first
                    }),
                }
            }
            // All blocks have one size.
            Self::U32(..) | Self::U64(..) => most,
        } as u64;
        Some((first.len.wrapping_mul(count), count))
    }

    /// Takes the next row: pieces that are in `bytes` bytes, at least one. Examines no more.
    #[inline]
    pub(super) fn next_row(&mut self, bytes: u64) -> Option<Row> {
        step();
        let first = self.get(0)?;
        let mut row = Row::of_run(first);
        let mut last = first;
        let mut left = bytes;
        let mut next = 1usize;
        while row.count < MAX_ROW {
            step();
            left = left.saturating_sub(first.len);
            if left < first.len {
                break;
            }
            let piece = match self.get(next) {
                Some(piece) if (piece.leaf, piece.len) == (first.leaf, first.len) => piece,
                _ => break,
            };
            let far = distance(last.addr, piece.addr);
            match far {
                Some(far) if row.count == 1 => row.stride = far,
                _ if far == Some(row.stride) => {}
                _ => break,
            }
            row.count = row.count.wrapping_add(1);
            next = next.wrapping_add(1);
            last = piece;
        }
        self.take(next);
        Some(if row.count == 1 { row } else { row.joined() })
    }
}
