// SPDX-License-Identifier: GPL-2.0

//! A function of `lib/string.c` that copies bytes which may race.

use core::ffi::c_void;

extern "C" {
    /// Copies `len` bytes that do not overlap. Returns `to`.
    pub(super) fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
}
