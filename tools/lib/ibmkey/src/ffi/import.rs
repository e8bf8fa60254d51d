// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Contexts and protection domains of other verbs libraries: `<infiniband/mkey_import.h>`.

use core::ffi::c_int;

use crate::{
    errno::to_ptr,
    explain::finish,
    import,
    sys::{
        ibv_context,
        ibv_pd, //
    },
};

/// Imports a context of another verbs library.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_import_context(cmd_fd: c_int) -> *mut ibv_context {
    to_ptr(finish(import::context(cmd_fd), &[]))
}

/// Closes an imported context.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_unimport_context(ctx: *mut ibv_context) {
    // SAFETY: By the function's contract.
    unsafe { import::close_context(ctx) }
}

/// Imports a protection domain of another verbs library.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_import_pd(ctx: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    to_ptr(finish(
        import::pd(ctx, pd_handle),
        &[("ctx", ctx.is_null())],
    ))
}

/// Frees an imported protection domain.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: By the function's contract.
    unsafe { import::free_pd(pd) }
}
