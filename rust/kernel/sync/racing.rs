// SPDX-License-Identifier: GPL-2.0

//! Copies of bytes that others read and write at the same time.

use core::arch::asm;
use kernel::ffi::c_void;

extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
}

/// Copies `len` bytes, which other processors and devices may read and write meanwhile. A byte that
/// is written meanwhile is copied as it was before or as it is afterwards.
///
/// In Rust's model an ordinary access that races is undefined behaviour, so C makes the copy. But
/// the compiler knows what a function named `memcpy` does: it could replace the call, or read the
/// original bytes in place of the copied ones. The assembly, which contains no instruction,
/// prevents that.
///
/// # Safety
///
/// `from` must be valid for reads, and `to` for writes, of `len` bytes that do not overlap. There
/// must be no reference to those that others may write.
#[inline]
pub(crate) unsafe fn copy_racing(mut to: *mut u8, mut from: *const u8, len: usize) {
    // SAFETY: There is no instruction. After it the compiler does not know the objects that the
    // pointers are to.
    unsafe {
        asm!(
            "/* {to} {from} */",
            to = inout(reg) to,
            from = inout(reg) from,
            options(nostack, preserves_flags),
        )
    };
    // SAFETY: By the safety requirements; the assembly has not changed the pointers.
    unsafe { memcpy(to.cast(), from.cast(), len) };
    // SAFETY: There is no instruction. For the compiler it may read and write all memory, so the
    // copy is complete before and is not repeated later.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
