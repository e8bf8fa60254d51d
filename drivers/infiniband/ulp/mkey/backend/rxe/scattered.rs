// SPDX-License-Identifier: GPL-2.0

//! The copy of pieces that are in many pages, and of scattered pieces: one loop for each common
//! size, as long as the pieces are in the mapped page.

use super::base::Pages;
use crate::{
    backend::{
        copy_row::{copy_bytes, copy_values, is_large, Moved, Pieces},
        payload::{Direction, Payload},
    },
    layout::{Entry, Places, Plane, Row, Scattered},
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{page::PAGE_SIZE, prelude::*};

/// The copy of the pieces at one place.
pub(super) trait CopyPlace {
    /// Copies between the pieces of `row` and the payload, from `packet` on. The first piece is at
    /// `memory`.
    ///
    /// # Safety
    ///
    /// The pieces at `memory` and the bytes at `packet` must be valid for reads and writes, and must
    /// not overlap. The bytes at `packet` must be those of `payload`.
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row);
}

/// A piece as long as a `T`, in a known direction.
pub(super) struct One<T, const TO_MEMORY: bool>(PhantomData<T>);

impl<T: Moved, const TO_MEMORY: bool> CopyPlace for One<T, TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, _row: &Row) {
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                T::copy(memory, packet);
            } else {
                T::copy(packet, memory);
            }
        }
    }
}

/// A row of such pieces.
struct Several<T, const TO_MEMORY: bool>(PhantomData<T>);

impl<T: Moved, const TO_MEMORY: bool> CopyPlace for Several<T, TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let memory = Pieces {
            at: memory,
            step: row.stride as isize,
        };
        let packet = Pieces {
            at: packet,
            step: row.step as isize,
        };
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                copy_values::<T>(memory, packet.as_const(), row.count as usize);
            } else {
                copy_values::<T>(packet, memory.as_const(), row.count as usize);
            }
        }
    }
}

/// A large piece, in a known direction.
struct Large<const TO_MEMORY: bool>;

impl<const TO_MEMORY: bool> CopyPlace for Large<TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let len = row.len as usize;
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                copy_bytes(memory, packet, len);
            } else {
                copy_bytes(packet, memory, len);
            }
        }
    }
}

/// Pieces of any length and number.
pub(super) struct Any;

impl CopyPlace for Any {
    #[inline(always)]
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let at = payload.position(packet);
        // SAFETY: By the safety requirements.
        unsafe { payload.copy(memory, &Row { at, ..*row }) };
    }
}

/// The places of an access to pinned pages.
pub(super) struct Access {
    /// The pieces at each place.
    pub(super) row: Row,
    /// The bytes from the first piece to the end of the last one.
    pub(super) span: u64,
    /// The distance from one place to the next in the access.
    pub(super) step: u64,
    /// The number to add to each place; the sum is an address of the MR.
    pub(super) delta: u64,
}

/// The mapped page.
///
/// # Invariants
///
/// `at` is valid for reads and writes of the page, unless `starts` is zero.
pub(super) struct Window {
    /// The place of its first byte.
    pub(super) start: u64,
    /// The address of that byte in the kernel's memory.
    pub(super) at: NonNull<u8>,
    /// The number of its bytes with which the pieces at a place can begin.
    pub(super) starts: u64,
}

/// Calls [`Pages::copy_all`] with the loop for the size of the pieces.
macro_rules! by_size {
    ($pages:ident, $copy:ident, $places:expr, $access:expr, $payload:ident) => {
        match ($payload.direction(), $access.row.len) {
            (Direction::ToMemory, 8) => {
                $pages.copy_all::<$copy<u64, true>>($places, $access, $payload)
            }
            (Direction::ToMemory, 16) => {
                $pages.copy_all::<$copy<[u64; 2], true>>($places, $access, $payload)
            }
            (Direction::ToMemory, 64) => {
                $pages.copy_all::<$copy<[u64; 8], true>>($places, $access, $payload)
            }
            (Direction::FromMemory, 8) => {
                $pages.copy_all::<$copy<u64, false>>($places, $access, $payload)
            }
            (Direction::FromMemory, 16) => {
                $pages.copy_all::<$copy<[u64; 2], false>>($places, $access, $payload)
            }
            (Direction::FromMemory, 64) => {
                $pages.copy_all::<$copy<[u64; 8], false>>($places, $access, $payload)
            }
            (Direction::ToMemory, len) if $access.row.count == 1 && is_large(len) => {
                $pages.copy_all::<Large<true>>($places, $access, $payload)
            }
            (Direction::FromMemory, len) if $access.row.count == 1 && is_large(len) => {
                $pages.copy_all::<Large<false>>($places, $access, $payload)
            }
            _ => $pages.copy_all::<Any>($places, $access, $payload),
        }
    };
}

/// Returns the `count` places from `first` on at the distance `far`.
#[inline(always)]
pub(super) fn steps(first: u64, far: i64, count: u64) -> impl Iterator<Item = u64> {
    let mut next = first;
    (0..count).map(move |_| {
        let place = next;
        next = next.wrapping_add(far as u64);
        place
    })
}

