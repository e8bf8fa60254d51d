// SPDX-License-Identifier: GPL-2.0

//! The function that the module's copies take from `rust/kernel/sync/racing.rs`.

use std::ffi::c_void;

/// Copies as the kernel does.
///
/// # Safety
///
/// As for [`memcpy`].
pub(super) unsafe fn copy_racing(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirement.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}

/// Copies as `memcpy()` of the kernel does on a processor with fast strings. The one of the C
/// library copies by vectors, which a kernel has not.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of `len` bytes, which do not overlap.
// `gather.c` calls it, too.
#[export_name = "mkey_bench_kernel_memcpy"]
unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
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
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), len);
    }
    to
}
