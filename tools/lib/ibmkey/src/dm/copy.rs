// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Copies to and from device memory.

use core::ffi::{
    c_int,
    c_void, //
};

use super::{
    dm_handle,
    Dm, //
};
use crate::{
    errno::{
        to_int,
        Result, //
    },
    ioctl::Command,
    sys, //
};

/// The type of [`memcpy_to_dm`].
pub(super) type CopyTo = unsafe extern "C" fn(*mut sys::ibv_dm, u64, *const c_void, usize) -> c_int;

/// The direction of a copy.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    /// To device memory.
    To,
    /// From device memory.
    From,
}

pub(super) unsafe extern "C" fn memcpy_to_dm(
    dm: *mut sys::ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: By ibv_memcpy_to_dm()'s contract.
    unsafe { copy(dm, Direction::To, dm_offset, host_addr.cast_mut(), length) }
}

pub(super) unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut sys::ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: By ibv_memcpy_from_dm()'s contract.
    unsafe { copy(dm, Direction::From, dm_offset, host_addr, length) }
}

/// Returns 0 or an errno value.
///
/// # Safety
///
/// `dm` is NULL or came from [`fill`](super::fill). The `length` bytes at `host_addr` may be read
/// or written, depending on the direction.
#[inline]
unsafe fn copy(
    dm: *mut sys::ibv_dm,
    direction: Direction,
    dm_offset: u64,
    host_addr: *mut c_void,
    length: usize,
) -> c_int {
    // SAFETY: By the caller's promise.
    if let Some(dm) = unsafe { dm.cast::<Dm>().as_ref() } {
        // SAFETY: By the caller's promise. By libibverbs's contract, no thread frees device memory
        // during a copy, so `close()` is not called.
        if unsafe { dm.view.copy(direction, dm_offset, host_addr, length) } {
            return 0;
        }
    }
    // SAFETY: By the caller's promise.
    to_int(unsafe { copy_and_count(dm, direction, dm_offset, host_addr, length) })
}

/// Copies by a system call, and counts the call.
///
/// # Safety
///
/// The requirements of [`copy`].
#[cold]
unsafe fn copy_and_count(
    dm: *mut sys::ibv_dm,
    direction: Direction,
    dm_offset: u64,
    host_addr: *mut c_void,
    length: usize,
) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { dm_handle(dm) }?;
    let (addr, len) = (host_addr as u64, length as u64);

    by_call(fd, handle, direction, dm_offset, addr, len)?;
    // SAFETY: `dm` is not NULL, because it has a handle. So it came from `fill`, by the caller's
    // promise.
    unsafe { &(*dm.cast::<Dm>()).view }.count(fd, handle);
    Ok(())
}

/// Copies by a system call. The kernel checks the addresses, but not whether Rust allows reading or
/// writing the bytes: the caller ensures that.
pub(super) fn by_call(
    fd: c_int,
    handle: u32,
    direction: Direction,
    dm_offset: u64,
    host_addr: u64,
    length: u64,
) -> Result {
    let direction = match direction {
        Direction::To => sys::IB_UVERBS_MKEY_DM_COPY_TO,
        Direction::From => sys::IB_UVERBS_MKEY_DM_COPY_FROM,
    };

    Command::<5>::new(sys::UVERBS_OBJECT_DM, sys::IB_MKEY_METHOD_DM_COPY)
        .object(sys::IB_MKEY_ATTR_DM_COPY_HANDLE, handle)
        .u64(sys::IB_MKEY_ATTR_DM_COPY_DIR, direction.into())
        .u64(sys::IB_MKEY_ATTR_DM_COPY_OFFSET, dm_offset)
        .u64(sys::IB_MKEY_ATTR_DM_COPY_ADDR, host_addr)
        .u64(sys::IB_MKEY_ATTR_DM_COPY_LENGTH, length)
        .run(fd)
        .map(drop)
}
