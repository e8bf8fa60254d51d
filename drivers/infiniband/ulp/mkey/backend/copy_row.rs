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

/// Moves the word at each of the offsets, through a register.
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

/// A type whose bytes are moved as a unit.
trait Moved {
    /// Moves one value.
    ///
    /// # Safety
    ///
    /// `from` must be valid for reads and `to` for writes of the size of the type.
    unsafe fn copy(to: *mut u8, from: *const u8);
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

/// Copies `count` pieces of `len` bytes, one after another.
///
/// If pieces of `to` overlap, the last one stays. A call of `memcpy()` takes longer than the copy
/// of a small piece. Sizes up to [`LOOPED`] bytes therefore have loops without a call: a common
/// size has its own loop, and a size between them has a loop that copies the beginning and the end,
/// which overlap.
///
/// # Safety
///
/// - All pieces of `from` must be valid for reads, those of `to` for writes.
/// - No piece of `from` may overlap one of `to`.
#[inline(always)]
pub(crate) unsafe fn copy_row(
    to: Pieces<*mut u8>,
    from: Pieces<*const u8>,
    len: usize,
    count: usize,
) {
    // SAFETY: By the safety requirements.
    unsafe {
        if count == 1 && len > LOOPED {
            bytes(to.at, from.at, len);
        } else {
            copy_pieces(to, from, len, count);
        }
    }
}

/// The most bytes of a piece that [`copy_pieces`] copies without a call.
const LOOPED: usize = 256;

/// Copies as [`copy_row`] does.
///
/// # Safety
///
/// As for [`copy_row`].
#[inline(never)]
unsafe fn copy_pieces(to: Pieces<*mut u8>, from: Pieces<*const u8>, len: usize, count: usize) {
    /// Calls a function with the addresses of each pair of pieces, and with its other arguments.
    macro_rules! each {
        ($one:path $(, $more:expr)*) => {{
            let (mut at, mut source) = (to.at, from.at);
            for _ in 0..count {
                // SAFETY: By the safety requirements; the arm says that the function copies `len`
                // bytes.
                unsafe { $one(at, source $(, $more)*) };
                // After the last piece, these addresses are not used.
                at = at.wrapping_offset(to.step);
                source = source.wrapping_offset(from.step);
            }
        }};
    }
    match len {
        1 => each!(exact::<0, u8>),
        2 => each!(exact::<0, u16>),
        4 => each!(exact::<0, u32>),
        8 => each!(exact::<0, u64>),
        16 => each!(exact::<1, ()>),
        20 => each!(exact::<1, u32>),
        24 => each!(exact::<1, u64>),
        32 => each!(exact::<2, ()>),
        40 => each!(exact::<2, u64>),
        48 => each!(exact::<3, ()>),
        56 => each!(exact::<3, u64>),
        64 => each!(exact::<4, ()>),
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
        _ => each!(bytes, len),
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

/// Copies `len` bytes.
///
/// # Safety
///
/// As for [`exact`], for `len` bytes.
#[inline(always)]
unsafe fn bytes(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}
