// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Device memory, MRs over dma-bufs, and MRs that change: `<infiniband/mkey_dm.h>`.

use core::ffi::{
    c_int,
    c_uint,
    c_void, //
};

use super::store;
use crate::{
    alloc, dm, dmabuf,
    errno::{
        to_int,
        to_ptr,
        Errno, //
    },
    explain::finish,
    sys::{
        self,
        ibv_alloc_dm_attr,
        ibv_context,
        ibv_dm,
        ibv_mr,
        ibv_pd, //
    },
};

/// Makes the device-memory verbs work on a context.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_enable(ctx: *mut ibv_context) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { dm::enable(ctx) };

    to_int(finish(result, &[("ctx", ctx.is_null())]))
}

/// Allocates device memory of a class.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_alloc_dm(
    ctx: *mut ibv_context,
    attr: *const ibv_alloc_dm_attr,
    dm_class: u64,
) -> *mut ibv_dm {
    // SAFETY: By the function's contract.
    let attr = unsafe { attr.as_ref() };
    let result = match attr {
        // SAFETY: By the function's contract.
        Some(attr) => unsafe { dm::alloc(ctx, attr, dm_class) },
        None => Err(Errno::EFAULT),
    };

    to_ptr(finish(
        result,
        &[("attr", attr.is_none()), ("ctx", ctx.is_null())],
    ))
}

/// Queries the class of device memory.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_dm(dm: *mut ibv_dm, dm_class: *mut u64) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { dm::query(dm).and_then(|class| store(dm_class, class)) };

    to_int(finish(
        result,
        &[("dm", dm.is_null()), ("dm_class", dm_class.is_null())],
    ))
}

/// Exports device memory as a dma-buf.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_export_dm(dm: *mut ibv_dm, fd: *mut c_int) -> c_int {
    let result = if fd.is_null() {
        Err(Errno::EFAULT)
    } else {
        // SAFETY: By the function's contract.
        unsafe { dm::export(dm) }.and_then(|new| unsafe { store(fd, new) })
    };

    to_int(finish(
        result,
        &[("dm", dm.is_null()), ("fd", fd.is_null())],
    ))
}

/// Registers a part of a dma-buf.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // CAST: The argument is a set of flags, so its sign does not matter.
    let access = access as c_uint;
    // SAFETY: By the function's contract.
    let result = unsafe { dmabuf::register(pd, offset, length, iova, fd, access) };

    to_ptr(finish(result, &[("pd", pd.is_null())]))
}

/// Changes the memory, the protection domain or the access flags of an MR.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // CAST: The arguments are sets of flags, so their signs do not matter.
    let (flags, access) = (flags as c_uint, access as c_uint);
    let needs_pd = flags & sys::IBV_REREG_MR_CHANGE_PD != 0;
    // SAFETY: By the function's contract.
    let result = unsafe { alloc::rereg(mr, flags, pd, addr, length, access) };

    to_int(finish(
        result,
        &[("mr", mr.is_null()), ("pd", needs_pd && pd.is_null())],
    ))
}
