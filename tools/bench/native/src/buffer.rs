// SPDX-License-Identifier: GPL-2.0

//! Memory for the messages.

use std::{
    ffi::{c_int, c_void},
    ops::{Deref, DerefMut},
};

/// Bytes of a large page.
const LARGE: usize = 2 << 20;

/// `MADV_HUGEPAGE` of Linux.
const HUGEPAGE: c_int = 14;

extern "C" {
    fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int;
}

/// Bytes in large pages.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Returns `len` bytes in large pages, if Linux has some: a kernel accesses memory through
    /// large pages, too.
    pub(super) fn new(len: usize) -> Self {
        Self::after(0, len)
    }

    /// Returns `len` bytes for packets. They begin where rxe has the payload of most packets: as
    /// many bytes after the beginning of a line of the cache as a BTH has.
    pub(super) fn packets(len: usize) -> Self {
        Self::after(12, len)
    }

    /// Returns `len` bytes that begin so many bytes after the beginning of a large page.
    fn after(header: usize, len: usize) -> Self {
        let mut bytes = vec![0; LARGE + header + len];
        let start = bytes.as_ptr().align_offset(LARGE).min(LARGE) + header;
        // SAFETY: The range is within the vector, and the advice changes no byte.
        unsafe {
            // In vain on a kernel without large pages.
            let _ = madvise(bytes.as_mut_ptr().add(start - header).cast(), len, HUGEPAGE);
        }
        bytes.fill(1);
        bytes.truncate(start + len);
        Self { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// Fills `bytes` with numbers that differ from place to place.
pub(super) fn fill(bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i ^ (i >> 8)) as u8;
    }
}
