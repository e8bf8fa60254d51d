// SPDX-License-Identifier: GPL-2.0

//! The copy of a row of pieces: the innermost loop of the data path.
//!
//! This file, `moved.rs`, `assembly.rs` and `fetch.rs` use no function of the kernel except
//! [`copy_racing`], so `tools/bench/native` can measure them on the host.
//!
//! # Races
//!
//! Other processors, processes and devices read and write an MR's memory at any time; on any RDMA
//! device such accesses tear. In Rust's model, an ordinary access that races is undefined
//! behaviour, and a volatile access must be aligned. So assembly instructions move the pieces, or
//! [`copy_racing`] moves large ones. The compiler makes no assumption about the bytes of either.

use super::{
    fetch::{fetch_lines, fetch_pieces},
    moved::{Moved, Pieces},
    racing::copy_racing,
};
use core::mem::size_of;

extern "C" {
    /// `true` if `memcpy()` copies by string instructions. Pieces of 128 to 256 bytes are
    /// prefetched only then, because the gain was measured on such a processor, and each prefetch
    /// is one more instruction.
    static ib_mkey_fast_strings: bool;
}

/// The most bytes of a piece that [`copy_small`] copies.
const SMALL: usize = 512;

/// Copies `count` pieces of `len` bytes, one after another.
///
/// If pieces of `to` overlap, the bytes of the last one remain. Calls `memcpy()` only for pieces of
/// more than [`SMALL`] bytes, because the call takes longer than the copy of a smaller piece.
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
    if len <= SMALL {
        // SAFETY: By the safety requirements.
        unsafe {
            match (count, len) {
                (1..4, 1..8) => copy_few(to, from, len, count),
                (1, _) => copy_one(to.at, from.at, len),
                _ => copy_small(to, from, len, count),
            }
        }
        return;
    }
    for _ in 0..count {
        // SAFETY: By the safety requirements.
        unsafe { copy_large(to.at, from.at, len) };
        to = to.skip(1);
        from = from.skip(1);
    }
}

/// Returns `true` if [`copy_row`] copies pieces of `len` bytes without a call of `memcpy()`.
#[inline(always)]
pub(crate) fn is_small(len: u64) -> bool {
    len <= SMALL as u64
}

/// Copies one piece of `len` bytes.
///
/// # Safety
///
/// As for [`copy_row`], for one piece.
#[inline(always)]
pub(crate) unsafe fn copy_piece(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements.
    unsafe {
        if len > SMALL {
            return copy_large(to, from, len);
        }
        let (to, from) = (Pieces { at: to, step: 0 }, Pieces { at: from, step: 0 });
        copy_row(to, from, len, 1);
    }
}

/// Copies `len` bytes, more than [`SMALL`]. Uses `memcpy()` if that copies by string instructions.
/// Otherwise uses [`lines`], which is faster than the loop of `memcpy()`.
///
/// # Safety
///
/// As for [`copy_row`], for one piece.
#[inline(always)]
pub(crate) unsafe fn copy_large(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements. `ib_mkey_fast_strings` is written before the first copy
    // only.
    unsafe {
        if ib_mkey_fast_strings {
            // The processor's own prefetcher starts anew in each piece, so the first lines are
            // prefetched here.
            fetch_pieces(Pieces { at: from, step: 0 }, SMALL, 1);
            copy_racing(to, from, len);
        } else {
            copy_lines(to, from, len);
        }
    }
}

/// Copies as [`lines`] does.
///
/// # Safety
///
/// As for [`lines`].
#[inline(never)]
unsafe fn copy_lines(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements.
    unsafe { lines(to, from, len) };
}

/// Copies one piece of `len` bytes, 8 to [`SMALL`]. Writes each byte of a piece of a common size
/// once, as [`copy_small`] does: a program may wait for a byte, and then write it.
///
/// # Safety
///
/// As for [`copy_row`], for one piece.
// `copy_small()` saves registers for its loops. That takes longer than to copy a few bytes.
#[inline(never)]
unsafe fn copy_one(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements; each arm copies `len` bytes.
    unsafe {
        match len {
            8 => u64::copy(to, from),
            16 => <[u64; 2]>::copy(to, from),
            20 => exact::<1, u32>(to, from),
            24 => exact::<1, u64>(to, from),
            32 => exact::<2, ()>(to, from),
            40 => exact::<2, u64>(to, from),
            48 => exact::<3, ()>(to, from),
            56 => exact::<3, u64>(to, from),
            80 => exact::<5, ()>(to, from),
            96 => exact::<6, ()>(to, from),
            9..16 => ends::<0, u64>(to, from, len),
            17..32 => ends::<1, ()>(to, from, len),
            33..64 => ends::<2, ()>(to, from, len),
            64..=256 => lines(to, from, len),
            257.. => {
                fetch_pieces(Pieces { at: from, step: 0 }, len, 1);
                lines(to, from, len);
            }
            _ => {}
        }
    }
}

