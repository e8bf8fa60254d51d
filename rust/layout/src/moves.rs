// SPDX-License-Identifier: GPL-2.0

//! Moves of a layout to another address.
//!
//! A program that describes a layout for each message often describes the same blocks at another
//! address. What was computed when the layout was made depends only on the distances of the blocks.
//! So a move keeps it.

use core::borrow::BorrowMut;
use core::ops::DerefMut;

use super::shape::Method;
use super::{
    AsIndexed, Block, Entry, Error, Extent, Granularity, Interleaved, Layout, List, Shape, MAX_DIMS,
};

/// The bounds of the pieces of a layout that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// From the lowest byte of all pieces to the highest.
    pub extent: Extent,
    /// The bits that are set in any address, or in any distance of two pieces.
    addrs: u64,
}

impl Moved {
    /// Returns the granularity of the pieces, which was `before` until they were moved.
    #[inline]
    #[must_use]
    pub fn granularity(&self, before: Granularity) -> Granularity {
        before.at(self.addrs)
    }
}

impl<S: DerefMut<Target = [Block]>, P: BorrowMut<Shape>> Interleaved<S, P> {
    /// Returns `true` if this layout has one block of `bytes_count` bytes, which is repeated
    /// `repeat_count` times at the distance `stride` in each dimension. The leaf and the address
    /// may be any. The strides beyond the dimensions are zero.
    #[inline]
    pub fn is_like(
        &self,
        repeat_count: &[u64],
        bytes_count: u64,
        stride: &[i64; MAX_DIMS],
    ) -> bool {
        let [own] = &*self.blocks else {
            return false;
        };
        // A comparison of the whole arrays would be a call.
        let mut strides = own.stride().iter().zip(stride);
        own.bytes_count() == bytes_count
            && strides.all(|(own, stride)| own == stride)
            && self.repeat_counts().eq(repeat_count.iter().copied())
    }

    /// Moves the only block to `addr`. Returns the bounds of its pieces.
    ///
    /// # Errors
    ///
    /// With the layout unchanged: [`Error::Overflow`] if the address of a byte does not fit 64
    /// bits, [`Error::Range`] if there are several blocks.
    #[inline]
    pub fn move_to(&mut self, addr: u64) -> Result<Moved, Error> {
        let ([block], Method::Grid(grid)) =
            (&mut *self.blocks, &mut self.shape.borrow_mut().method)
        else {
            return Err(Error::Range);
        };
        let before = grid.move_to(addr);
        let Some((extent, addrs)) = grid.bounds() else {
            grid.move_to(before);
            return Err(Error::Overflow);
        };
        block.addr = addr;
        Ok(Moved { extent, addrs })
    }
}

impl<S: DerefMut<Target = [Entry]>> List<S> {
    /// Returns `true` if all entries of this list have one leaf and the lengths of `ranges`, and if
    /// all their addresses differ from those of `ranges` by the same distance, modulo 2^64. Each of
    /// `ranges` is an address and a length.
    #[inline]
    pub fn is_like(&self, mut ranges: impl ExactSizeIterator<Item = (u64, u64)>) -> bool {
        let mut entries = self.entries.iter();
        if ranges.len() != entries.len() {
            return false;
        }
        let Some((first, (addr, length))) = entries.next().zip(ranges.next()) else {
            return false;
        };
        let distance = addr.wrapping_sub(first.addr);
        first.length() == length
            && entries.zip(ranges).all(|(entry, (addr, length))| {
                entry.leaf() == first.leaf()
                    && entry.length() == length
                    && addr.wrapping_sub(entry.addr) == distance
            })
    }

    /// Moves the first entry to `addr`, and the others by the same distance. Returns their bounds.
    ///
    /// # Errors
    ///
    /// With the list unchanged: [`Error::Overflow`] if the address of a byte does not fit 64 bits,
    /// [`Error::Range`] if the entries have several leaves.
    #[inline]
    pub fn move_to(&mut self, addr: u64) -> Result<Moved, Error> {
        let first = self.entries.first().ok_or(Error::Zero)?;
        let (leaf, before) = (first.leaf(), first.addr);
        let (mut low, mut last) = (u64::MAX, 0u64);
        for entry in self.entries.iter() {
            if entry.leaf() != leaf {
                return Err(Error::Range);
            }
            low = low.min(entry.addr);
            // No entry is empty, or ends beyond the last address.
            last = last.max(entry.addr.wrapping_add(entry.length().wrapping_sub(1)));
        }
        let far = addr.abs_diff(before);
        let moved = |place: u64| {
            if addr >= before {
                place.checked_add(far)
            } else {
                place.checked_sub(far)
            }
        };
        let (low, last) = moved(low).zip(moved(last)).ok_or(Error::Overflow)?;
        let distance = addr.wrapping_sub(before);
        let mut addrs = 0;
        for entry in self.entries.iter_mut() {
            entry.addr = entry.addr.wrapping_add(distance);
            addrs |= entry.addr;
        }
        let extent = Extent::between(leaf, low, last);
        Ok(Moved { extent, addrs })
    }
}

impl<E, B, P, I> Layout<E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: BorrowMut<Shape>,
    I: AsIndexed,
{
    /// Moves a list or a block to `addr`, as [`List::move_to`] and [`Interleaved::move_to`] do.
    ///
    /// # Errors
    ///
    /// Those of the moves; [`Error::Range`] for an indexed layout. The layout is unchanged then.
    #[inline]
    pub fn move_to(&mut self, addr: u64) -> Result<Moved, Error> {
        match self {
            Self::List(list) => list.move_to(addr),
            Self::Interleaved(interleaved) => interleaved.move_to(addr),
            Self::Indexed(_) => Err(Error::Range),
        }
    }
}
