// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The system calls on device memory. The kernel knows device memory by a handle.

use core::ffi::c_int;

use super::copy::{
    by_call,
    Direction, //
};
use crate::{
    errno::Result,
    ioctl::Command,
    object::Region,
    sys, //
};

/// Allocates device memory of a class, or of the first one with 0. Returns its handle.
pub(crate) fn allocate(fd: c_int, length: u64, log_align: u32, class: u64) -> Result<u32> {
    let mut command = Command::<4>::new(sys::UVERBS_OBJECT_DM, sys::UVERBS_METHOD_DM_ALLOC)
        .new_object(sys::UVERBS_ATTR_ALLOC_DM_HANDLE)
        .u64(sys::UVERBS_ATTR_ALLOC_DM_LENGTH, length)
        .u32(sys::UVERBS_ATTR_ALLOC_DM_ALIGNMENT, log_align);

    if class != 0 {
        command = command.u64(sys::IB_MKEY_ATTR_DM_ALLOC_CLASS, class);
    }
    command.run(fd)
}

/// Frees device memory. Returns `EBUSY` while the memory is registered.
pub(crate) fn release(fd: c_int, handle: u32) -> Result {
    Command::<1>::new(sys::UVERBS_OBJECT_DM, sys::UVERBS_METHOD_DM_FREE)
        .object(sys::UVERBS_ATTR_FREE_DM_HANDLE, handle)
        .run(fd)
        .map(drop)
}

/// Registers a part of device memory.
pub(crate) fn register(
    fd: c_int,
    pd_handle: u32,
    dm_handle: u32,
    offset: u64,
    length: usize,
    access: u32,
) -> Result<Region> {
    Command::<8>::new(sys::UVERBS_OBJECT_MR, sys::UVERBS_METHOD_DM_MR_REG)
        .new_object(sys::UVERBS_ATTR_REG_DM_MR_HANDLE)
        .object(sys::UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd_handle)
        .object(sys::UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm_handle)
        .u64(sys::UVERBS_ATTR_REG_DM_MR_OFFSET, offset)
        .u64(sys::UVERBS_ATTR_REG_DM_MR_LENGTH, length as u64)
        .u32(sys::UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access)
        .run_region(
            fd,
            sys::UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
            sys::UVERBS_ATTR_REG_DM_MR_RESP_RKEY,
            length,
        )
}

/// Copies bytes out of device memory.
pub(crate) fn read(fd: c_int, handle: u32, at: u64, to: &mut [u8]) -> Result {
    let (address, length) = (to.as_mut_ptr() as u64, to.len() as u64);

    by_call(fd, handle, Direction::From, at, address, length)
}

/// Copies bytes into device memory.
pub(crate) fn write(fd: c_int, handle: u32, at: u64, from: &[u8]) -> Result {
    let (address, length) = (from.as_ptr() as u64, from.len() as u64);

    by_call(fd, handle, Direction::To, at, address, length)
}
