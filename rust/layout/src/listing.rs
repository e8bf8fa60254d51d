// SPDX-License-Identifier: GPL-2.0

//! A list that is made while its description is read, in one pass.

use core::ops::DerefMut;

use super::segments::{Mark, Segment, MAX_SEGMENT, SHORT};
use super::{Entry, Error, List};

/// Values by which the last segment is checked.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    /// The address of the first entry, and its offset in the list.
    first_addr: u64,
    start: u64,
    /// In a scattered segment, the bits that any address has, and those that all have.
    any: u64,
    all: u64,
}

/// A list that is being made. The entries are placed while they are added.
#[derive(Debug)]
pub struct Listing<S> {
    room: S,
    /// The number of entries that were added.
    added: usize,
    /// The sum of their bytes, modulo 2^64.
    length: u64,
    segment: Segment,
    /// The name of its leaf.
    name: u64,
    checked: Checked,
    /// `true` if a segment may not be valid. Then [`List::new`] places all entries again.
    doubtful: bool,
}

impl<S: DerefMut<Target = [Entry]>> Listing<S> {
    /// Begins a list of as many entries as `room` has. They are overwritten.
    pub fn new(room: S) -> Self {
        Self {
            room,
            added: 0,
            length: 0,
            segment: Segment::default(),
            name: 0,
            checked: Checked::default(),
            doubtful: false,
        }
    }

    /// Returns the number of entries that were added. After an error of [`Self::add`], this is the
    /// number of the entry that was wrong.
    pub fn added(&self) -> usize {
        self.added
    }

