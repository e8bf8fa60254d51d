// SPDX-License-Identifier: GPL-2.0

//! The function that the module's copies take from the kernel.

use std::ffi::c_void;

/// Copies as `memcpy()` of the kernel does on a processor with fast strings. The one of the C library
/// copies by vectors, which a kernel has not.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of `len` bytes, which do not overlap.
pub(super) unsafe fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: By the safety requirements.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: By the safety requirements.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), len);
    }
    to
}
