// SPDX-License-Identifier: GPL-2.0

//! The other side of a copy: a part of a packet.

use super::{
    copy_row::{copy_piece, copy_row},
    moved::Pieces,
};
use crate::layout::Row;
use core::marker::PhantomData;
use kernel::prelude::*;

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the packet to the MR's memory.
    ToMemory,
    /// From the MR's memory to the packet.
    FromMemory,
}

/// Bytes of a packet.
///
/// # Invariants
///
/// `at` is valid for reads and, for [`Direction::FromMemory`], writes of `len` bytes.
pub(crate) struct Payload<'a> {
    at: *mut u8,
    len: u64,
    direction: Direction,
    _packet: PhantomData<&'a mut [u8]>,
}

impl Pieces<*mut u8> {
    /// Returns the same pieces as a source.
    #[inline(always)]
    pub(super) fn as_const(self) -> Pieces<*const u8> {
        Pieces {
            at: self.at,
            step: self.step,
        }
    }
}

impl Payload<'_> {
    /// Makes the payload of `len` bytes at `at`.
    ///
    /// # Safety
    ///
    /// `at` must be valid for reads and writes of `len` bytes while the payload exists.
    pub(crate) unsafe fn new(at: *mut u8, len: u32, direction: Direction) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            at,
            len: len.into(),
            direction,
            _packet: PhantomData,
        }
    }

    /// Makes the payload of a copy from memory to `bytes`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for 4 GiB and more.
    pub(crate) fn reading(bytes: &mut [u8]) -> Result<Payload<'_>> {
        let len = u32::try_from(bytes.len())?;
        // SAFETY: The payload borrows the bytes.
        Ok(unsafe { Payload::new(bytes.as_mut_ptr(), len, Direction::FromMemory) })
    }

    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the direction of the copy.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Checks that the positions of all pieces of `row` are in the payload.
    ///
    /// # Errors
    ///
    /// `EFAULT` if one is not.
    #[inline(always)]
    pub(crate) fn check(&self, row: &Row) -> Result {
        let reach = row.step.checked_mul(row.count.wrapping_sub(1));
        let reach = if row.count == 1 { Some(0) } else { reach };
        let end = reach
            .and_then(|reach| reach.checked_add(row.at)?.checked_add(row.len))
            .ok_or(EFAULT)?;
        if end > self.len {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Does what [`Self::check`] does, for a row of one piece.
    #[inline(always)]
    pub(crate) fn check_piece(&self, row: &Row) -> Result {
        match row.at.checked_add(row.len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// Copies `len` bytes between `memory` and `packet`, an address of the payload.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy`], for one piece.
    #[inline(always)]
    pub(crate) unsafe fn copy_bytes(&self, memory: *mut u8, packet: *mut u8, len: usize) {
        let (to, from) = match self.direction {
            Direction::ToMemory => (memory, packet),
            Direction::FromMemory => (packet, memory),
        };
        // SAFETY: By the safety requirements and the type invariant.
        unsafe { copy_piece(to, from, len) };
    }

    /// Copies between the pieces of `row` and the payload. The first piece is at `memory`. The
    /// positions in the payload are those of the row.
    ///
    /// # Safety
    ///
    /// - [`Self::check`] must have accepted the row, or a row that contains all its pieces.
    /// - Each piece of the row, counted from `memory`, must be valid for reads and writes, and
    ///   outside of the packet.
    #[inline(always)]
    pub(crate) unsafe fn copy(&mut self, memory: *mut u8, row: &Row) {
        let memory = Pieces {
            at: memory,
            step: row.stride as isize,
        };
        let packet = Pieces {
            at: self.at(row.at),
            step: row.step as isize,
        };
        // A piece and the number of pieces are no longer than the packet.
        let (len, count) = (row.len as usize, row.count as usize);
        // SAFETY: By the safety requirements and the type invariant.
        unsafe {
            match self.direction {
                Direction::ToMemory => copy_row(memory, packet.as_const(), len, count),
                Direction::FromMemory => copy_row(packet, memory.as_const(), len, count),
            }
        }
    }

    /// Returns the address of the byte at position `at`.
    #[inline(always)]
    pub(crate) fn at(&self, at: u64) -> *mut u8 {
        self.at.wrapping_add(at as usize)
    }

    /// Returns the position of the byte at `address`.
    #[inline(always)]
    pub(crate) fn position(&self, address: *mut u8) -> u64 {
        (address as usize).wrapping_sub(self.at as usize) as u64
    }
}