/// Copies `count` pieces of `len` bytes, 1 to 7.
///
/// # Safety
///
/// As for [`copy_row`].
// As for `copy_one()`. For more pieces, `copy_small()` takes fewer instructions.
#[inline(never)]
unsafe fn copy_few(mut to: Pieces<*mut u8>, mut from: Pieces<*const u8>, len: usize, count: usize) {
    for _ in 0..count {
        // SAFETY: By the safety requirements.
        unsafe { copy_short(to.at, from.at, len) };
        to = to.skip(1);
        from = from.skip(1);
    }
}

/// Copies one piece of `len` bytes, 1 to 7.
///
/// # Safety
///
/// As for [`copy_row`], for one piece.
#[inline(always)]
pub(crate) unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements; each arm copies `len` bytes.
    unsafe {
        match len {
            1 => u8::copy(to, from),
            2 => u16::copy(to, from),
            3 => ends::<0, u16>(to, from, len),
            4 => u32::copy(to, from),
            _ => ends::<0, u32>(to, from, len),
        }
    }
}

/// Copies as [`copy_row`] does, without a call.
///
/// Each common size has its own loop. The loop for the sizes between two common ones copies the
/// beginning and the end of a piece, which overlap.
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
    /// As `each!`, but prefetches a later piece while it copies one. A piece has `$lines` lines,
    /// and the later piece is `$ahead` pieces after the one that is copied.
    macro_rules! each_ahead {
        ($one:path, $lines:literal, $ahead:literal) => {
            for index in 0..count {
                if index + $ahead < count {
                    fetch_lines::<$lines>(from.skip($ahead).at);
                }
                // SAFETY: As above.
                unsafe { $one(to.at, from.at) };
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
    // SAFETY: The variable is set before the first copy.
    let fetches = unsafe { ib_mkey_fast_strings };
    match len {
        // The moves of a few such pieces fill the processor's queues, so it does not load later
        // pieces by itself.
        128 if fetches => each_ahead!(exact::<8, ()>, 2, 6),
        192 if fetches => each_ahead!(exact::<12, ()>, 3, 4),
        256 if fetches => each_ahead!(exact::<16, ()>, 4, 3),
        1 => fours!(u8),
        2 => fours!(u16),
        4 => fours!(u32),
        8 => fours!(u64),
        16 => fours!([u64; 2]),
        20 => each!(exact::<1, u32>),
        24 => each!(exact::<1, u64>),
        32 => fours!([u64; 4]),
        40 => each!(exact::<2, u64>),
        48 => fours!([u64; 6]),
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
        0 => {}
        _ => {
            fetch_pieces(from, len, count);
            each!(lines, len);
        }
    }
}

/// Copies the first `count` values, four in each iteration.
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

/// Copies the first `count` values between `memory` and `packet`, where they follow one another,
/// four in each iteration.
///
/// # Safety
///
/// As for [`copy_row`], in the direction `TO_MEMORY`; a value has as many bytes as a piece.
#[inline(always)]
pub(crate) unsafe fn copy_packed<T: Moved, const TO_MEMORY: bool>(
    mut memory: Pieces<*mut u8>,
    mut packet: *mut u8,
    count: usize,
) {
    for _ in 0..count / 4 {
        // SAFETY: By the safety requirements.
        unsafe { T::copy_packed::<TO_MEMORY>(memory, packet) };
        memory = memory.skip(4);
        packet = packet.wrapping_add(4 * size_of::<T>());
    }
    for _ in 0..count % 4 {
        // SAFETY: As above.
        unsafe {
            if TO_MEMORY {
                T::copy(memory.at, packet);
            } else {
                T::copy(packet, memory.at);
            }
        }
        memory = memory.skip(1);
        packet = packet.wrapping_add(size_of::<T>());
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

/// Copies `len` bytes as lines of 64 bytes, two in each iteration. The last two lines may overlap.
///
/// # Safety
///
/// As for [`exact`], for `len` bytes, at least 64.
#[inline(always)]
pub(crate) unsafe fn lines(mut to: *mut u8, mut from: *const u8, len: usize) {
    let last = len - 64;
    // SAFETY: By the safety requirements: the line ends where the bytes end.
    let (last_to, last_from) = unsafe { (to.add(last), from.add(last)) };
    for _ in 0..last / 128 {
        // SAFETY: By the safety requirements: both lines start before the last one.
        unsafe {
            exact::<8, ()>(to, from);
            (to, from) = (to.add(128), from.add(128));
        }
    }
    let rest = last % 128;
    // SAFETY: By the safety requirements: the first of these lines start before the last one.
    unsafe {
        if rest > 64 {
            exact::<4, ()>(to, from);
            (to, from) = (to.add(64), from.add(64));
        }
        if rest > 0 {
            exact::<4, ()>(to, from);
        }
        exact::<4, ()>(last_to, last_from);
    }
}
