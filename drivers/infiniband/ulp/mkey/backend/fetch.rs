// SPDX-License-Identifier: GPL-2.0

//! Prefetches: the processor loads lines into its cache while it does other work.

use super::moved::Pieces;

/// Lets the processor load the line of `at` into its cache.
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

/// Lets the processor load successive lines from `at` on into its cache.
#[inline(always)]
pub(super) fn fetch_lines<const LINES: usize>(at: *const u8) {
    for line in 0..LINES {
        fetch_line(at.wrapping_add(64 * line));
    }
}

/// Lets the processor load the lines of the first `len` bytes, 257 to 512, of `count` pieces into
/// its cache.
///
/// The moves of such a piece fill the processor's queues, so it would not load the next piece meanwhile.
#[inline(always)]
pub(super) fn fetch_pieces(mut from: Pieces<*const u8>, len: usize, count: usize) {
    for _ in 0..count {
        fetch_lines::<5>(from.at);
        fetch_lines::<3>(from.at.wrapping_add(len).wrapping_sub(192));
        from = from.skip(1);
    }
}
