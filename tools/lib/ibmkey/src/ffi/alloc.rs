// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! MRs whose memory the library allocates: `<infiniband/mkey_alloc.h>`.

use core::ffi::{
    c_int,
    c_uint, //
};
use std::os::fd::IntoRawFd;

use super::store;
use crate::{
    alloc::{
        self,
        Memory, //
    },
    errno::{
        to_int,
        to_ptr,
        Errno, //
    },
    explain::finish,
    sys::{
        ibv_mr,
        ibv_pd, //
    },
};

/// Allocates memory and registers it.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_reg_alloc(
    pd: *mut ibv_pd,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // CAST: The argument is a set of flags, so its sign does not matter.
    // SAFETY: By the function's contract.
    let result = unsafe { alloc::register(pd, access as c_uint, || Memory::new(length)) };

    to_ptr(finish(result, &[("pd", pd.is_null())]))
}

/// Opens a descriptor of the memory of an MR.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_share_mr(mr: *mut ibv_mr, flags: c_int, fd: *mut c_int) -> c_int {
    let result = if fd.is_null() {
        Err(Errno::EFAULT)
    } else {
        // CAST: The argument is a set of flags, so its sign does not matter.
        // SAFETY: By the function's contract.
        unsafe {
            alloc::share(mr, flags as c_uint).and_then(|shared| store(fd, shared.into_raw_fd()))
        }
    };

    to_int(finish(
        result,
        &[("mr", mr.is_null()), ("fd", fd.is_null())],
    ))
}

/// Registers the memory of another process's MR.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_reg_shared(
    pd: *mut ibv_pd,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // CAST: The argument is a set of flags, so its sign does not matter.
    let access = access as c_uint;
    // SAFETY: By the function's contract.
    let result = unsafe { alloc::register(pd, access, || Memory::open(fd, access)) };

    to_ptr(finish(result, &[("pd", pd.is_null())]))
}
