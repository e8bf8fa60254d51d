// SPDX-License-Identifier: GPL-2.0

//! Ranges, one after another.

use core::mem::{self, size_of};
use core::ops::DerefMut;

use super::row::distance;
use super::rows::{check_range, Place, Rows, Walk};
use super::steps::step;
use super::work::Repeated;
use super::{Error, Extent, Grain, Reach, Row, Run, Runs};

/// A range of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    leaf: u32,
    addr: u64,
    length: u64,
    /// Offset of the first byte in the list. Set when the list is made.
    start: u64,
    /// The place of the entry in its row. Set when the list is made: [`FIRST`] plus the number of
    /// entries in the first entry of a row, otherwise the number of entries before it.
    row: u32,
}

/// Marks an entry that begins a row.
pub(super) const FIRST: u32 = 1 << 31;

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
            row: 0,
        }
    }

    /// Describes a range that is at `start` of a list, and at `row` of its row.
    #[inline]
    pub(super) fn placed(leaf: u32, addr: u64, length: u64, start: u64, row: u32) -> Self {
        Self {
            leaf,
            addr,
            length,
            start,
            row,
        }
    }

    /// Sets the place of the entry in its row.
    #[inline]
    pub(super) fn set_row(&mut self, row: u32) {
        self.row = row;
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

    /// Adds the bytes of `next`, unless they do not continue this range.
    #[must_use]
    pub fn join(&mut self, next: &Self) -> bool {
        // Address zero does not follow the last byte of all.
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

    fn extent(&self) -> Result<Extent, Error> {
        Extent::new(self.leaf, self.addr, self.length)
    }
}

/// Ranges, one after another.
#[derive(Debug, PartialEq, Eq)]
pub struct List<S> {
    entries: S,
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
        let length = place(&mut entries)?;
        Ok(Self { entries, length })
    }

    /// Makes a list of `length` bytes of entries that are placed.
    pub(super) fn of_placed(entries: S, length: u64) -> Self {
        Self { entries, length }
    }

    /// Makes a list without bytes, to be [refilled](Self::refill).
    pub fn unfilled(entries: S) -> Self {
        Self { entries, length: 0 }
    }

    /// Makes the list anew from the entries that `fill` leaves in the storage.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`]. The list has no bytes then.
    pub fn refill(&mut self, fill: impl FnOnce(&mut S)) -> Result<(), Error> {
        self.length = 0;
        fill(&mut self.entries);
        self.length = place(&mut self.entries)?;
        Ok(())
    }

    /// Returns the number of bytes; zero only if the list has no bytes.
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
        let Some((mut all, mut index)) = self.row_reach(0) else {
            return Ok(());
        };
        while let Some((row, next)) = self.row_reach(index) {
            index = next;
            all = match all.join(&row) {
                Some(all) => all,
                None => {
                    each(all)?;
                    row
                }
            };
        }
        each(all)
    }

    /// Returns the pieces, if there is one entry.
    pub(super) fn repeated(&self) -> Option<Repeated> {
        match &*self.entries {
            [entry] => Some(Repeated {
                len: entry.length,
                row: 1,
                stride: 0,
                has_rows: false,
                addrs: entry.addr,
            }),
            _ => None,
        }
    }

    /// Returns the pieces of the row that begins with entry `index`, and the index of the entry
    /// after the row.
    #[inline]
    fn row_reach(&self, index: usize) -> Option<(Reach, usize)> {
        let first = self.entries.get(index)?;
        let count = (first.row & !FIRST).max(1);
        let next = index.checked_add(count as usize)?;
        let last = self.entries.get(next.wrapping_sub(1))?;
        // The distance in a row is constant, so the others are between these two.
        let (low, high) = (first.addr.min(last.addr), first.addr.max(last.addr));
        let second = self
            .entries
            .get(index.wrapping_add(1))
            .filter(|_| count > 1);
        let addrs = first.addr | second.map_or(0, |second| second.addr);
        let end = high.wrapping_add(first.length.wrapping_sub(1));
        let reach = Reach {
            extent: Extent::between(first.leaf, low, end),
            len: first.length,
            count: count.into(),
            grain: Grain::new(first.length, addrs),
        };
        Some((reach, next))
    }

    /// See [`Layout::rows`](super::Layout::rows).
    ///
    /// # Errors
    ///
    /// As for [`Layout::rows`](super::Layout::rows).
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64) -> Result<Rows<'_>, Error> {
        check_range(offset, len, self.length)?;
        if len == 0 {
            return Ok(Rows::EMPTY);
        }
        let (index, pos) = self.seek(offset).ok_or(Error::Range)?;
        let (place, walk) = self.row(index, pos).ok_or(Error::Range)?;
        Ok(Rows::new(len, place, Walk::List(walk)))
    }

    /// See [`Layout::only_row`](super::Layout::only_row).
    #[inline]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        check_range(offset, len, self.length).ok()?;
        // The search is in vain if most entries are shorter.
        let count = self.entries.len() as u64;
        if len == 0 || count.checked_mul(len)? > self.length {
            return None;
        }
        let (index, pos) = self.seek(offset)?;
        let entry = self.entries.get(index)?;
        let is_all = len <= entry.length.wrapping_sub(pos);
        is_all.then(|| Row::of(entry.leaf, entry.addr.wrapping_add(pos), len))
    }

    /// Returns the place of `offset`.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        let (index, pos) = self.seek(offset)?;
        Some(self.row(index, pos)?.0)
    }

    /// See [`Layout::runs`](super::Layout::runs).
    ///
    /// # Errors
    ///
    /// As for [`Layout::runs`](super::Layout::runs).
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        Ok(Runs::new(len, self.rows(offset, len)?))
    }

    /// See [`Layout::resolve`](super::Layout::resolve).
    ///
    /// # Errors
    ///
    /// As for [`Layout::resolve`](super::Layout::resolve).
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
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
    fn seek(&self, offset: u64) -> Option<(usize, u64)> {
        let after = self.entries.partition_point(|entry| {
            step();
            entry.start <= offset
        });
        // The first entry starts at 0, so there is an entry before.
        let index = after.checked_sub(1)?;
        let entry = self.entries.get(index)?;
        Some((index, offset.wrapping_sub(entry.start)))
    }

    /// Returns the place of `pos` in entry `index`, and a cursor to the rows after it.
    fn row(&self, index: usize, pos: u64) -> Option<(Place, ListWalk<'_>)> {
        let entry = self.entries.get(index)?;
        let back = match entry.row {
            first if first & FIRST != 0 => 0,
            back => back as usize,
        };
        let first = index.checked_sub(back)?;
        let mut walk = ListWalk {
            entries: self.entries.get(first..)?,
        };
        let row = walk.next_row()?;
        let back = back as u64;
        let place = if row.count > back {
            Place {
                row: row.skip(back),
                pos,
                before: back,
            }
        } else {
            // Entries that continue one another form one piece.
            Place {
                row,
                pos: pos.wrapping_add(entry.length.wrapping_mul(back)),
                before: 0,
            }
        };
        Some((place, walk))
    }
}

