// SPDX-License-Identifier: GPL-2.0

//! The other side of a copy: a part of a packet.

use core::{marker::PhantomData, ptr};

/// Which way a copy goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the packet to the region's memory.
    ToMemory,
    /// From the region's memory to the packet.
    FromMemory,
}

/// Bytes of a packet that are still to be copied.
///
/// # Invariants
///
/// `at` is valid for reads and, for [`Direction::FromMemory`], writes of `left` bytes.
pub(crate) struct Payload<'a> {
    at: *mut u8,
    left: usize,
    direction: Direction,
    _packet: PhantomData<&'a mut [u8]>,
}

impl Payload<'_> {
    /// # Safety
    ///
    /// `at` must be valid for reads and writes of `len` bytes while the payload exists.
    pub(crate) unsafe fn new(at: *mut u8, len: usize, direction: Direction) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            at,
            left: len,
            direction,
            _packet: PhantomData,
        }
    }

    /// Returns the number of bytes that are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Returns which way the copy goes.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Copies `len` bytes between the payload's start and `memory`, and moves the start.
    ///
    /// # Safety
    ///
    /// `memory` must be valid for reads and writes of `len` bytes, and outside of the packet.
    #[inline]
    pub(crate) unsafe fn copy(&mut self, memory: *mut u8, len: usize) {
        let len = len.min(self.left);
        // SAFETY: By the type invariant and the safety requirement. What others write to the
        // memory at the same time tears, as it does on any RDMA device.
        unsafe {
            match self.direction {
                Direction::ToMemory => ptr::copy_nonoverlapping(self.at, memory, len),
                Direction::FromMemory => ptr::copy_nonoverlapping(memory, self.at, len),
            }
            // INVARIANT: `len` is at most `left`.
            self.at = self.at.add(len);
        }
        self.left -= len;
    }
}
