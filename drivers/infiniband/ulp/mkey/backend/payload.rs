// SPDX-License-Identifier: GPL-2.0

//! The other side of a copy: a part of a packet.

use super::copy_row::{copy_row, Pieces};
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
    fn as_const(self) -> Pieces<*const u8> {
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

    /// Copies between the pieces of `row` and the payload. The first piece is at `memory`; the row
    /// has the positions in the payload.
    ///
    /// # Errors
    ///
    /// `EFAULT` for a position outside of the payload.
    ///
    /// # Safety
    ///
    /// Each piece of the row, counted from `memory`, must be valid for reads and writes, and
    /// outside of the packet.
    #[inline(always)]
    pub(crate) unsafe fn copy(&mut self, memory: *mut u8, row: &Row) -> Result {
        let first = row.at.checked_add(row.len);
        let end = match row.count {
            1 => first,
            count => first.and_then(|first| {
                let more = row.step.checked_mul(count.wrapping_sub(1))?;
                more.checked_add(first)
            }),
        };
        let end = end.ok_or(EFAULT)?;
        if end > self.len {
            return Err(EFAULT);
        }
        let memory = Pieces {
            at: memory,
            step: row.stride as isize,
        };
        let packet = Pieces {
            at: self.at.wrapping_add(row.at as usize),
            step: row.step as isize,
        };
        // A piece and the number of pieces are no longer than the packet.
        let (len, count) = (row.len as usize, row.count as usize);
        // SAFETY: By the safety requirement; the pieces of the packet are in its `len` bytes, as
        // checked above for the last one.
        unsafe {
            match self.direction {
                Direction::ToMemory => copy_row(memory, packet.as_const(), len, count),
                Direction::FromMemory => copy_row(packet, memory.as_const(), len, count),
            }
        }
        Ok(())
    }
}