/// A cursor over the rows of a [`List`].
#[derive(Clone, Debug)]
pub(super) struct ListWalk<'a> {
    entries: &'a [Entry],
}

impl ListWalk<'_> {
    /// Returns the next row, if there is one.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Row> {
        step();
        let entry = self.entries.first()?;
        let count = (entry.row & !FIRST).max(1);
        let rest = self.entries.get(count as usize..)?;
        let next = self.entries.get(1).unwrap_or(entry);
        self.entries = rest;
        let row = Row {
            leaf: entry.leaf,
            addr: entry.addr,
            len: entry.length,
            // The stride has no meaning in a row of one entry.
            stride: next.addr.wrapping_sub(entry.addr) as i64,
            count: u64::from(count),
            at: 0,
            step: entry.length,
        };
        Some(if count == 1 { row } else { row.joined() })
    }
}

/// The last row of the entries that [`place`] has visited.
struct LastRow {
    /// The index of its first entry.
    first: usize,
    /// The number of its entries.
    count: u32,
    /// The leaf and length of its entries, and the address of the last one.
    leaf: u32,
    length: u64,
    addr: u64,
    /// The distance of its entries, if there are at least two.
    stride: Option<i64>,
}

impl LastRow {
    /// Adds an entry, unless the entry does not continue the row.
    #[inline]
    fn add(&mut self, entry: &Entry) -> bool {
        if entry.leaf != self.leaf || entry.length != self.length || self.count == FIRST - 1 {
            return false;
        }
        let stride = distance(self.addr, entry.addr);
        if stride.is_none() || (self.stride.is_some() && stride != self.stride) {
            return false;
        }
        self.stride = stride;
        self.addr = entry.addr;
        self.count = self.count.wrapping_add(1);
        true
    }
}

/// Checks the entries, sets the offset of each, and finds the rows. Returns the list's length.
fn place(entries: &mut [Entry]) -> Result<u64, Error> {
    // `Entry::total()` reports the errors in their documented order.
    place_all(entries).or_else(|_| Entry::total(entries.iter().copied()))
}

/// Does the work of [`place`] in one pass.
fn place_all(entries: &mut [Entry]) -> Result<u64, Error> {
    if entries.is_empty() {
        return Err(Error::Zero);
    }
    let mut length = 0u64;
    let mut last = LastRow {
        first: 0,
        count: 0,
        leaf: 0,
        length: 0,
        addr: 0,
        stride: None,
    };
    for index in 0..entries.len() {
        let Some(entry) = entries.get_mut(index) else {
            break;
        };
        if entry.length == 0 {
            return Err(Error::Zero);
        }
        entry.extent()?;
        entry.start = length;
        length = length.checked_add(entry.length).ok_or(Error::Overflow)?;
        // The initial `last` has a length of zero, so no entry continues it: the first one begins a
        // row.
        let before = last.count;
        if last.add(entry) {
            entry.row = before;
            continue;
        }
        entry.row = FIRST | 1;
        let row = LastRow {
            first: index,
            count: 1,
            leaf: entry.leaf,
            length: entry.length,
            addr: entry.addr,
            stride: None,
        };
        close(entries, mem::replace(&mut last, row));
    }
    close(entries, last);
    Ok(length)
}

/// Stores the length of `row` in its first entry.
fn close(entries: &mut [Entry], row: LastRow) {
    if let Some(first) = entries.get_mut(row.first) {
        first.row = FIRST | row.count;
    }
}
