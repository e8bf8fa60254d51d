// SPDX-License-Identifier: GPL-2.0

//! Moves of a layout to another address.
//!
//! A program that describes a layout for each message often describes the same blocks at another
//! place. What was found when the layout was made depends on the distances of the blocks, and not on
//! their place. It therefore stays.

use core::borrow::BorrowMut;
use core::ops::DerefMut;

use super::interleaved::Way;
use super::{AsIndexed, Block, Entry, Error, Extent, Interleaved, Layout, List, Reach, Shape};

impl<S: DerefMut<Target = [Block]>, P: BorrowMut<Shape>> Interleaved<S, P> {
    /// Returns `true` if a layout of `block`, repeated `repeat_count` times in each dimension, would
    /// be this one except for its leaf and its address. Returns `false` if this one has several
    /// blocks.
    #[inline]
    pub fn is_like(&self, repeat_count: &[u64], block: &Block) -> bool {
        let [own] = &*self.blocks else {
            return false;
        };
        // An array is compared by a call.
        let mut strides = own.stride().iter().zip(block.stride());
        own.bytes_count() == block.bytes_count()
            && strides.all(|(own, stride)| own == stride)
            && self.repeat_counts().eq(repeat_count.iter().copied())
    }

    /// Moves the only block to `addr`. Returns its pieces and their extent.
    ///
    /// # Errors
    ///
    /// With the layout unchanged: [`Error::Overflow`] if the address of a byte does not fit 64 bits,
    /// [`Error::Range`] if there are several blocks.
    #[inline]
    pub fn move_to(&mut self, addr: u64) -> Result<Reach, Error> {
        let ([block], Way::Grid(grid)) = (&mut *self.blocks, &mut self.shape.borrow_mut().way)
        else {
            return Err(Error::Range);
        };
        let before = grid.move_to(addr);
        let Some(reach) = grid.reach() else {
            grid.move_to(before);
            return Err(Error::Overflow);
        };
        block.addr = addr;
        Ok(reach)
    }
}

impl<S: DerefMut<Target = [Entry]>> List<S> {
    /// Returns `true` if a list of `ranges` of one leaf, each an address and a length, would be this
    /// one except for its leaf and a distance that is the same for all addresses, modulo 2^64.
    /// Returns `false` if this one has several leaves.
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

    /// Moves the first entry to `addr`, and the others by the same distance.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`] if the address of a byte does not fit 64 bits, with the list unchanged.
    #[inline]
    pub fn move_to(&mut self, addr: u64) -> Result<(), Error> {
        let first = self.entries.first().ok_or(Error::Zero)?.addr;
        let distance = addr.abs_diff(first);
        let moved = |entry: &Entry| {
            let moved = if addr >= first {
                entry.addr.checked_add(distance)
            } else {
                entry.addr.checked_sub(distance)
            };
            let addr = moved.ok_or(Error::Overflow)?;
            Extent::new(entry.leaf(), addr, entry.length())?;
            Ok(addr)
        };
        for entry in self.entries.iter() {
            moved(entry)?;
        }
        for entry in self.entries.iter_mut() {
            entry.addr = moved(entry)?;
        }
        Ok(())
    }
}

impl<E, B, P, I> Layout<E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: BorrowMut<Shape>,
    I: AsIndexed,
{
    /// Moves a list or a block to `addr`, as [`List::move_to`] and [`Interleaved::move_to`] do. Calls
    /// `each` as [`Self::reach`] does.
    ///
    /// # Errors
    ///
    /// Those of the moves, with the layout unchanged; [`Error::Range`] for an indexed layout; the
    /// first error of `each`, after the move.
    #[inline]
    pub fn move_to<R: From<Error>>(
        &mut self,
        addr: u64,
        mut each: impl FnMut(Reach) -> Result<(), R>,
    ) -> Result<(), R> {
        match self {
            Self::List(list) => {
                list.move_to(addr)?;
                list.reach(each)
            }
            Self::Interleaved(interleaved) => each(interleaved.move_to(addr)?),
            Self::Indexed(_) => Err(Error::Range.into()),
        }
    }
}
