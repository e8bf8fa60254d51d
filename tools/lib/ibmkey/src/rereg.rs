// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Changes an MR as `ibv_rereg_mr()` does, for providers whose library lacks that verb.

use core::{
    ffi::{
        c_uint,
        c_void, //
    },
    mem::size_of,
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::{
        Command,
        Plain, //
    },
    object,
    sys, //
};

/// `struct ib_uverbs_rereg_mr`, without the data that a driver may add.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    response: u64,
    mr_handle: u32,
    flags: u32,
    start: u64,
    length: u64,
    hca_va: u64,
    pd_handle: u32,
    access_flags: u32,
}

// SAFETY: The fields are integers in naturally aligned order, without padding.
unsafe impl Plain for Request {}

const _: () = assert!(size_of::<Request>() == size_of::<sys::ib_uverbs_rereg_mr>());

/// Changes the parts of an MR that `flags` names; see `ibmkey_rereg_mr()`.
///
/// # Safety
///
/// `mr` is NULL or an MR, `pd` is NULL or a protection domain.
pub unsafe fn rereg(
    mr: *mut sys::ibv_mr,
    flags: c_uint,
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, mr_handle) = unsafe { object::mr_handle(mr) }?;
    let new_pd = flags & sys::IBV_REREG_MR_CHANGE_PD != 0;
    let moves = flags & sys::IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    if new_pd && pd.is_null() {
        return Err(Errno::EINVAL);
    }
    let pd_handle = if new_pd {
        // SAFETY: `pd` is not NULL, so it is a protection domain, by the caller's promise. The
        // field is not written after the allocation.
        unsafe { (*pd).handle }
    } else {
        0
    };
    let mut response = [0u32; 2];
    let request = [Request {
        response: 0,
        mr_handle,
        flags,
        start: addr as u64,
        length: length as u64,
        hca_va: addr as u64,
        pd_handle,
        access_flags: access,
    }];

    Command::<3>::new(sys::UVERBS_OBJECT_DEVICE, sys::UVERBS_METHOD_INVOKE_WRITE)
        .slice(sys::UVERBS_ATTR_CORE_IN, &request)
        .out(sys::UVERBS_ATTR_CORE_OUT, &mut response)
        .u64(
            sys::UVERBS_ATTR_WRITE_CMD,
            sys::IB_USER_VERBS_CMD_REREG_MR.into(),
        )
        .run(fd)?;

    // SAFETY: `mr` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    let mr = unsafe { &mut *mr };
    mr.lkey = response[0];
    mr.rkey = response[1];
    if new_pd {
        mr.pd = pd;
    }
    if moves {
        mr.addr = addr;
        mr.length = length;
    }
    Ok(())
}
