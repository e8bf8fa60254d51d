// SPDX-License-Identifier: GPL-2.0

//! Prefetches of lines into the processor's cache.

use super::moved::Pieces;

/// Prefetches the line of `at`.
#[inline(always)]
pub(super) fn fetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: The instruction accesses no memory; any address is allowed.
    unsafe {
        core::arch::asm!(
            "prefetcht0 [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches successive lines from `at` on.
#[inline(always)]
pub(super) fn fetch_lines<const LINES: usize>(at: *const u8) {
    for line in 0..LINES {
        fetch_line(at.wrapping_add(64 * line));
    }
}

/// Prefetches the first `len` bytes, 257 to 512, of `count` pieces.
///
/// The moves of such a piece fill the processor's queues, so the processor would not load the next
/// piece meanwhile.
#[inline(always)]
pub(super) fn fetch_pieces(mut from: Pieces<*const u8>, len: usize, count: usize) {
    for _ in 0..count {
        fetch_lines::<5>(from.at);
        fetch_lines::<3>(from.at.wrapping_add(len).wrapping_sub(192));
        from = from.skip(1);
    }
}
