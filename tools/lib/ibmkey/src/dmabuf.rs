// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! MRs over dma-bufs, for providers whose library lacks the verb.

use core::ffi::{
    c_int,
    c_uint, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    object,
    sys, //
};

/// Registers a part of a dma-buf; see `ibmkey_reg_dmabuf_mr()`.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub unsafe fn register(
    pd: *mut sys::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_uint,
) -> Result<*mut sys::ibv_mr> {
    // The attribute has an unsigned type. The kernel converts it back to an `int`.
    let buffer = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
    let create = |fd, pd_handle| {
        Command::<9>::new(sys::UVERBS_OBJECT_MR, sys::UVERBS_METHOD_REG_DMABUF_MR)
            .new_object(sys::UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
            .object(sys::UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd_handle)
            .u64(sys::UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset)
            .u64(sys::UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length as u64)
            .u64(sys::UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova)
            .u32(sys::UVERBS_ATTR_REG_DMABUF_MR_FD, buffer)
            .u32(sys::UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access)
            .run_region(
                fd,
                sys::UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
                sys::UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY,
                length,
            )
    };

    // SAFETY: By the caller's promise.
    unsafe { object::new_mr(pd, create) }
}
