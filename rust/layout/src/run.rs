// SPDX-License-Identifier: GPL-2.0

//! Runs of contiguous bytes, rows of pieces at one distance, and errors.

/// The reason for which a layout, or an access to it, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A part that has no bytes, or that is zero.
    Zero(Part),
    /// More dimensions than [`MAX_DIMS`](super::MAX_DIMS).
    TooManyDims,
    /// A part with an address that does not fit 64 bits, or a length of all parts that does not.
    Overflow(Part),
    /// Bytes outside of the leaf.
    OutOfLeaf,
    /// Offsets beyond the length of the layout.
    Range,
    /// An unsplittable access that spans several entries or blocks.
    Straddles,
}

/// The part of a layout for which it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The layout as a whole, or the bytes of an access.
    All,
    /// The entry, block or index of this number.
    Entry(u32),
    /// The repeat count of this dimension.
    Dim(u32),
    /// The distance of successive indices.
    Unit,
}

impl Part {
    /// Returns the part that is entry `at`.
    #[cold]
    pub(super) fn entry(at: usize) -> Self {
        Self::Entry(u32::try_from(at).unwrap_or(u32::MAX))
    }
}

/// Checks that `len` bytes from `offset` on are within `length`.
pub(super) fn check_range(offset: u64, len: u64, length: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= length => Ok(()),
        _ => Err(Error::Range),
    }
}

/// Contiguous bytes of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes; never zero.
    pub len: u64,
}

impl Run {
    /// Returns `len` bytes after the first `pos`, if the run has them.
    pub(super) fn part(self, pos: u64, len: u64) -> Result<Self, Error> {
        let rest = self.len.checked_sub(pos).ok_or(Error::Range)?;
        if len == 0 {
            return Err(Error::Zero(Part::All));
        }
        if len > rest {
            return Err(Error::Straddles);
        }
        // This is within the run, whose addresses were checked when the layout was made.
        let addr = self.addr.wrapping_add(pos);
        Ok(Self { addr, len, ..self })
    }
}

/// Pieces of one leaf and one size, at one distance. They follow one another in the access.
///
/// Piece `i` is `len` bytes from address `addr + i * stride` on. All pieces of a row are within the
/// extents of the layout, so this sum does not overflow for any piece `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Address of the first piece.
    pub addr: u64,
    /// Bytes of each piece; never zero.
    pub len: u64,
    /// Distance in bytes from one piece to the next in memory. It has no meaning if there is one
    /// piece.
    pub stride: i64,
    /// Number of pieces; never zero.
    pub count: u64,
    /// Position of the first piece in the access.
    pub at: u64,
    /// Distance in bytes from one piece to the next in the access. It is the size of the pieces,
    /// except in a row of a field of records.
    pub step: u64,
}

impl Row {
    /// Makes a row of one piece.
    pub fn of(leaf: u32, addr: u64, len: u64) -> Self {
        Self {
            leaf,
            addr,
            len,
            stride: 0,
            count: 1,
            at: 0,
            step: len,
        }
    }

    /// Makes a row of one piece.
    #[inline]
    pub(super) fn of_run(run: Run) -> Self {
        Self::of(run.leaf, run.addr, run.len)
    }

    /// Returns the first piece.
    #[inline]
    pub fn piece(&self) -> Run {
        Run {
            leaf: self.leaf,
            addr: self.addr,
            len: self.len,
        }
    }

    /// Returns the row without its first `count` pieces. The row must have more pieces than that.
    ///
    /// The sums wrap. The results are in range, because they belong to a piece of the row.
    #[inline]
    #[must_use]
    pub fn skip(self, count: u64) -> Self {
        let far = (self.stride as u64).wrapping_mul(count);
        Self {
            addr: self.addr.wrapping_add(far),
            count: self.count.saturating_sub(count),
            at: self.at.wrapping_add(self.step.wrapping_mul(count)),
            ..self
        }
    }

    /// Returns the pieces as one piece, if each continues the one before.
    #[inline]
    pub(super) fn joined(self) -> Self {
        match self.len.checked_mul(self.count) {
            Some(len) if u64::try_from(self.stride) == Ok(self.len) => Self {
                len,
                count: 1,
                step: len,
                ..self
            },
            _ => self,
        }
    }
}

/// Returns the distance from address `from` to address `to`, if a stride can have that value.
#[inline]
pub(super) fn distance(from: u64, to: u64) -> Option<i64> {
    let distance = to.wrapping_sub(from) as i64;
    ((distance >= 0) == (to >= from)).then_some(distance)
}

/// Counts a division, a comparison or a piece in unit tests. Otherwise it compiles to nothing.
#[cfg(not(test))]
#[inline]
pub(super) fn step() {}

#[cfg(test)]
pub(super) use self::counted::{count, step};

#[cfg(test)]
mod counted {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// See the function of the same name that is no test.
    pub(in super::super) fn step() {
        STEPS.with(|steps| steps.set(steps.get().saturating_add(1)));
    }

    /// Returns what `f` returns and the steps that it took.
    pub(in super::super) fn count<T>(f: impl FnOnce() -> T) -> (T, u64) {
        STEPS.with(|steps| steps.set(0));
        let result = f();
        (result, STEPS.with(Cell::get))
    }
}
