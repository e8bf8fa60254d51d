// SPDX-License-Identifier: GPL-2.0

//! Fields and bytes that others read and write at the same time.
//!
//! A field that C writes at any time is read by [`read_once`] and written by [`write_once`] or
//! [`store_release`], and by nothing else. In Rust's model an ordinary access that races is
//! undefined behaviour. Rust code of the kernel uses the memory model of the Linux kernel instead.
//! In that model a volatile access of an aligned field of a machine word or less is a marked
//! access, as those of `READ_ONCE()` and `WRITE_ONCE()` are: the compiler makes one access of it,
//! and does not repeat or omit it. A reader therefore gets a value that was written, and never a
//! part of one. What it concludes from two fields is right only if the order of the reads is
//! ([`load_acquire`]).
//!
//! `kernel::sync::atomic` does the same by calls of C functions, which the data path cannot afford.
//! So the data path reads an [`Atomic`] by [`load_relaxed`].

use core::{
    mem::size_of,
    sync::atomic::{compiler_fence, fence, Ordering},
};
use kernel::{
    ffi::c_void,
    sync::atomic::{Atomic, AtomicType},
};

extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
}

/// Reads a field that other threads may write meanwhile, as `READ_ONCE()` does.
///
/// # Safety
///
/// `field` must be valid for reads, and aligned. All writes that may race must write the whole
/// field at once. All values that they write must be values of a `T`.
#[inline(always)]
pub(crate) unsafe fn read_once<T: Copy>(field: *const T) -> T {
    const { assert!(size_of::<T>() <= size_of::<usize>()) };
    // SAFETY: By the safety requirements.
    unsafe { field.read_volatile() }
}

/// Reads an atomic value in relaxed order.
#[inline(always)]
pub(crate) fn load_relaxed<T: AtomicType>(atomic: &Atomic<T>) -> T {
    // SAFETY: The pointer is valid and aligned, and all accesses are atomic.
    unsafe { read_once(atomic.as_ptr()) }
}

/// Reads a field as [`read_once`] does. Later reads are not made before this one, as after
/// `smp_load_acquire()`.
///
/// # Safety
///
/// As for [`read_once`].
#[inline(always)]
pub(crate) unsafe fn load_acquire<T: Copy>(field: *const T) -> T {
    // SAFETY: By the safety requirements.
    let value = unsafe { read_once(field) };
    fence(Ordering::Acquire);
    value
}

/// Writes a field that other threads may read and write meanwhile, as `WRITE_ONCE()` does.
///
/// # Safety
///
/// `field` must be valid for writes, and aligned. All accesses that may race must access the whole
/// field at once.
#[inline(always)]
pub(crate) unsafe fn write_once<T: Copy>(field: *mut T, value: T) {
    const { assert!(size_of::<T>() <= size_of::<usize>()) };
    // SAFETY: By the safety requirements.
    unsafe { field.write_volatile(value) };
}

/// Writes a field as [`write_once`] does. Earlier accesses are not made after this one, as before
/// `smp_store_release()`.
///
/// # Safety
///
/// As for [`write_once`].
#[inline(always)]
pub(crate) unsafe fn store_release<T: Copy>(field: *mut T, value: T) {
    fence(Ordering::Release);
    // SAFETY: By the safety requirements.
    unsafe { write_once(field, value) };
}

/// Copies `len` bytes, which other processors and devices may read and write meanwhile. A byte that
/// is written meanwhile is copied as it was before or as it is afterwards.
///
/// The bytes have no fields, so no access of them is a marked one, and `memcpy()` of C makes the copy,
/// byte by byte in the model. The compiler knows what a function with this name does. It makes a few
/// moves in place of a call with a small constant length. It could also read the original bytes later
/// in place of the copied ones. The fence prevents that: what others may write has changed for the
/// compiler then.
///
/// # Safety
///
/// `from` must be valid for reads, and `to` for writes, of `len` bytes that do not overlap. There
/// must be no reference to those that others may write.
#[inline]
pub(crate) unsafe fn copy_racing(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the safety requirements.
    unsafe { memcpy(to.cast(), from.cast(), len) };
    compiler_fence(Ordering::SeqCst);
}