impl Pages<'_> {
    /// Copies between pieces of an MR with pinned pages, few of which are in one page, and
    /// `payload`.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for a piece outside of the payload.
    #[inline(never)]
    pub(super) fn copy_far(&mut self, row: &Row, payload: &mut Payload<'_>) -> Result {
        payload.check(row)?;
        let access = Access {
            row: Row { count: 1, ..*row },
            span: row.len,
            step: row.step,
            delta: 0,
        };
        let places = steps(row.addr, row.stride, row.count);
        by_size!(self, One, places, &access, payload)
    }

    /// Copies between the rows of an MR with pinned pages and `payload`. `delta` is added to their
    /// addresses.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy_far`].
    #[inline(never)]
    pub(super) fn copy_rows(
        &mut self,
        plane: &Plane,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let row = &plane.row;
        payload.check(&Row {
            len: plane.row_bytes(),
            step: plane.row_bytes(),
            count: plane.rows,
            ..*row
        })?;
        let reach = (row.stride as u64).checked_mul(row.count.wrapping_sub(1));
        let span = reach.and_then(|reach| reach.checked_add(row.len));
        let access = Access {
            row: *row,
            span: span.ok_or(EFAULT)?,
            step: plane.row_bytes(),
            delta,
        };
        let places = steps(row.addr, plane.far, plane.rows);
        if row.count == 1 {
            return by_size!(self, One, places, &access, payload);
        }
        by_size!(self, Several, places, &access, payload)
    }

    /// Copies between scattered pieces of an MR with pinned pages and `payload`. `delta` is added to
    /// their addresses.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy_far`].
    #[inline(never)]
    pub(super) fn copy_places(
        &mut self,
        pieces: &Scattered<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let row = Row {
            at: pieces.at,
            ..Row::of(pieces.leaf, 0, pieces.len)
        };
        payload.check(&Row {
            count: pieces.places.count() as u64,
            ..row
        })?;
        let access = |addr: u64| Access {
            row,
            span: row.len,
            step: row.len,
            delta: delta.wrapping_add(addr),
        };
        match pieces.places {
            Places::Entries(entries) => {
                let places = entries.iter().map(Entry::addr);
                by_size!(self, One, places, &access(0), payload)
            }
            Places::U32 {
                indices,
                addr,
                unit,
            } => {
                let places = indices.iter().map(|i| u64::from(*i).wrapping_mul(unit));
                by_size!(self, One, places, &access(addr), payload)
            }
            Places::U64 {
                indices,
                addr,
                unit,
            } => {
                let places = indices.iter().map(|i| i.wrapping_mul(unit));
                by_size!(self, One, places, &access(addr), payload)
            }
        }
    }

    /// Copies the pieces at all places. [`Payload::check`] has accepted them: as many places as
    /// there are, with the row and the step of `access`.
    #[inline(always)]
    pub(super) fn copy_all<C: CopyPlace>(
        &mut self,
        places: impl Iterator<Item = u64>,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = self.window(access);
        let mut packet = payload.at(access.row.at);
        let step = access.step as usize;
        for place in places {
            let mut in_page = place.wrapping_sub(page.start);
            if in_page >= page.starts {
                let is_mapped = self.map_place(place, packet, access, payload)?;
                page = self.window(access);
                in_page = place.wrapping_sub(page.start);
                if !is_mapped {
                    packet = packet.wrapping_add(step);
                    continue;
                }
            }
            // SAFETY: The page is mapped, and the pieces begin so far before the end of the page
            // that the page contains them. By the caller, the payload was checked. A packet is
            // never part of an MR's memory.
            unsafe {
                let memory = page.at.as_ptr().add(in_page as usize);
                C::copy(payload, memory, packet, &access.row);
            }
            packet = packet.wrapping_add(step);
        }
        Ok(())
    }

    /// Returns the mapped page.
    #[inline(always)]
    pub(super) fn window(&self, access: &Access) -> Window {
        // INVARIANT: The page of `mapped` is mapped until the next call that maps another one.
        match &self.mapped {
            Some(mapped) => Window {
                start: mapped.start.wrapping_sub(access.delta),
                at: mapped.at,
                starts: (PAGE_SIZE as u64 + 1).saturating_sub(access.span),
            },
            None => Window {
                start: 0,
                at: NonNull::dangling(),
                starts: 0,
            },
        }
    }

    /// Maps the page of the pieces at `place` and returns `true`; copies the pieces and returns
    /// `false` if they are in several pages.
    #[inline(never)]
    fn map_place(
        &mut self,
        place: u64,
        packet: *mut u8,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result<bool> {
        let addr = place.wrapping_add(access.delta);
        let size = PAGE_SIZE as u64;
        let in_page = addr & size.wrapping_sub(1);
        if access.span > size.wrapping_sub(in_page) {
            let at = payload.position(packet);
            let row = Row {
                addr,
                at,
                ..access.row
            };
            self.copy_near(row, payload)?;
            return Ok(false);
        }
        self.map_pinned(addr.wrapping_sub(in_page))?;
        Ok(true)
    }
}