    /// Adds an entry for each of `items`. `range` returns the name of its leaf, its address and its
    /// length. `leaf` returns the leaf's number, and is called if the name is not that of the entry
    /// before. Each leaf has one name: an entry with another name begins a segment. Items for which
    /// there is no room are ignored.
    ///
    /// # Errors
    ///
    /// The first error of `leaf`. The list is of no use then.
    #[inline(always)]
    pub fn add<T, E>(
        &mut self,
        items: &[T],
        range: impl Fn(&T) -> (u64, u64, u64),
        mut leaf: impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<(), E> {
        let room = self.room.len().saturating_sub(self.added);
        let mut left = items.get(..room).unwrap_or(items);
        while !left.is_empty() {
            let added = if self.segment.is_scattered() {
                self.add_scattered(left, &range)
            } else if self.segment.count == 1 {
                self.add_singles(left, &range)
            } else {
                self.add_row(left, &range)
            };
            self.added = self.added.wrapping_add(added);
            left = left.get(added..).unwrap_or_default();
            if self.segment.ends_in_row() {
                self.split();
            } else if let Some((other, rest)) = left.split_first() {
                self.turn(range(other), &mut leaf)?;
                left = rest;
            }
        }
        Ok(())
    }

    /// Adds the items that continue the last segment, which is a row. Returns their number.
    #[inline(always)]
    fn add_row<T>(&mut self, items: &[T], range: &impl Fn(&T) -> (u64, u64, u64)) -> usize {
        let Some(distance) = self.segment.distance else {
            return 0;
        };
        let (distance, name) = (distance as u64, self.name);
        let Segment {
            count,
            leaf,
            length,
            mut addr,
            ..
        } = self.segment;
        let mut start = self.length;
        let slots = self.room.get_mut(self.added..).unwrap_or_default();
        let mut before = count;
        for (slot, item) in slots.iter_mut().zip(items) {
            let (next_name, next, next_length) = range(item);
            if next.wrapping_sub(addr) != distance || next_length != length || next_name != name {
                break;
            }
            addr = next;
            *slot = Entry::placed(leaf, addr, length, start, Mark::after(before));
            before = before.wrapping_add(1);
            start = start.wrapping_add(length);
        }
        self.length = start;
        self.segment.addr = addr;
        self.segment.count = before;
        self.segment.tail = before;
        before.wrapping_sub(count) as usize
    }

    /// Adds the items that continue the last segment, which is scattered, up to the item with which
    /// the last entries form a row. Returns their number.
    #[inline(always)]
    fn add_scattered<T>(&mut self, items: &[T], range: &impl Fn(&T) -> (u64, u64, u64)) -> usize {
        let Segment {
            count,
            leaf,
            length,
            mut addr,
            mut tail,
            distance,
            ..
        } = self.segment;
        let (Some(distance), name) = (distance, self.name) else {
            return 0;
        };
        let mut distance = distance as u64;
        let Checked {
            mut any, mut all, ..
        } = self.checked;
        let mut start = self.length;
        let slots = self.room.get_mut(self.added..).unwrap_or_default();
        let mut before = count;
        for (slot, item) in slots.iter_mut().zip(items) {
            let (next_name, next, next_length) = range(item);
            if next_length != length || next_name != name || tail > SHORT {
                break;
            }
            let far = next.wrapping_sub(addr);
            tail = if far == distance {
                tail.wrapping_add(1)
            } else {
                2
            };
            (distance, addr) = (far, next);
            any |= addr;
            all &= addr;
            *slot = Entry::placed(leaf, addr, length, start, Mark::after(before));
            before = before.wrapping_add(1);
            start = start.wrapping_add(length);
        }
        self.length = start;
        (self.checked.any, self.checked.all) = (any, all);
        self.segment = Segment {
            count: before,
            addr,
            tail,
            distance: Some(distance as i64),
            ..self.segment
        };
        before.wrapping_sub(count) as usize
    }

    /// Adds the items of which each has another length than the entry before. The last segment has
    /// one entry, and each of these items is a segment, too. Returns their number.
    // Not inlined, so that its loop does not take registers from the other loops.
    #[inline(never)]
    fn add_singles<T>(&mut self, items: &[T], range: &impl Fn(&T) -> (u64, u64, u64)) -> usize {
        let (leaf, name) = (self.segment.leaf, self.name);
        let (mut addr, mut length) = (self.segment.addr, self.segment.length);
        // The bits that are set in any address, and those in any length minus 1.
        let (mut any, mut less) = (0u64, 0u64);
        let mut start = self.length;
        let slots = self.room.get_mut(self.added..).unwrap_or_default();
        let mut count = 0usize;
        for (slot, item) in slots.iter_mut().zip(items) {
            let (next_name, next, next_length) = range(item);
            if next_length == length || next_name != name {
                break;
            }
            (addr, length) = (next, next_length);
            any |= addr;
            less |= length.wrapping_sub(1);
            *slot = Entry::placed(leaf, addr, length, start, Mark::SINGLE);
            start = start.wrapping_add(length);
            count = count.wrapping_add(1);
        }
        if count == 0 {
            return 0;
        }
        self.close();
        // No address is higher than `any`. Only a length of zero has the highest bit here.
        let most = less.wrapping_add(1).checked_mul(count as u64);
        let is_valid = less >> 63 == 0
            && any.checked_add(less).is_some()
            && most.is_some_and(|most| self.length.checked_add(most).is_some());
        self.doubtful |= !is_valid;
        self.length = start;
        let last = self.added.wrapping_add(count).wrapping_sub(1);
        self.segment = Segment::new(last, leaf, addr, length);
        self.checked = Checked {
            first_addr: addr,
            start: start.wrapping_sub(length),
            any: addr,
            all: addr,
        };
        count
    }

    /// Adds an entry that may begin a segment: the name of the leaf, the address and the length.
    #[inline(always)]
    fn turn<E>(
        &mut self,
        (name, addr, length): (u64, u64, u64),
        leaf: &mut impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<(), E> {
        let before = self.segment;
        let number = if before.count != 0 && name == self.name {
            before.leaf
        } else {
            leaf(name)?
        };
        let continues = self.segment.add(number, addr, length);
        if !continues {
            self.close();
            self.segment = Segment::new(self.added, number, addr, length);
            self.name = name;
            self.checked = Checked {
                first_addr: addr,
                start: self.length,
                any: addr,
                all: addr,
            };
        } else if self.segment.distance.is_none() {
            self.doubtful = true;
        } else if self.segment.is_scattered() {
            if !before.is_scattered() {
                self.doubtful |= !self.is_valid(&before);
                self.checked.any |= before.addr;
                self.checked.all &= before.addr;
            }
            self.checked.any |= addr;
            self.checked.all &= addr;
        }
        let mark = Mark::after(self.segment.count.wrapping_sub(1));
        if let Some(slot) = self.room.get_mut(self.added) {
            *slot = Entry::placed(number, addr, length, self.length, mark);
        }
        self.added = self.added.wrapping_add(1);
        self.length = self.length.wrapping_add(length);
        Ok(())
    }

    /// Makes the last entries of the segment, which is scattered, a row.
    fn split(&mut self) {
        self.doubtful |= !self.is_valid(&self.segment);
        let placed = self.room.get_mut(..self.added).unwrap_or_default();
        self.segment.split(placed);
        let Segment {
            first,
            count,
            length,
            ..
        } = self.segment;
        let bytes = length.wrapping_mul(count.into());
        let first_addr = self.room.get(first).map_or(0, Entry::addr);
        self.checked = Checked {
            first_addr,
            start: self.length.wrapping_sub(bytes),
            any: first_addr,
            all: first_addr,
        };
    }

    /// Returns `true` if a segment, which has the values of `self.checked`, is valid for certain:
    /// its entries are not empty, and neither the addresses nor the offset exceed 64 bits.
    fn is_valid(&self, segment: &Segment) -> bool {
        let Checked {
            first_addr,
            start,
            any,
            all,
        } = self.checked;
        let highest = if segment.is_scattered() {
            // No address is higher than `any`. If all addresses are in one half of the address
            // space, a stride can have the distance of any two.
            ((any ^ all) >> 63 == 0).then_some(any)
        } else {
            // Entries at equal distances could also wrap around the end of the address space.
            let distance = segment.distance.unwrap_or(0);
            let reach = distance
                .unsigned_abs()
                .checked_mul(u64::from(segment.count.wrapping_sub(1)));
            let is_up = segment.addr >= first_addr;
            (reach == Some(first_addr.abs_diff(segment.addr)) && is_up == (distance >= 0))
                .then_some(first_addr.max(segment.addr))
        };
        let last = highest.zip(segment.length.checked_sub(1));
        let bytes = segment.length.checked_mul(segment.count.into());
        last.is_some_and(|(highest, before_last)| highest.checked_add(before_last).is_some())
            && bytes.is_some_and(|bytes| start.checked_add(bytes).is_some())
    }

    /// Checks the last segment, and stores its length in its first entry.
    #[inline]
    fn close(&mut self) {
        if self.segment.count != 0 {
            self.doubtful |= !self.is_valid(&self.segment);
            self.segment.close(&mut self.room);
        }
    }

    /// Makes the list. Entries of the storage that were not added stay as they were.
    ///
    /// # Errors
    ///
    /// Those of [`List::new`].
    pub fn list(mut self) -> Result<List<S>, Error> {
        self.close();
        let all = self.added == self.room.len() && self.added != 0;
        // There may be more entries than a segment can have.
        if self.doubtful || !all || self.added >= MAX_SEGMENT as usize {
            return List::new(self.room);
        }
        Ok(List::of_placed(self.room, self.length))
    }
}
