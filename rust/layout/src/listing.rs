// SPDX-License-Identifier: GPL-2.0

//! A list that is made while its description is read, in one pass.

use core::ops::DerefMut;

use super::list::{Entry, FIRST};
use super::row::distance;
use super::{Error, List};

/// The last row of the entries that were added.
///
/// Two entries form a row if they have one leaf and one length. Others continue it if they also
/// have the distance of these two.
#[derive(Clone, Copy, Debug, Default)]
struct LastRow {
    /// The index of the first entry, its address, and its offset in the list.
    first: usize,
    first_addr: u64,
    start: u64,
    /// The number of entries.
    count: usize,
    /// The name of the leaf by which the last entry was added, and its number.
    name: u64,
    leaf: u32,
    length: u64,
    /// The address of the last entry.
    addr: u64,
    /// The length and the distance that the next entry must have. The length is zero while the
    /// distance is not known, because no entry has that length.
    next_length: u64,
    distance: u64,
}

impl LastRow {
    /// Returns the offset after the row, if the row is valid: its entries are not empty, and the
    /// addresses and the offset do not exceed 64 bits.
    fn end(&self) -> Option<u64> {
        let before_last = self.length.checked_sub(1)?;
        let count = u64::try_from(self.count).ok()?;
        let (low, high) = (
            self.first_addr.min(self.addr),
            self.first_addr.max(self.addr),
        );
        high.checked_add(before_last)?;
        if count > 2 {
            // Equal distances could also lead around the end of the address space.
            let distance = (self.distance as i64).unsigned_abs();
            let reach = distance.checked_mul(count.wrapping_sub(1))?;
            if high.wrapping_sub(low) != reach {
                return None;
            }
        }
        self.start.checked_add(self.length.checked_mul(count)?)
    }
}

/// A list that is being made. The entries are placed while they are added.
#[derive(Debug)]
pub struct Listing<S> {
    room: S,
    /// The number of entries that were added.
    added: usize,
    /// The sum of their bytes, modulo 2^64.
    length: u64,
    row: LastRow,
    /// `true` if a row is not valid, or if no more rows are looked for. Then [`List::new`] places
    /// all entries again.
    doubtful: bool,
    /// The number of rows of one or two entries.
    short: u32,
}

/// The number of short rows after which entries are only stored: to begin and to end a row costs
/// more than to place its entries later.
const MAX_SHORT: u32 = 4;

impl<S: DerefMut<Target = [Entry]>> Listing<S> {
    /// Begins a list of as many entries as `room` has. They are overwritten.
    pub fn new(room: S) -> Self {
        Self {
            room,
            added: 0,
            length: 0,
            row: LastRow::default(),
            doubtful: false,
            short: 0,
        }
    }

    /// Adds an entry for each of `items`. `range` returns the name of its leaf, its address and its
    /// length. `leaf` returns the leaf's number, and is called if the name is not that of the entry
    /// before. Each leaf has one name: an entry with another name begins a row. Items for which
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
        let mut left = items;
        if self.added == 0 {
            if let Some((first, rest)) = left.split_first() {
                self.turn(range(first), &mut leaf)?;
                left = rest;
            }
        }
        loop {
            if self.short > MAX_SHORT {
                return self.store(left, &range, &mut leaf);
            }
            let slots = self.room.get_mut(self.added..).unwrap_or_default();
            let (mut row, mut start) = (self.row, self.length);
            let before = row.count;
            let mut other = None;
            for (slot, item) in slots.iter_mut().zip(left) {
                let (name, addr, length) = range(item);
                if addr.wrapping_sub(row.addr) != row.distance
                    || length != row.next_length
                    || name != row.name
                {
                    other = Some((name, addr, length));
                    break;
                }
                *slot = Entry::placed(row.leaf, addr, length, start, row.count as u32);
                row.addr = addr;
                row.count = row.count.wrapping_add(1);
                start = start.wrapping_add(length);
            }
            let added = row.count.wrapping_sub(before);
            if added != 0 && row.next_length == 0 {
                self.doubtful = true;
            }
            (self.row, self.length) = (row, start);
            self.added = self.added.wrapping_add(added);
            let Some(other) = other else {
                return Ok(());
            };
            self.turn(other, &mut leaf)?;
            left = left.get(added.wrapping_add(1)..).unwrap_or_default();
        }
    }

    /// Adds entries without placing them. As for [`Self::add`].
    #[inline(always)]
    fn store<T, E>(
        &mut self,
        items: &[T],
        range: &impl Fn(&T) -> (u64, u64, u64),
        leaf: &mut impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<(), E> {
        self.doubtful = true;
        let slots = self.room.get_mut(self.added..).unwrap_or_default();
        let count = slots.len().min(items.len());
        let (mut name, mut number) = (self.row.name, self.row.leaf);
        for (slot, item) in slots.iter_mut().zip(items) {
            let (next, addr, length) = range(item);
            if next != name {
                (name, number) = (next, leaf(next)?);
            }
            *slot = Entry::placed(number, addr, length, 0, 0);
        }
        (self.row.name, self.row.leaf) = (name, number);
        self.added = self.added.wrapping_add(count);
        Ok(())
    }

    /// Adds the second entry of a row, or the first one: the name of the leaf, the address and the
    /// length.
    #[inline(always)]
    fn turn<E>(
        &mut self,
        (name, addr, length): (u64, u64, u64),
        leaf: &mut impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<(), E> {
        let row = &mut self.row;
        let number = if row.count != 0 && name == row.name {
            row.leaf
        } else {
            leaf(name)?
        };
        let second = if row.count == 1 && number == row.leaf && length == row.length {
            distance(row.addr, addr)
        } else {
            None
        };
        let place = match second {
            Some(distance) => {
                row.name = name;
                row.count = 2;
                row.addr = addr;
                row.next_length = length;
                row.distance = distance as u64;
                1
            }
            None => {
                self.close();
                self.row = LastRow {
                    first: self.added,
                    first_addr: addr,
                    start: self.length,
                    count: 1,
                    name,
                    leaf: number,
                    length,
                    addr,
                    next_length: 0,
                    distance: 0,
                };
                FIRST | 1
            }
        };
        if let Some(slot) = self.room.get_mut(self.added) {
            *slot = Entry::placed(number, addr, length, self.length, place);
        }
        self.added = self.added.wrapping_add(1);
        self.length = self.length.wrapping_add(length);
        Ok(())
    }

    /// Checks the last row, and stores its length in its first entry.
    #[inline]
    fn close(&mut self) {
        let row = &self.row;
        if row.count <= 2 {
            self.short = self.short.saturating_add(1);
        }
        if row.count > 1 {
            if let Some(first) = self.room.get_mut(row.first) {
                first.set_row(FIRST | row.count as u32);
            }
        }
        if row.count != 0 && row.end().is_none() {
            self.doubtful = true;
        }
    }

    /// Makes the list. Entries that were not added stay as they were in the room.
    ///
    /// # Errors
    ///
    /// Those of [`List::new`].
    pub fn list(mut self) -> Result<List<S>, Error> {
        self.close();
        let all = self.added == self.room.len() && self.added != 0;
        // More entries than a row can count.
        if self.doubtful || !all || self.added >= FIRST as usize {
            return List::new(self.room);
        }
        Ok(List::of_placed(self.room, self.length))
    }
}
