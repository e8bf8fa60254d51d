// SPDX-License-Identifier: GPL-2.0

//! Segments of a list: successive entries of one leaf and one length.
//!
//! The entries of a row have equal distances. The entries of a scattered segment are anywhere. A
//! few entries at one distance between other entries belong to a scattered segment, because
//! beginning a row takes longer than copying a few scattered pieces.

use core::mem;

use super::row::distance;
use super::{Entry, Error};

/// The largest number of entries at one distance that are a part of a scattered segment.
pub(super) const SHORT: u32 = 16;

/// The largest number of entries of a segment.
pub(super) const MAX_SEGMENT: u32 = (1 << 30) - 1;

/// The place of an entry in its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark(u32);

/// The meaning of a [`Mark`].
pub(super) enum At {
    /// It begins a segment of that many entries.
    First { count: u32, is_scattered: bool },
    /// That many entries of the segment are before it.
    After(u32),
}

impl Mark {
    const FIRST: u32 = 1 << 31;
    const SCATTERED: u32 = 1 << 30;

    /// The mark of the entry of a segment of one entry.
    pub(super) const SINGLE: Self = Self(Self::FIRST | 1);

    /// Returns the mark of an entry that is not the first one: `before` entries of the segment are
    /// before it.
    #[inline]
    pub(super) fn after(before: u32) -> Self {
        Self(before)
    }

    /// Returns the mark of the first entry of a segment.
    #[inline]
    pub(super) fn first(count: u32, is_scattered: bool) -> Self {
        let kind = if is_scattered { Self::SCATTERED } else { 0 };
        Self(Self::FIRST | kind | count)
    }

    #[inline]
    pub(super) fn get(self) -> At {
        if self.0 & Self::FIRST == 0 {
            return At::After(self.0);
        }
        At::First {
            count: (self.0 & MAX_SEGMENT).max(1),
            is_scattered: self.0 & Self::SCATTERED != 0,
        }
    }
}

/// The last segment of the entries of a list that is being made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    /// The index of its first entry.
    pub(super) first: usize,
    /// The number of its entries.
    pub(super) count: u32,
    /// The leaf and length of its entries, and the address of the last one.
    pub(super) leaf: u32,
    pub(super) length: u64,
    pub(super) addr: u64,
    /// The number of its last entries that have one distance. In a row, it is the number of
    /// entries.
    pub(super) tail: u32,
    /// That distance, if they are at least two.
    pub(super) distance: Option<i64>,
}

impl Segment {
    /// Begins a segment by the entry at index `first`.
    #[inline]
    pub(super) fn new(first: usize, leaf: u32, addr: u64, length: u64) -> Self {
        Self {
            first,
            count: 1,
            leaf,
            length,
            addr,
            tail: 1,
            distance: None,
        }
    }

    /// Returns `true` if the entries are not at one distance.
    #[inline]
    pub(super) fn is_scattered(&self) -> bool {
        self.tail != self.count
    }

    /// Adds an entry; returns `false` if the entry begins another segment.
    #[inline]
    pub(super) fn add(&mut self, leaf: u32, addr: u64, length: u64) -> bool {
        if leaf != self.leaf || length != self.length || self.count == MAX_SEGMENT {
            return false;
        }
        let distance = distance(self.addr, addr);
        if distance.is_some() && distance == self.distance {
            self.tail = self.tail.wrapping_add(1);
        } else if !self.is_scattered() && self.count > SHORT {
            return false;
        } else {
            self.tail = if distance.is_some() { 2 } else { 1 };
            self.distance = distance;
        }
        self.addr = addr;
        self.count = self.count.wrapping_add(1);
        true
    }

    /// Returns `true` if enough of the last entries have one distance to form a row.
    #[inline]
    pub(super) fn ends_in_row(&self) -> bool {
        self.tail > SHORT && self.is_scattered()
    }

    /// Makes the last entries a row. They are the last ones of `entries`.
    pub(super) fn split(&mut self, entries: &mut [Entry]) {
        let before = Self {
            count: self.count.wrapping_sub(self.tail),
            tail: 0,
            ..*self
        };
        self.first = self.first.wrapping_add(before.count as usize);
        self.count = self.tail;
        before.close(entries);
        let tail = entries.get_mut(self.first..).unwrap_or_default();
        for (entry, before) in tail.iter_mut().zip(0..) {
            entry.set_mark(Mark::after(before));
        }
    }

    /// Stores the number of entries in the first one.
    #[inline]
    pub(super) fn close(&self, entries: &mut [Entry]) {
        if let Some(first) = entries.get_mut(self.first) {
            first.set_mark(Mark::first(self.count, self.is_scattered()));
        }
    }
}

/// Checks the entries, sets the offset of each, and finds the segments. Returns the list's length.
pub(super) fn place(entries: &mut [Entry]) -> Result<u64, Error> {
    if let [entry] = entries {
        return place_one(entry);
    }
    // `Entry::total()` reports the errors in their documented order.
    place_all(entries).or_else(|_| Entry::total(entries.iter().copied()))
}

/// Does the work of [`place`] for the only entry of a list.
#[inline]
fn place_one(entry: &mut Entry) -> Result<u64, Error> {
    if entry.length() == 0 {
        return Err(Error::Zero);
    }
    entry.extent()?;
    entry.set_start(0);
    entry.set_mark(Mark::SINGLE);
    Ok(entry.length())
}

/// Does the work of [`place`] in one pass.
fn place_all(entries: &mut [Entry]) -> Result<u64, Error> {
    let mut length = 0u64;
    // The length of the empty segment is zero, which no entry has, so the first entry begins a new
    // segment.
    let mut last = Segment::default();
    for index in 0..entries.len() {
        let Some(entry) = entries.get_mut(index) else {
            break;
        };
        let (leaf, addr, bytes) = (entry.leaf(), entry.addr(), entry.length());
        if bytes == 0 {
            return Err(Error::Zero);
        }
        entry.extent()?;
        entry.set_start(length);
        length = length.checked_add(bytes).ok_or(Error::Overflow)?;
        entry.set_mark(Mark::after(last.count));
        if !last.add(leaf, addr, bytes) {
            let before = mem::replace(&mut last, Segment::new(index, leaf, addr, bytes));
            if before.count != 0 {
                before.close(entries);
            }
        } else if last.ends_in_row() {
            let placed = entries.get_mut(..=index).unwrap_or_default();
            last.split(placed);
        }
    }
    if last.count == 0 {
        return Err(Error::Zero);
    }
    last.close(entries);
    Ok(length)
}
