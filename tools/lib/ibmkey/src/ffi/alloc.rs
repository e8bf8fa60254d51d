// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! MRs whose memory the library allocates: `<infiniband/mkey_alloc.h>`.

use core::ffi::{
    c_int,
    c_uint, //
};

use crate::{
    alloc,
    errno::to_ptr,
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
    let result = unsafe { alloc::register(pd, length, access as c_uint) };

    to_ptr(finish(result, &[("pd", pd.is_null())]))
}
