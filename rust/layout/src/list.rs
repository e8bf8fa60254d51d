// SPDX-License-Identifier: GPL-2.0

//! Ranges, one after another.

use core::mem::size_of;
use core::ops::DerefMut;

use super::runs::{check_range, Walk};
use super::steps::step;
use super::{Error, Extent, Run, Runs};

/// A range of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    leaf: u32,
    addr: u64,
    length: u64,
    /// Offset of the first byte in the list, once that is made.
    start: u64,
}

// What a user is told that an entry costs.
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

    /// Returns the leaf, as numbered by the caller.
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

    #[inline]
    pub(super) fn piece(&self) -> Run {
        Run {
            leaf: self.leaf,
            addr: self.addr,
            len: self.length,
        }
    }

    fn extent(&self) -> Result<Extent, Error> {
        Extent::new(self.leaf, self.addr, self.length)
    }
}

/// Ranges, one after another.
#[derive(Debug)]
pub struct List<S> {
    entries: S,
    length: u64,
}

impl<S: DerefMut<Target = [Entry]>> List<S> {
    /// Makes a list of `entries`.
    ///
    /// # Errors
    ///
    /// - [`Error::Zero`] if there are none, or one of no bytes.
    /// - [`Error::Overflow`] if the sum of the bytes, or the address of the
    ///   last byte of one of them, does not fit 64 bits.
    pub fn new(mut entries: S) -> Result<Self, Error> {
        let length = place(&mut entries)?;
        Ok(Self { entries, length })
    }

    /// Makes a list that describes nothing, to be [refilled](Self::refill).
    pub fn unfilled(entries: S) -> Self {
        Self { entries, length: 0 }
    }

    /// Describes what `fill` leaves in the storage of the entries.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`]; the list then describes nothing.
    pub fn refill(&mut self, fill: impl FnOnce(&mut S)) -> Result<(), Error> {
        self.length = 0;
        fill(&mut self.entries);
        self.length = place(&mut self.entries)?;
        Ok(())
    }

    /// Returns the number of bytes; zero only while the list describes nothing.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the entries, as they were described.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the bytes that entry `index` has, if there is one.
    pub fn extent(&self, index: usize) -> Option<Extent> {
        self.entries.get(index)?.extent().ok()
    }

    /// See [`Layout::runs`](super::Layout::runs).
    ///
    /// # Errors
    ///
    /// The same.
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        check_range(offset, len, self.length)?;
        let (entry, pos, rest) = self.seek(offset).ok_or(Error::Range)?;
        Ok(Runs::new(len, entry.skip(pos), Walk::List(rest.iter())))
    }

    /// See [`Layout::resolve`](super::Layout::resolve).
    ///
    /// # Errors
    ///
    /// The same.
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        check_range(offset, len, self.length)?;
        let (entry, pos, _) = self.seek(offset).ok_or(Error::Range)?;
        entry.part(pos, len)
    }

    /// The entry of `offset`, the position in it, and the entries after it.
    fn seek(&self, offset: u64) -> Option<(Run, u64, &[Entry])> {
        let after = self.entries.partition_point(|entry| {
            step();
            entry.start <= offset
        });
        // The first entry starts at 0, so that one is before.
        let (entry, rest) = self.entries.get(after.checked_sub(1)?..)?.split_first()?;
        Some((entry.piece(), offset.wrapping_sub(entry.start), rest))
    }
}

/// Checks entries and says where in the list each starts. Returns the list's length.
fn place(entries: &mut [Entry]) -> Result<u64, Error> {
    let length = Entry::total(entries.iter().copied())?;
    let mut start = 0u64;
    for entry in entries {
        entry.start = start;
        // At most the length.
        start = start.wrapping_add(entry.length);
    }
    Ok(length)
}
