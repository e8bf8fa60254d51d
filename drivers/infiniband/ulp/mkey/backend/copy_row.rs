// SPDX-License-Identifier: GPL-2.0

//! The copy of a row of pieces: the innermost loop of the data path.
//!
//! It uses no kernel function, so `tools/bench/native` can measure it on the host.
//!
//! # Races
//!
//! Other processors, processes and devices read and write an MR's memory at any time; on any RDMA
//! device such accesses tear. In Rust's model, an ordinary access that races is undefined
//! behaviour, and a volatile access must be aligned. Small pieces are therefore moved by assembly
//! instructions, and large ones by C's `memcpy()`: the compiler makes no assumption about the
//! bytes.

use core::{ffi::c_void, mem::size_of};

extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
}

/// Moves the words of one piece, through a register.
#[cfg(target_arch = "x86_64")]
macro_rules! moves {
    ($to:expr, $from:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{from} + ", $offset, "]"),
                concat!("mov [{to} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            from = in(reg) $from,
            to = in(reg) $to,
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces, one piece after another, through a register.
#[cfg(target_arch = "x86_64")]
macro_rules! moves_of_four {
    ($to:expr, $from:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{from} + ", $offset, "]"),
                concat!("mov [{to} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + {from_step} + ", $offset, "]"),
                concat!("mov [{to} + {to_step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + 2 * {from_step} + ", $offset, "]"),
                concat!("mov [{to} + 2 * {to_step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + {from_third} + ", $offset, "]"),
                concat!("mov [{to} + {to_third} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            from = in(reg) $from.at,
            from_step = in(reg) $from.step,
            from_third = in(reg) $from.step.wrapping_mul(3),
            to = in(reg) $to.at,
            to_step = in(reg) $to.step,
            to_third = in(reg) $to.step.wrapping_mul(3),
            options(nostack, preserves_flags),
        )
    };
}

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
                    memcpy(to.cast(), from.cast(), size_of::<Self>())
                };
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn copy_four(to: Pieces<*mut u8>, from: Pieces<*const u8>) {
                // SAFETY: As above, for each of the four.
                unsafe { moves_of_four!(to, from, $class, $register, $($offset),+) };
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

/// Implements [`Pieces::skip`]. The address of a piece after the last one may be anywhere, and is
/// not used.
macro_rules! skip {
    ($type:ty) => {
        impl Pieces<$type> {
            /// Returns the pieces without the first `count`.
            #[inline(always)]
            fn skip(self, count: isize) -> Self {
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

/// The most bytes of a piece that [`copy_small`] copies.
const SMALL: usize = 512;

/// Copies `count` pieces of `len` bytes, one after another.
///
/// If pieces of `to` overlap, the last one stays. A call of `memcpy()` takes longer than the copy
/// of a piece of up to [`SMALL`] bytes.
///
/// # Safety
///
/// - All pieces of `from` must be valid for reads, those of `to` for writes.
/// - No piece of `from` may overlap one of `to`.
#[inline(always)]
pub(crate) unsafe fn copy_row(
    mut to: Pieces<*mut u8>,
    mut from: Pieces<*const u8>,
    len: usize,
    count: usize,
) {
    if !is_large(len as u64) {
        // SAFETY: By the safety requirements.
        return unsafe { copy_small(to, from, len, count) };
    }
    for _ in 0..count {
        // SAFETY: By the safety requirements.
        unsafe { copy_bytes(to.at, from.at, len) };
        to = to.skip(1);
        from = from.skip(1);
    }
}

/// Returns `true` if [`copy_row`] copies pieces of `len` bytes by calls of `memcpy()`.
#[inline(always)]
pub(crate) fn is_large(len: u64) -> bool {
    len > SMALL as u64
}

/// Copies `len` bytes by `memcpy()`.
///
/// # Safety
///
/// As for [`copy_row`], for one piece.
#[inline(always)]
pub(crate) unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}

/// Copies as [`copy_row`] does, without a call.
///
/// A common size has its own loop. A size between them has a loop that copies the beginning and the
/// end, which overlap.
///
/// # Safety
///
/// As for [`copy_row`]; `len` must be 1 to [`SMALL`].
#[inline(never)]
unsafe fn copy_small(
    mut to: Pieces<*mut u8>,
    mut from: Pieces<*const u8>,
    len: usize,
    count: usize,
) {
    /// Calls a function with the addresses of each pair of pieces, and with its other arguments.
    macro_rules! each {
        ($one:path $(, $more:expr)*) => {
            for _ in 0..count {
                // SAFETY: By the safety requirements; the arm says that the function copies `len`
                // bytes.
                unsafe { $one(to.at, from.at $(, $more)*) };
                to = to.skip(1);
                from = from.skip(1);
            }
        };
    }
    /// Copies the pieces as values of a type.
    macro_rules! fours {
        ($type:ty) => {
            // SAFETY: By the safety requirements; the arm says that the type has `len` bytes.
            unsafe { copy_values::<$type>(to, from, count) }
        };
    }
    match len {
        1 => fours!(u8),
        2 => fours!(u16),
        4 => fours!(u32),
        8 => fours!(u64),
        16 => fours!([u64; 2]),
        20 => each!(exact::<1, u32>),
        24 => each!(exact::<1, u64>),
        32 => fours!([u64; 4]),
        40 => each!(exact::<2, u64>),
        48 => each!(exact::<3, ()>),
        56 => each!(exact::<3, u64>),
        64 => fours!([u64; 8]),
        80 => each!(exact::<5, ()>),
        96 => each!(exact::<6, ()>),
        128 => each!(exact::<8, ()>),
        192 => each!(exact::<12, ()>),
        256 => each!(exact::<16, ()>),
        3 => each!(ends::<0, u16>, len),
        5..8 => each!(ends::<0, u32>, len),
        9..16 => each!(ends::<0, u64>, len),
        17..32 => each!(ends::<1, ()>, len),
        33..64 => each!(ends::<2, ()>, len),
        65..128 => each!(ends::<4, ()>, len),
        129..256 => each!(ends::<8, ()>, len),
        _ => each!(lines, len),
    }
}

/// Copies the first `count` values, four in each turn.
///
/// # Safety
///
/// As for [`copy_row`]; a value has as many bytes as a piece.
#[inline(always)]
pub(crate) unsafe fn copy_values<T: Moved>(
    mut to: Pieces<*mut u8>,
    mut from: Pieces<*const u8>,
    count: usize,
) {
    for _ in 0..count / 4 {
        // SAFETY: By the safety requirements.
        unsafe { T::copy_four(to, from) };
        to = to.skip(4);
        from = from.skip(4);
    }
    for _ in 0..count % 4 {
        // SAFETY: As above.
        unsafe { T::copy(to.at, from.at) };
        to = to.skip(1);
        from = from.skip(1);
    }
}

/// Copies `N` times 16 bytes and then a `T`, in the order of their addresses.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of that number of bytes, and they must not
/// overlap.
#[inline(always)]
unsafe fn exact<const N: usize, T: Moved>(to: *mut u8, from: *const u8) {
    // SAFETY: By the safety requirements: all moves are within that number of bytes.
    unsafe {
        let mut at = 0;
        while at + 64 <= 16 * N {
            <[u64; 8]>::copy(to.add(at), from.add(at));
            at += 64;
        }
        if at + 32 <= 16 * N {
            <[u64; 4]>::copy(to.add(at), from.add(at));
            at += 32;
        }
        if at + 16 <= 16 * N {
            <[u64; 2]>::copy(to.add(at), from.add(at));
            at += 16;
        }
        T::copy(to.add(at), from.add(at));
    }
}

/// Copies `len` bytes by two calls of [`exact`], one from the beginning and one up to the end.
///
/// # Safety
///
/// As for [`exact`], for `len` bytes: at least the number that [`exact`] copies, at most twice
/// that.
#[inline(always)]
unsafe fn ends<const N: usize, T: Moved>(to: *mut u8, from: *const u8, len: usize) {
    let rest = len - 16 * N - size_of::<T>();
    // SAFETY: By the safety requirements.
    unsafe {
        exact::<N, T>(to, from);
        exact::<N, T>(to.add(rest), from.add(rest));
    }
}

/// Copies `len` bytes as lines of 64 bytes. The last two lines may overlap.
///
/// # Safety
///
/// As for [`exact`], for `len` bytes, at least 64.
#[inline(always)]
unsafe fn lines(to: *mut u8, from: *const u8, len: usize) {
    let last = len - 64;
    let mut at = 0;
    while at < last {
        // SAFETY: By the safety requirements: the line starts before the last one.
        unsafe { exact::<4, ()>(to.add(at), from.add(at)) };
        at += 64;
    }
    // SAFETY: By the safety requirements.
    unsafe { exact::<4, ()>(to.add(last), from.add(last)) };
}
