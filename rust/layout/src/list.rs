// SPDX-License-Identifier: GPL-2.0

//! Ranges, one after another.

use core::mem::size_of;
use core::num::NonZeroU64;
use core::ops::DerefMut;

use super::blocks::whole;
use super::list_walk::{self, ListWalk};
use super::rows::{check_range, Chain, Place, Rows};
use super::segments::{self, Mark};
use super::steps::step;
use super::{Error, Extent, Pieces, Reach, Row, Run, Runs};

/// A range of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    leaf: u32,
    pub(super) addr: u64,
    length: u64,
    /// Offset of the first byte in the list. Set when the list is made.
    start: u64,
    /// The place of the entry in its segment. Set when the list is made.
    mark: Mark,
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
            mark: Mark::default(),
        }
    }

    /// Describes a range that is at `start` of a list, and at `mark` of its segment.
    #[inline]
    pub(super) fn placed(leaf: u32, addr: u64, length: u64, start: u64, mark: Mark) -> Self {
        Self {
            leaf,
            addr,
            length,
            start,
            mark,
        }
    }

    /// Sets the offset of the first byte in the list.
    #[inline]
    pub(super) fn set_start(&mut self, start: u64) {
        self.start = start;
    }

    /// Returns the place of the entry in its segment.
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Sets the place of the entry in its segment.
    #[inline]
    pub(super) fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
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
    /// Those of [`List::new`].
    pub fn total(entries: impl Iterator<Item = Self> + Clone) -> Result<u64, Error> {
        let mut lengths = entries.clone().map(|entry| entry.length).peekable();
        if lengths.peek().is_none() || lengths.any(|length| length == 0) {
            return Err(Error::Zero);
        }
        let mut total = 0u64;
        for entry in entries {
            entry.extent()?;
            total = total.checked_add(entry.length).ok_or(Error::Overflow)?;
        }
        Ok(total)
    }

    pub(super) fn extent(&self) -> Result<Extent, Error> {
        Extent::new(self.leaf, self.addr, self.length)
    }
}

/// Ranges, one after another.
#[derive(Debug, PartialEq, Eq)]
pub struct List<S> {
    pub(super) entries: S,
    length: u64,
}

impl<S: DerefMut<Target = [Entry]>> List<S> {
    /// Makes a list of `entries`.
    ///
    /// # Errors
    ///
    /// - [`Error::Zero`] if there are no entries, or if one has no bytes.
    /// - [`Error::Overflow`] if the sum of the bytes, or the address of an entry's last byte, does
    ///   not fit 64 bits.
    pub fn new(mut entries: S) -> Result<Self, Error> {
        let length = segments::place(&mut entries)?;
        Ok(Self { entries, length })
    }

    /// Makes a list of `length` bytes of entries that are placed.
    pub(super) fn of_placed(entries: S, length: u64) -> Self {
        Self { entries, length }
    }

    /// Makes a list without bytes, to be [refilled](Self::refill). `entries` must be empty.
    pub const fn unfilled(entries: S) -> Self {
        Self { entries, length: 0 }
    }

    /// Rebuilds the list from the entries that `fill` leaves in the storage.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`]. Neither the list nor an entry has bytes then.
    pub fn refill(&mut self, fill: impl FnOnce(&mut S)) -> Result<(), Error> {
        self.length = 0;
        fill(&mut self.entries);
        let placed = segments::place(&mut self.entries);
        // Some methods find a place by the entries alone.
        self.length = placed.inspect_err(|_| self.entries.fill(Entry::default()))?;
        Ok(())
    }

    /// Returns the storage of the entries.
    pub fn into_storage(self) -> S {
        self.entries
    }

    /// Returns the storage of the entries.
    pub fn storage(&self) -> &S {
        &self.entries
    }

    /// Returns the number of bytes; zero only for a list that was not filled.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the entries as they were given.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the extent of entry `index`, if there is one.
    pub fn extent(&self, index: usize) -> Option<Extent> {
        self.entries.get(index)?.extent().ok()
    }

    /// See [`Layout::reach`](super::Layout::reach).
    #[inline]
    pub(super) fn reach<E>(&self, mut each: impl FnMut(Reach) -> Result<(), E>) -> Result<(), E> {
        let mut all: Option<Reach> = None;
        for entry in self.entries.iter() {
            let Ok(extent) = entry.extent() else {
                continue;
            };
            let next = Reach { extent, count: 1 };
            all = match all {
                None => Some(next),
                Some(before) => match before.join(&next) {
                    Some(both) => Some(both),
                    None => {
                        each(before)?;
                        Some(next)
                    }
                },
            };
        }
        all.map_or(Ok(()), each)
    }

