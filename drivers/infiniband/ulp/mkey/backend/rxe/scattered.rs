// SPDX-License-Identifier: GPL-2.0

//! The copy of pieces in many pages, and of scattered pieces. There is a loop for each common size.
//!
//! If most pieces are likely to be in the page of the piece before, pieces are copied until one is
//! outside of the mapped page. Otherwise, the page of each piece is looked up.

use super::{
    pages::Pages,
    pinned::{copy_piece, PAGE},
    place::{Any, CopyPlace, Long, One, Several, Short},
};
use crate::{
    backend::{
        copy_row::is_small,
        payload::{Direction, Payload},
    },
    layout::{Entry, Places, Plane, Row, Scattered},
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// The places of an access to pinned pages.
pub(super) struct Access {
    /// The pieces at each place.
    pub(super) row: Row,
    /// The number of bytes of a page at which the pieces of a place can begin, see [`starts`].
    pub(super) starts: u64,
    /// The distance from one place to the next in the access.
    pub(super) step: u64,
    /// The number to add to each place; the sum is an offset in the MR's pages.
    pub(super) delta: u64,
}

/// Returns the number of places in a page at which pieces can begin so that the page contains all
/// of them. `span` is the number of bytes from the start of the first piece to the end of the last
/// one.
#[inline(always)]
pub(super) fn starts(span: u64) -> u64 {
    (PAGE + 1).saturating_sub(span)
}

/// The mapped page.
///
/// # Invariants
///
/// `at` is valid for reads and writes of the page, unless `starts` is zero.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The place of its first byte.
    pub(super) start: u64,
    /// The address of that byte in the kernel's memory.
    pub(super) at: NonNull<u8>,
    /// The number of its bytes at which the pieces of a place can begin.
    pub(super) starts: u64,
}

impl Window {
    /// No page.
    // INVARIANT: `starts` is zero.
    pub(super) const NONE: Self = Self {
        start: 0,
        at: NonNull::dangling(),
        starts: 0,
    };
}

