// SPDX-License-Identifier: GPL-2.0

//! Ranges, one after another.

use core::ops::DerefMut;

use super::extent::{Extent, Reach};
use super::pieces::{Entry, Pieces};
use super::run::{step, Error, Part, Run};

/// Ranges, one after another.
#[derive(Debug, PartialEq, Eq)]
pub struct List<S> {
    entries: S,
    length: u64,
}

/// Checks the entries, and sets the offset of each. Returns the list's length.
fn place(entries: &mut [Entry]) -> Result<u64, Error> {
    let mut length = 0;
    let (mut first, mut kind) = (0, None);
    for (at, entry) in entries.iter_mut().enumerate() {
        let own = Some((entry.leaf(), entry.length()));
        if own != kind {
            first = u32::try_from(at).map_err(|_| Error::Overflow(Part::All))?;
            kind = own;
        }
        entry.set_place(length, first);
        length = entry.end(length, at)?;
    }
    match length {
        0 => Err(Error::Zero(Part::All)),
        length => Ok(length),
    }
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

    /// Makes a list without bytes, to be [refilled](Self::refill). `entries` must be empty.
    pub const fn unfilled(entries: S) -> Self {
        Self { entries, length: 0 }
    }

    /// Rebuilds the list from the entries that `fill` leaves in the storage.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::new`]. The list has no bytes then.
    pub fn refill(&mut self, fill: impl FnOnce(&mut S)) -> Result<(), Error> {
        self.length = 0;
        fill(&mut self.entries);
        self.length = place(&mut self.entries)?;
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

    /// See [`Layout::reach`](super::Layout::reach).
    pub(super) fn reach<E>(&self, mut each: impl FnMut(Reach) -> Result<(), E>) -> Result<(), E> {
        let mut rest = self.entries();
        while let Some(first) = rest.first() {
            let leaf = first.leaf();
            let (mut start, mut last, mut count) = (u64::MAX, 0, 0usize);
            for entry in rest.iter().take_while(|entry| entry.leaf() == leaf) {
                start = start.min(entry.addr());
                last = last.max(entry.last());
                count = count.wrapping_add(1);
            }
            each(Reach {
                extent: Extent::between(leaf, start, last),
                count: count as u64,
            })?;
            rest = rest.get(count..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Returns the entries from that of `offset` on, and the position in the first one.
    pub(super) fn seek(&self, offset: u64) -> Option<(Pieces<'_>, u64)> {
        let (index, pos) = self.find(offset)?;
        Some((Pieces::Entries(self.entries.get(index..)?), pos))
    }

    /// Returns the entry of `offset`, and the position in the entry.
    #[inline]
    pub(super) fn piece(&self, offset: u64) -> Option<(Run, u64)> {
        let (index, pos) = self.find(offset)?;
        Some((self.entries.get(index)?.run(), pos))
    }

    /// Returns the index of the entry of `offset`, and the position in the entry.
    #[inline]
    fn find(&self, offset: u64) -> Option<(usize, u64)> {
        if offset >= self.length {
            return None;
        }
        step();
        // If all entries before have one length, no search is needed.
        let first = self.entries.first()?.length();
        let guess = usize::try_from(offset.checked_div(first)?).ok();
        if let Some(entry) = guess.and_then(|index| self.entries.get(index)) {
            let pos = offset.wrapping_sub(entry.start());
            if offset >= entry.start() && pos < entry.length() {
                return Some((guess?, pos));
            }
        }
        self.search(offset)
    }

    /// Returns what [`Self::find`] does, by a search.
    #[inline(never)]
    fn search(&self, offset: u64) -> Option<(usize, u64)> {
        let after = self.entries.partition_point(|entry| {
            step();
            entry.start() <= offset
        });
        // The first entry starts at 0, so at least one entry starts at or before the offset.
        let index = after.checked_sub(1)?;
        let entry = self.entries.get(index)?;
        Some((index, offset.wrapping_sub(entry.start())))
    }
}
