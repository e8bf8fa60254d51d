// SPDX-License-Identifier: GPL-2.0

//! The copy of the pieces at a place of a page. There is a type for each size, number and
//! direction, so that the compiler makes a loop over places for each of them.

use crate::{
    backend::{
        copy_row::{copy_large, copy_packed, copy_short, lines},
        moved::{Moved, Pieces},
        payload::Payload,
    },
    layout::Row,
};
use core::marker::PhantomData;

/// The copy of the pieces at one place.
pub(super) trait CopyPlace {
    /// `true` if [`Self::copy_four`] takes fewer instructions than four copies.
    const HAS_FOURS: bool = false;

    /// Copies between the pieces of `row` and the payload, from `packet` on. The first piece is at
    /// `memory`.
    ///
    /// # Safety
    ///
    /// The pieces at `memory` and the bytes at `packet` must be valid for reads and writes, and
    /// must not overlap. The bytes at `packet` must be those of `payload`.
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row);

    /// Copies between the pieces at four places of a page and the payload, from `packet` on. Each
    /// of `places` is a distance from `at`.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy`], for each of the four.
    #[inline(always)]
    unsafe fn copy_four(
        payload: &mut Payload<'_>,
        at: *mut u8,
        places: [usize; 4],
        mut packet: *mut u8,
        row: &Row,
    ) {
        for place in places {
            // SAFETY: By the safety requirements.
            unsafe { Self::copy(payload, at.wrapping_add(place), packet, row) };
            packet = packet.wrapping_add(row.len as usize);
        }
    }
}

/// A piece as long as a `T`, in a known direction.
pub(super) struct One<T, const TO_MEMORY: bool>(PhantomData<T>);

impl<T: Moved, const TO_MEMORY: bool> CopyPlace for One<T, TO_MEMORY> {
    const HAS_FOURS: bool = true;

    #[inline(always)]
    unsafe fn copy_four(
        _payload: &mut Payload<'_>,
        at: *mut u8,
        places: [usize; 4],
        packet: *mut u8,
        _row: &Row,
    ) {
        // SAFETY: By the safety requirements.
        unsafe { T::copy_places::<TO_MEMORY>(at, places, packet) };
    }

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

/// A row of such pieces, which follow one another in the packet.
pub(super) struct Several<T, const TO_MEMORY: bool>(PhantomData<T>);

impl<T: Moved, const TO_MEMORY: bool> CopyPlace for Several<T, TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let memory = Pieces {
            at: memory,
            step: row.stride as isize,
        };
        // SAFETY: By the safety requirements.
        unsafe { copy_packed::<T, TO_MEMORY>(memory, packet, row.count as usize) };
    }
}

/// A piece of at least 64 bytes, in a known direction. `LARGE` is `false` if it
/// [`is_small`](crate::backend::copy_row::is_small).
pub(super) struct Long<const TO_MEMORY: bool, const LARGE: bool>;

impl<const TO_MEMORY: bool, const LARGE: bool> CopyPlace for Long<TO_MEMORY, LARGE> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let (to, from) = if TO_MEMORY {
            (memory, packet)
        } else {
            (packet, memory)
        };
        let len = row.len as usize;
        // SAFETY: By the safety requirements.
        unsafe {
            if LARGE {
                copy_large(to, from, len);
            } else {
                lines(to, from, len);
            }
        }
    }
}

/// A piece of 1 to 7 bytes, in a known direction.
pub(super) struct Short<const TO_MEMORY: bool>;

impl<const TO_MEMORY: bool> CopyPlace for Short<TO_MEMORY> {
    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let (to, from) = if TO_MEMORY {
            (memory, packet)
        } else {
            (packet, memory)
        };
        // SAFETY: By the safety requirements.
        unsafe { copy_short(to, from, row.len as usize) };
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