/// Calls a function of [`Pages`] with the copy for the size of the pieces.
macro_rules! by_size {
    ($pages:ident . $all:ident, $copy:ident, $places:expr, $access:expr, $payload:ident) => {
        match ($payload.direction(), $access.row.len) {
            (Direction::ToMemory, 8) => $pages.$all::<$copy<u64, true>>($places, $access, $payload),
            (Direction::ToMemory, 16) => {
                $pages.$all::<$copy<[u64; 2], true>>($places, $access, $payload)
            }
            (Direction::ToMemory, 64) => {
                $pages.$all::<$copy<[u64; 8], true>>($places, $access, $payload)
            }
            (Direction::FromMemory, 8) => {
                $pages.$all::<$copy<u64, false>>($places, $access, $payload)
            }
            (Direction::FromMemory, 16) => {
                $pages.$all::<$copy<[u64; 2], false>>($places, $access, $payload)
            }
            (Direction::FromMemory, 64) => {
                $pages.$all::<$copy<[u64; 8], false>>($places, $access, $payload)
            }
            (Direction::ToMemory, 1..8) if $access.row.count == 1 => {
                $pages.$all::<Short<true>>($places, $access, $payload)
            }
            (Direction::FromMemory, 1..8) if $access.row.count == 1 => {
                $pages.$all::<Short<false>>($places, $access, $payload)
            }
            (Direction::ToMemory, len @ 65..) if $access.row.count == 1 => {
                if is_small(len) {
                    $pages.$all::<Long<true, false>>($places, $access, $payload)
                } else {
                    $pages.$all::<Long<true, true>>($places, $access, $payload)
                }
            }
            (Direction::FromMemory, len @ 65..) if $access.row.count == 1 => {
                if is_small(len) {
                    $pages.$all::<Long<false, false>>($places, $access, $payload)
                } else {
                    $pages.$all::<Long<false, true>>($places, $access, $payload)
                }
            }
            _ => $pages.$all::<Any>($places, $access, $payload),
        }
    };
}
pub(super) use by_size;

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
            starts: starts(row.len),
            step: row.step,
            delta: 0u64.wrapping_sub(self.table.first()),
        };
        let places = steps(row.addr, row.stride, row.count);
        by_size!(self.copy_apart, One, places, &access, payload)
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
        let rows = plane.rows.checked_mul(plane.planes).ok_or(EFAULT)?;
        payload.check(&Row {
            len: plane.row_bytes(),
            step: plane.row_bytes(),
            count: rows,
            ..*row
        })?;
        let reach = (row.stride as u64).checked_mul(row.count.wrapping_sub(1));
        let span = reach.and_then(|reach| reach.checked_add(row.len));
        let access = Access {
            row: *row,
            starts: starts(span.ok_or(EFAULT)?),
            step: plane.row_bytes(),
            delta: delta.wrapping_sub(self.table.first()),
        };
        let planes = steps(row.addr, plane.farther, plane.planes);
        if row.count == 1 {
            return by_size!(self.copy_planes, One, (planes, plane), &access, payload);
        }
        by_size!(self.copy_planes, Several, (planes, plane), &access, payload)
    }

    /// Copies the rows of planes at several places. As for [`Self::copy_close`].
    #[inline(always)]
    fn copy_planes<C: CopyPlace>(
        &mut self,
        (planes, plane): (impl Iterator<Item = u64>, &Plane),
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = Window::NONE;
        let mut packet = payload.at(access.row.at);
        for first in planes {
            for place in steps(first, plane.far, plane.rows) {
                self.copy_in::<C>(&mut page, place, packet, access, payload)?;
                packet = packet.wrapping_add(access.step as usize);
            }
        }
        Ok(())
    }

    /// Copies between scattered pieces of an MR with pinned pages and `payload`. `delta` is added
    /// to their addresses.
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
        let delta = delta.wrapping_sub(self.table.first());
        let access = |addr: u64| Access {
            row,
            starts: starts(row.len),
            step: row.len,
            delta: delta.wrapping_add(addr),
        };
        match pieces.places {
            Places::Entries(entries) => {
                by_size!(self.copy_entries, One, entries, &access(0), payload)
            }
            Places::U32(indices, scale) => {
                let access = &access(scale.addr);
                if let Some(copied) = self.copy_indexed((indices, &scale), access, payload) {
                    return copied;
                }
                let places = indices
                    .iter()
                    .map(|i| u64::from(*i).wrapping_mul(scale.unit));
                by_size!(self.copy_apart, One, places, access, payload)
            }
            Places::U64(indices, scale) => {
                let access = &access(scale.addr);
                if let Some(copied) = self.copy_indexed((indices, &scale), access, payload) {
                    return copied;
                }
                let places = indices.iter().map(|i| i.wrapping_mul(scale.unit));
                by_size!(self.copy_apart, One, places, access, payload)
            }
        }
    }

    /// Copies the pieces at all places. Most places are in another page than the place before.
    /// [`Payload::check`] has accepted them: as many places as there are, with the row and the step
    /// of `access`.
    #[inline(always)]
    pub(super) fn copy_apart<C: CopyPlace>(
        &mut self,
        places: impl Iterator<Item = u64>,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let starts = access.starts;
        let mut packet = payload.at(access.row.at);
        for place in places {
            let offset = place.wrapping_add(access.delta);
            let in_page = offset % PAGE;
            if in_page < starts {
                let page = self.table.map(offset)?;
                // SAFETY: The page is mapped, and the pieces begin so far before the end of the
                // page that the page contains them. By the caller, the payload was checked. A
                // packet is never part of an MR's memory.
                unsafe { C::copy(payload, page.add(in_page as usize), packet, &access.row) };
            } else {
                self.copy_cut::<C>(place, packet, access, payload)?;
            }
            packet = packet.wrapping_add(access.step as usize);
        }
        Ok(())
    }

    /// Copies the pieces at all places. Many places are in the page of the place before. As for
    /// [`Self::copy_apart`].
    #[inline(always)]
    pub(super) fn copy_close<C: CopyPlace>(
        &mut self,
        places: impl Iterator<Item = u64>,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = Window::NONE;
        let mut packet = payload.at(access.row.at);
        for place in places {
            self.copy_in::<C>(&mut page, place, packet, access, payload)?;
            packet = packet.wrapping_add(access.step as usize);
        }
        Ok(())
    }

    /// Copies the pieces of entries, four in each iteration. As for [`Self::copy_close`].
    #[inline(always)]
    fn copy_entries<C: CopyPlace>(
        &mut self,
        entries: &[Entry],
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = Window::NONE;
        let mut packet = payload.at(access.row.at);
        let step = access.step as usize;
        let fours = entries.chunks_exact(4);
        let rest = fours.remainder();
        for four in fours {
            let [a, b, c, d] = four else {
                break;
            };
            let places = [a, b, c, d].map(|entry| entry.addr().wrapping_sub(page.start));
            if places.iter().all(|place| *place < page.starts) {
                // SAFETY: As for `copy_in()`.
                unsafe {
                    let places = places.map(|place| place as usize);
                    C::copy_four(payload, page.at.as_ptr(), places, packet, &access.row);
                }
                packet = packet.wrapping_add(4 * step);
                continue;
            }
            for entry in four {
                self.copy_in::<C>(&mut page, entry.addr(), packet, access, payload)?;
                packet = packet.wrapping_add(step);
            }
        }
        for entry in rest {
            self.copy_in::<C>(&mut page, entry.addr(), packet, access, payload)?;
            packet = packet.wrapping_add(step);
        }
        Ok(())
    }

    /// Copies the pieces at `place`. `page` is the mapped page. If another page is mapped, sets
    /// `page` to it.
    #[inline(always)]
    fn copy_in<C: CopyPlace>(
        &mut self,
        page: &mut Window,
        place: u64,
        packet: *mut u8,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut in_page = place.wrapping_sub(page.start);
        if in_page >= page.starts {
            *page = self.window(place, access);
            in_page = place.wrapping_sub(page.start);
            if in_page >= page.starts {
                *page = Window::NONE;
                return self.copy_cut::<C>(place, packet, access, payload);
            }
        }
        // SAFETY: The page is mapped, and the pieces begin so far before the end of the page that
        // the page contains them. By the caller, the payload was checked. A packet is never part of
        // an MR's memory.
        unsafe {
            let memory = page.at.as_ptr().add(in_page as usize);
            C::copy(payload, memory, packet, &access.row);
        }
        Ok(())
    }

    /// Maps the page of `place`. Returns [`Window::NONE`] if it is outside of the MR.
    #[inline(always)]
    pub(super) fn window(&mut self, place: u64, access: &Access) -> Window {
        let offset = place.wrapping_add(access.delta);
        // INVARIANT: The page is mapped until the next call that maps another one.
        match self.table.map(offset).ok().and_then(NonNull::new) {
            Some(at) => Window {
                start: place.wrapping_sub(offset % PAGE),
                at,
                starts: access.starts,
            },
            None => Window::NONE,
        }
    }

    /// Copies the pieces at `place`, which are in several pages or outside of the MR. Maps other
    /// pages.
    // Cold, so that the loops do not save registers for this call.
    #[cold]
    #[inline(never)]
    fn copy_cut<C: CopyPlace>(
        &mut self,
        place: u64,
        packet: *mut u8,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let offset = place.wrapping_add(access.delta);
        let row = Row {
            addr: offset.wrapping_add(self.table.first()),
            at: payload.position(packet),
            ..access.row
        };
        if row.count == 1 {
            return self.copy_near(row, payload);
        }
        self.copy_parts::<C>(row, packet, payload)
    }

    /// Copies the pieces of `row`, which follow one another from `packet` on, as
    /// [`Self::copy_apart`] does. Pieces in one page are copied at once. A piece in several pages
    /// is copied alone.
    fn copy_parts<C: CopyPlace>(
        &mut self,
        mut row: Row,
        mut packet: *mut u8,
        payload: &mut Payload<'_>,
    ) -> Result {
        let first = self.table.first();
        while row.count != 0 {
            let offset = row.addr.wrapping_sub(first);
            let in_page = offset % PAGE;
            let mut part = Row { count: 1, ..row };
            if let Some(room) = PAGE.wrapping_sub(in_page).checked_sub(row.len) {
                let page = self.table.map(offset)?;
                if let Ok(stride) = u64::try_from(row.stride) {
                    let more = room.checked_div(stride).unwrap_or(u64::MAX);
                    part.count = row.count.min(more.saturating_add(1));
                }
                // SAFETY: The page is mapped and contains all pieces of `part`. By the caller, the
                // payload was checked. A packet is never part of an MR's memory.
                unsafe { C::copy(payload, page.add(in_page as usize), packet, &part) };
            } else {
                part.at = payload.position(packet);
                copy_piece(&mut self.table, &part, payload)?;
            }
            packet = packet.wrapping_add(part.len.wrapping_mul(part.count) as usize);
            row = row.skip(part.count);
        }
        Ok(())
    }
}
