// SPDX-License-Identifier: GPL-2.0

//! Moves of small pieces: the types that are moved as a unit, and the places of their values. On
//! x86-64, the instructions of `assembly.rs` move them.

#[cfg(target_arch = "x86_64")]
use super::assembly::{
    gather_four, gather_one, gather_places, move_nth, moves, moves_of_four, scatter_four,
    scatter_one, scatter_places,
};
#[cfg(not(target_arch = "x86_64"))]
use super::racing::copy_racing;
use core::mem::size_of;

/// A type whose bytes are moved as a unit.
pub(crate) trait Moved {
    /// Moves one value.
    ///
    /// # Safety
    ///
    /// `from` must be valid for reads and `to` for writes of the size of the type.
    unsafe fn copy(to: *mut u8, from: *const u8);

    /// Moves the first four values, one after another.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy`], for each of the four.
    #[inline(always)]
    unsafe fn copy_four(to: Pieces<*mut u8>, from: Pieces<*const u8>) {
        for index in 0..4 {
            // SAFETY: By the safety requirements.
            unsafe { Self::copy(to.skip(index).at, from.skip(index).at) };
        }
    }

    /// Moves the first four values, one after another, between `memory` and `packet`, where they
    /// follow one another.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy`], for each of the four, in the direction `TO_MEMORY`.
    #[inline(always)]
    unsafe fn copy_packed<const TO_MEMORY: bool>(memory: Pieces<*mut u8>, packet: *mut u8)
    where
        Self: Sized,
    {
        for index in 0..4 {
            let memory = memory.skip(index).at;
            let packet = packet.wrapping_add(size_of::<Self>() * index as usize);
            // SAFETY: By the safety requirements.
            unsafe {
                if TO_MEMORY {
                    Self::copy(memory, packet);
                } else {
                    Self::copy(packet, memory);
                }
            }
        }
    }

    /// Moves four values between `packet`, where they follow one another, and memory. Each of
    /// `places` is a distance from `at`.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy_packed`].
    #[inline(always)]
    unsafe fn copy_places<const TO_MEMORY: bool>(
        at: *mut u8,
        places: [usize; 4],
        mut packet: *mut u8,
    ) where
        Self: Sized,
    {
        for place in places {
            let memory = at.wrapping_add(place);
            // SAFETY: By the safety requirements.
            unsafe {
                if TO_MEMORY {
                    Self::copy(memory, packet);
                } else {
                    Self::copy(packet, memory);
                }
            }
            packet = packet.wrapping_add(size_of::<Self>());
        }
    }

    /// Moves value number `NTH` of those that follow one another in `packet` to or from the memory
    /// at `place` bytes after `page`. `NTH` is less than eight.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy_packed`], for one value.
    #[inline(always)]
    unsafe fn copy_nth<const TO_MEMORY: bool, const NTH: usize>(
        page: *mut u8,
        place: usize,
        packet: *mut u8,
    ) where
        Self: Sized,
    {
        let memory = page.wrapping_add(place);
        let packet = packet.wrapping_add(NTH * size_of::<Self>());
        // SAFETY: By the safety requirements.
        unsafe {
            if TO_MEMORY {
                Self::copy(memory, packet);
            } else {
                Self::copy(packet, memory);
            }
        }
    }
}

/// Implements [`Moved`] for a type by moves of the words at the offsets.
macro_rules! moved {
    ($type:ty, $class:ident, $register:literal, $($offset:literal),+) => {
        impl Moved for $type {
            #[inline(always)]
            unsafe fn copy(to: *mut u8, from: *const u8) {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: By the safety requirements; the offsets are those of the type's words.
                unsafe {
                    moves!(to, from, $class, $register, $($offset),+)
                };
                #[cfg(not(target_arch = "x86_64"))]
                // SAFETY: By the safety requirements.
                unsafe {
                    copy_racing(to, from, size_of::<Self>())
                };
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn copy_four(to: Pieces<*mut u8>, from: Pieces<*const u8>) {
                // SAFETY: As above, for each of the four.
                unsafe { moves_of_four!(to, from, $class, $register, $($offset),+) };
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn copy_packed<const TO_MEMORY: bool>(
                memory: Pieces<*mut u8>,
                packet: *mut u8,
            ) {
                // SAFETY: As above, for each of the four.
                unsafe {
                    if TO_MEMORY {
                        scatter_four!(memory, packet, $class, $register, $($offset),+)
                    } else {
                        gather_four!(memory, packet, $class, $register, $($offset),+)
                    }
                };
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn copy_places<const TO_MEMORY: bool>(
                at: *mut u8,
                places: [usize; 4],
                packet: *mut u8,
            ) {
                // SAFETY: As above, for each of the four.
                unsafe {
                    if TO_MEMORY {
                        scatter_places!(at, places, packet, $class, $register, $($offset),+)
                    } else {
                        gather_places!(at, places, packet, $class, $register, $($offset),+)
                    }
                };
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn copy_nth<const TO_MEMORY: bool, const NTH: usize>(
                page: *mut u8,
                place: usize,
                packet: *mut u8,
            ) {
                const { assert!(NTH < 8) };
                // SAFETY: As above.
                unsafe {
                    if TO_MEMORY {
                        move_nth!(NTH, scatter_one, page, place, packet, $class, $register,
                                  $($offset),+)
                    } else {
                        move_nth!(NTH, gather_one, page, place, packet, $class, $register,
                                  $($offset),+)
                    }
                };
            }
        }
    };
}

moved!(u8, reg_byte, "{word}", 0);
moved!(u16, reg, "{word:x}", 0);
moved!(u32, reg, "{word:e}", 0);
moved!(u64, reg, "{word}", 0);
moved!([u64; 2], reg, "{word}", 0, 8);
moved!([u64; 4], reg, "{word}", 0, 8, 16, 24);
moved!([u64; 6], reg, "{word}", 0, 8, 16, 24, 32, 40);
moved!([u64; 8], reg, "{word}", 0, 8, 16, 24, 32, 40, 48, 56);

impl Moved for () {
    #[inline(always)]
    unsafe fn copy(_to: *mut u8, _from: *const u8) {}
}

/// One side of a copy: the address of the first piece, and the distance of successive pieces.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<T> {
    /// Address of the first piece.
    pub(crate) at: T,
    /// The bytes from the start of a piece to the start of the next one.
    pub(crate) step: isize,
}

/// Implements [`Pieces::skip`]. The address after the last piece may be invalid, and is not used.
macro_rules! skip {
    ($type:ty) => {
        impl Pieces<$type> {
            /// Returns the pieces without the first `count`.
            #[inline(always)]
            pub(super) fn skip(self, count: isize) -> Self {
                Self {
                    at: self.at.wrapping_offset(self.step.wrapping_mul(count)),
                    step: self.step,
                }
            }
        }
    };
}

skip!(*mut u8);
skip!(*const u8);
