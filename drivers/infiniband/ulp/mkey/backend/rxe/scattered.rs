// SPDX-License-Identifier: GPL-2.0

//! The copy of scattered pieces: one loop for each common size.

use super::base::Pages;
use crate::{
    backend::{
        copy_row::Moved,
        payload::{Direction, Payload},
    },
    layout::{Entry, Places, Row, Scattered},
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{page::PAGE_SIZE, prelude::*};

/// The copy of one piece.
trait CopyPiece {
    /// Copies between the `len` bytes at `memory` and those at `packet`.
    ///
    /// # Safety
    ///
    /// Both must be valid for reads and writes, and must not overlap. The bytes at `packet` must be
    /// those of `payload`.
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, len: u64);
}

/// A piece as long as a `T`, in a known direction.
struct Value<T, const TO_MEMORY: bool>(PhantomData<T>);

impl<T: Moved, const TO_MEMORY: bool> CopyPiece for Value<T, TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, _len: u64) {
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

/// A piece of any length.
struct AnyPiece;

impl CopyPiece for AnyPiece {
    #[inline(always)]
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, len: u64) {
        let at = payload.position(packet);
        // SAFETY: By the safety requirements.
        unsafe {
            payload.copy(
                memory,
                &Row {
                    at,
                    ..Row::of(0, 0, len)
                },
            )
        };
    }
}

/// The mapped page.
///
/// # Invariants
///
/// `at` is valid for reads and writes of the page, unless `starts` is zero.
struct Window {
    /// The address of its first byte, as the pieces count addresses.
    start: u64,
    /// The place of that byte.
    at: NonNull<u8>,
    /// The number of its bytes with which a piece can begin.
    starts: u64,
}

impl Pages<'_> {
    /// Copies between scattered pieces of an MR with pinned pages and `payload`. `delta` is added to
    /// their addresses.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for a piece outside of the payload.
    #[inline(never)]
    pub(super) fn copy_pinned(
        &mut self,
        pieces: &Scattered<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let len = pieces.len;
        let row = Row {
            count: pieces.places.count() as u64,
            at: pieces.at,
            ..Row::of(pieces.leaf, 0, len)
        };
        payload.check(&row)?;
        match pieces.places {
            Places::Entries(entries) => {
                self.copy_places(entries.iter().map(Entry::addr), &row, delta, payload)
            }
            Places::U32 {
                indices,
                addr,
                unit,
            } => {
                let delta = delta.wrapping_add(addr);
                let places = indices.iter().map(|i| u64::from(*i).wrapping_mul(unit));
                self.copy_places(places, &row, delta, payload)
            }
            Places::U64 {
                indices,
                addr,
                unit,
            } => {
                let delta = delta.wrapping_add(addr);
                let places = indices.iter().map(|i| i.wrapping_mul(unit));
                self.copy_places(places, &row, delta, payload)
            }
        }
    }

    /// Copies pieces at `places` after `delta`. [`Payload::check`] has accepted `row`, which has
    /// the number of places, their length and their positions.
    #[inline(always)]
    fn copy_places(
        &mut self,
        places: impl Iterator<Item = u64>,
        row: &Row,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        macro_rules! sizes {
            ($to_memory:literal) => {
                match row.len {
                    8 => self.copy_each::<Value<u64, $to_memory>>(places, row, delta, payload),
                    16 => {
                        self.copy_each::<Value<[u64; 2], $to_memory>>(places, row, delta, payload)
                    }
                    64 => {
                        self.copy_each::<Value<[u64; 8], $to_memory>>(places, row, delta, payload)
                    }
                    _ => self.copy_each::<AnyPiece>(places, row, delta, payload),
                }
            };
        }
        match payload.direction() {
            Direction::ToMemory => sizes!(true),
            Direction::FromMemory => sizes!(false),
        }
    }

    /// The loop of [`Self::copy_places`].
    #[inline(always)]
    fn copy_each<C: CopyPiece>(
        &mut self,
        places: impl Iterator<Item = u64>,
        row: &Row,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let len = row.len;
        let mut page = self.window(len, delta);
        let mut packet = payload.at(row.at);
        for place in places {
            let mut in_page = place.wrapping_sub(page.start);
            if in_page >= page.starts {
                let addr = place.wrapping_add(delta);
                let is_mapped = self.map_piece(addr, packet, len, payload)?;
                page = self.window(len, delta);
                in_page = place.wrapping_sub(page.start);
                if !is_mapped {
                    packet = packet.wrapping_add(len as usize);
                    continue;
                }
            }
            // SAFETY: The page is mapped, and the piece begins so far before the end of the page
            // that the page contains it. By the caller, the payload was checked. A packet is never
            // part of an MR's memory.
            unsafe { C::copy(payload, page.at.as_ptr().add(in_page as usize), packet, len) };
            packet = packet.wrapping_add(len as usize);
        }
        Ok(())
    }

    /// Returns the mapped page, for pieces of `len` bytes whose addresses come after `delta`.
    #[inline(always)]
    fn window(&self, len: u64, delta: u64) -> Window {
        // INVARIANT: The page of `mapped` is mapped until the next call that maps another one.
        match &self.mapped {
            Some(mapped) => Window {
                start: mapped.start.wrapping_sub(delta),
                at: mapped.at,
                starts: (PAGE_SIZE as u64).wrapping_add(1).saturating_sub(len),
            },
            None => Window {
                start: 0,
                at: NonNull::dangling(),
                starts: 0,
            },
        }
    }

    /// Maps the page of the piece at `addr` and returns `true`; copies the piece from or to
    /// `packet` and returns `false` if it is in several pages.
    #[inline(never)]
    fn map_piece(
        &mut self,
        addr: u64,
        packet: *mut u8,
        len: u64,
        payload: &mut Payload<'_>,
    ) -> Result<bool> {
        let size = PAGE_SIZE as u64;
        let in_page = addr & size.wrapping_sub(1);
        if len > size.wrapping_sub(in_page) {
            let at = payload.position(packet);
            self.copy_pages(
                Row {
                    at,
                    ..Row::of(0, addr, len)
                },
                payload,
            )?;
            return Ok(false);
        }
        self.map_pinned(addr.wrapping_sub(in_page))?;
        Ok(true)
    }
}