    /// See [`Layout::rows`](super::Layout::rows).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::rows`](super::Layout::rows).
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64) -> Result<Rows<'_>, Error> {
        check_range(offset, len, self.length)?;
        if len == 0 {
            return Ok(Rows::EMPTY);
        }
        Ok(self.chain(offset, len).ok_or(Error::Range)?.into())
    }

    /// Returns the cursor over a range, which must not be empty and must be within the layout.
    #[inline(always)]
    pub(super) fn chain(&self, offset: u64, len: u64) -> Option<Chain<ListWalk<'_>>> {
        let (index, pos) = self.seek(offset)?;
        Some(Chain::new(len, ListWalk::at(&self.entries, index, pos)?))
    }

    /// See [`Layout::only_row`](super::Layout::only_row).
    #[inline]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        check_range(offset, len, self.length).ok()?;
        // If most entries are shorter, a search would seldom find such a row.
        let count = self.entries.len() as u64;
        if len == 0 || count.checked_mul(len)? > self.length {
            return None;
        }
        let (index, pos) = self.seek(offset)?;
        let entry = self.entries.get(index)?;
        let is_all = len <= entry.length.wrapping_sub(pos);
        is_all.then(|| Row::of(entry.leaf, entry.addr.wrapping_add(pos), len))
    }

    /// Returns the bytes from `offset` to the end of its entry. Returns [`None`] if this needs a
    /// search, and for an offset outside of the list.
    #[inline(always)]
    pub fn rest(&self, offset: u64) -> Option<Run> {
        let (index, pos) = self.guess(offset)?;
        let entry = self.entries.get(index)?;
        Some(Run {
            leaf: entry.leaf,
            addr: entry.addr.wrapping_add(pos),
            len: entry.length.wrapping_sub(pos),
        })
    }

    /// See [`Layout::only_pieces`](super::Layout::only_pieces). It does not search: all entries
    /// before `offset` must have one length, too.
    #[inline(always)]
    pub(super) fn only_pieces(&self, offset: u64, len: u64) -> Option<Pieces<'_>> {
        let bytes = NonZeroU64::new(self.entries.first()?.length)?;
        let (index, count) = whole(offset, len, bytes)?;
        let (index, count) = (usize::try_from(index).ok()?, usize::try_from(count).ok()?);
        let entries = self.entries.get(index..index.checked_add(count)?)?;
        let entry = entries.first()?;
        if entry.start != offset || entry.length != bytes.get() {
            return None;
        }
        list_walk::only_pieces(&self.entries, index, entries)
    }

    /// Returns the place of `offset`.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        let (index, pos) = self.seek(offset)?;
        Some(ListWalk::at(&self.entries, index, pos)?.0)
    }

    /// See [`Layout::runs`](super::Layout::runs).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::runs`](super::Layout::runs).
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        Ok(Runs::new(len, self.rows(offset, len)?))
    }

    /// See [`Layout::resolve`](super::Layout::resolve).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::resolve`](super::Layout::resolve).
    #[inline(always)]
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        // Most lists that atomic operations pass have one entry.
        match self.entries.first() {
            Some(first) if len != 0 && Some(len) <= first.length.checked_sub(offset) => {
                step();
                Ok(Run {
                    leaf: first.leaf,
                    addr: first.addr.wrapping_add(offset),
                    len,
                })
            }
            _ => self.resolve_any(offset, len),
        }
    }

    /// Returns the place of an access, as [`Self::resolve`] does.
    #[inline(never)]
    fn resolve_any(&self, offset: u64, len: u64) -> Result<Run, Error> {
        check_range(offset, len, self.length)?;
        let (index, pos) = self.seek(offset).ok_or(Error::Range)?;
        let entry = self.entries.get(index).ok_or(Error::Range)?;
        Run {
            leaf: entry.leaf,
            addr: entry.addr,
            len: entry.length,
        }
        .part(pos, len)
    }

    /// Returns the index of the entry of `offset`, and the position in the entry.
    #[inline]
    fn seek(&self, offset: u64) -> Option<(usize, u64)> {
        self.guess(offset).or_else(|| self.search(offset))
    }

    /// Returns what [`Self::seek`] returns, if all entries before have one length. No search is
    /// needed then.
    #[inline(always)]
    fn guess(&self, offset: u64) -> Option<(usize, u64)> {
        step();
        let first = self.entries.first()?.length;
        if offset < first {
            return Some((0, offset));
        }
        let index = usize::try_from(offset.checked_div(first)?).ok()?;
        let entry = self.entries.get(index)?;
        let pos = offset.wrapping_sub(entry.start);
        (offset >= entry.start && pos < entry.length).then_some((index, pos))
    }

    /// Returns what [`Self::seek`] returns, by a search.
    #[inline(never)]
    fn search(&self, offset: u64) -> Option<(usize, u64)> {
        let after = self.entries.partition_point(|entry| {
            step();
            entry.start <= offset
        });
        // The first entry starts at 0, so at least one entry starts at or before the offset.
        let index = after.checked_sub(1)?;
        let entry = self.entries.get(index)?;
        Some((index, offset.wrapping_sub(entry.start)))
    }
}
