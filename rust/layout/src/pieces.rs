// SPDX-License-Identifier: GPL-2.0

//! Pieces at any places: the entries of a list, or the blocks of indices.

use core::mem::size_of;

use super::block::BlockAddrs;
use super::extent::Extent;
use super::run::{distance, step, Error, Part, Row, Run};

/// A range of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    leaf: u32,
    addr: u64,
    length: u64,
    /// Offset of the first byte in the list. Set when the list is made.
    start: u64,
}

// The documentation gives this size as the memory that an entry takes.
const _: () = assert!(size_of::<Entry>() <= 32);

impl Entry {
    /// Describes `length` bytes of `leaf` from `addr` on.
    pub fn new(leaf: u32, addr: u64, length: u64) -> Self {
        Self {
            leaf,
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
    pub fn total(entries: impl Iterator<Item = Self> + Clone) -> Result<u64, Error> {
        let mut lengths = entries.clone().map(|entry| entry.length);
        if let Some(at) = lengths.position(|length| length == 0) {
            return Err(Error::Zero(Part::entry(at)));
        }
        let mut total = 0u64;
        for (at, entry) in entries.enumerate() {
            let extent = entry.extent();
            extent.ok_or(Error::Overflow(Part::entry(at)))?;
            let sum = total.checked_add(entry.length);
            total = sum.ok_or(Error::Overflow(Part::All))?;
        }
        if total == 0 {
            return Err(Error::Zero(Part::All));
        }
        Ok(total)
    }

    /// Returns the offset of the first byte in the list.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Sets the offset of the first byte in the list.
    pub(super) fn set_start(&mut self, start: u64) {
        self.start = start;
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

/// Pieces at any places.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pieces<'a> {
    /// The entries.
    Entries(&'a [Entry]),
    /// The blocks of 32-bit indices.
    U32(&'a [u32], Scale),
    /// The blocks of 64-bit indices.
    U64(&'a [u64], Scale),
}

impl Pieces<'_> {
    /// Returns the pieces from piece `at` on.
    fn after(&self, at: usize) -> Self {
        match *self {
            Self::Entries(entries) => Self::Entries(entries.get(at..).unwrap_or_default()),
            Self::U32(indices, scale) => Self::U32(indices.get(at..).unwrap_or_default(), scale),
            Self::U64(indices, scale) => Self::U64(indices.get(at..).unwrap_or_default(), scale),
        }
    }

    /// Returns the number of pieces.
    fn len(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::U32(indices, _) => indices.len(),
            Self::U64(indices, _) => indices.len(),
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

    /// Returns piece `at`, if there is one.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<Run> {
        match self {
            Self::Entries(entries) => entries.get(at).map(Entry::run),
            Self::U32(indices, scale) => {
                indices.get(at).map(|index| scale.block(u64::from(*index)))
            }
            Self::U64(indices, scale) => indices.get(at).map(|index| scale.block(*index)),
        }
    }
}

/// The addresses of a gather list, in order. A loop for each variant takes less time for an address
/// than the iterator over all of them.
#[derive(Debug)]
pub enum Addrs<'r, 'a> {
    /// Those of entries.
    Entries(&'a [Entry]),
    /// Those of the blocks of 32-bit indices.
    U32(&'a [u32], Scale),
    /// Those of the blocks of 64-bit indices.
    U64(&'a [u64], Scale),
    /// Those of repeated blocks.
    Blocks(BlockAddrs<'r, 'a>),
}

/// Takes the first element off a slice.
#[inline]
fn take_first<'a, T>(of: &mut &'a [T]) -> Option<&'a T> {
    let (first, rest) = of.split_first()?;
    *of = rest;
    Some(first)
}

impl Iterator for Addrs<'_, '_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        step();
        match self {
            Self::Entries(entries) => take_first(entries).map(Entry::addr),
            Self::U32(indices, scale) => {
                take_first(indices).map(|index| scale.addr(u64::from(*index)))
            }
            Self::U64(indices, scale) => take_first(indices).map(|index| scale.addr(*index)),
            Self::Blocks(blocks) => blocks.next(),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = match self {
            Self::Entries(entries) => entries.len(),
            Self::U32(indices, _) => indices.len(),
            Self::U64(indices, _) => indices.len(),
            Self::Blocks(blocks) => blocks.len(),
        };
        (count, Some(count))
    }
}

impl ExactSizeIterator for Addrs<'_, '_> {}

/// The most pieces of a row, so that a row takes a bounded time, also if its pieces are joined.
const MAX_ROW: u64 = 256;

/// A cursor over the rows of some pieces.
#[derive(Clone, Debug)]
pub(super) struct PiecesWalk<'a> {
    pieces: Pieces<'a>,
    /// The number of the next piece.
    next: usize,
}

impl<'a> PiecesWalk<'a> {
    /// Makes a cursor at piece `next`.
    pub(super) fn at(pieces: Pieces<'a>, next: usize) -> Self {
        Self { pieces, next }
    }

    /// Returns the next piece and the number of pieces of its leaf and size that follow in `bytes`
    /// bytes, unless they begin with a row.
    #[inline]
    pub(super) fn even(&self, bytes: u64) -> Option<(Run, usize)> {
        let rest = self.pieces.after(self.next);
        let [first, second, third] = rest.first_three()?;
        let most = usize::try_from(bytes.checked_div(first.len)?).ok()?;
        let is_even = |piece: &Run| (piece.leaf, piece.len) == (first.leaf, first.len);
        let far = second.addr.wrapping_sub(first.addr);
        let is_row = far == first.len || third.addr.wrapping_sub(second.addr) == far;
        if most < 3 || is_row || !is_even(&second) || !is_even(&third) {
            return None;
        }
        let most = most.min(rest.len());
        let count = match rest {
            Pieces::Entries(entries) => entries.get(..most)?.iter().position(|entry| {
                step();
                !is_even(&entry.run())
            }),
            // All blocks have one size.
            Pieces::U32(..) | Pieces::U64(..) => None,
        };
        Some((first, count.unwrap_or(most)))
    }

    /// Takes the next `count` pieces, which are [`even`](Self::even).
    #[inline]
    pub(super) fn take<'r>(&mut self, count: usize) -> Addrs<'r, 'a> {
        let rest = self.pieces.after(self.next);
        self.next = self.next.saturating_add(count);
        match rest {
            Pieces::Entries(all) => Addrs::Entries(all.get(..count).unwrap_or_default()),
            Pieces::U32(all, scale) => Addrs::U32(all.get(..count).unwrap_or_default(), scale),
            Pieces::U64(all, scale) => Addrs::U64(all.get(..count).unwrap_or_default(), scale),
        }
    }

    /// Returns the next row: pieces that are in `bytes` bytes, at least one. Examines no more.
    #[inline]
    pub(super) fn next_row(&mut self, bytes: u64) -> Option<Row> {
        step();
        let first = self.pieces.get(self.next)?;
        let mut row = Row::of(first.leaf, first.addr, first.len);
        let mut last = first;
        self.next = self.next.checked_add(1)?;
        let mut left = bytes;
        while row.count < MAX_ROW {
            step();
            left = left.saturating_sub(first.len);
            if left < first.len {
                break;
            }
            let next = match self.pieces.get(self.next) {
                Some(next) if (next.leaf, next.len) == (first.leaf, first.len) => next,
                _ => break,
            };
            let far = distance(last.addr, next.addr);
            match far {
                Some(far) if row.count == 1 => row.stride = far,
                _ if far == Some(row.stride) => {}
                _ => break,
            }
            row.count = row.count.wrapping_add(1);
            self.next = self.next.wrapping_add(1);
            last = next;
        }
        Some(if row.count == 1 { row } else { row.joined() })
    }
}
