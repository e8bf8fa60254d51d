// SPDX-License-Identifier: GPL-2.0

//! The copy of the pieces at a place of a page: a type for each size, number and direction, so that
//! the loops over places are compiled for each of them.

use crate::{
    backend::{
        copy_row::{copy_large, copy_packed, lines},
        moved::{Moved, Pieces},
        payload::Payload,
    },
    layout::Row,
};
use core::marker::PhantomData;

/// The copy of the pieces at one place.
pub(super) trait CopyPlace {
    /// The copy of one of these pieces.
    type Piece: CopyPlace;

    /// Copies between the pieces of `row` and the payload, from `packet` on. The first piece is at
    /// `memory`.
    ///
    /// # Safety
    ///
    /// The pieces at `memory` and the bytes at `packet` must be valid for reads and writes, and must
    /// not overlap. The bytes at `packet` must be those of `payload`.
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row);

    /// Copies between the pieces at four places of a page, which are so far after `at`, and the
    /// payload, from `packet` on.
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
    type Piece = Self;

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
    type Piece = One<T, TO_MEMORY>;

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

/// A piece of at least 64 bytes that is not large, in a known direction.
pub(super) struct Lines<const TO_MEMORY: bool>;

impl<const TO_MEMORY: bool> CopyPlace for Lines<TO_MEMORY> {
    type Piece = Self;

    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let len = row.len as usize;
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                lines(memory, packet, len);
            } else {
                lines(packet, memory, len);
            }
        }
    }
}

/// A large piece, in a known direction.
pub(super) struct Large<const TO_MEMORY: bool>;

impl<const TO_MEMORY: bool> CopyPlace for Large<TO_MEMORY> {
    type Piece = Self;

    #[inline(always)]
    unsafe fn copy(_payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let len = row.len as usize;
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                copy_large(memory, packet, len);
            } else {
                copy_large(packet, memory, len);
            }
        }
    }
}

/// Pieces of any length and number.
pub(super) struct Any;

impl CopyPlace for Any {
    type Piece = Self;

    #[inline(always)]
    unsafe fn copy(payload: &mut Payload<'_>, memory: *mut u8, packet: *mut u8, row: &Row) {
        let at = payload.position(packet);
        // SAFETY: By the safety requirements.
        unsafe { payload.copy(memory, &Row { at, ..*row }) };
    }
}
