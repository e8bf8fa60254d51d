// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Queries of devices and of keys.

use core::ffi::{
    c_char,
    c_int, //
};

use super::store;
use crate::{
    errno::{
        to_int,
        Errno,
        Result, //
    },
    explain::{
        self,
        finish, //
    },
    mkey, object, reason,
    sys::{
        ib_uverbs_mkey_block as ibmkey_block,
        ib_uverbs_mkey_caps as ibmkey_caps,
        ib_uverbs_mkey_indexed as ibmkey_indexed,
        ib_uverbs_mkey_info as ibmkey_info,
        ib_uverbs_mkey_refused_access as ibmkey_refused_access,
        ibv_context,
        ibv_mr,
        ibv_wc, //
    },
};

/// Queries the limits of a device.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_caps(ctx: *mut ibv_context, caps: *mut ibmkey_caps) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { object::cmd_fd(ctx) }.and_then(mkey::query_caps);

    // SAFETY: By the function's contract.
    let result = result.and_then(|value| unsafe { store(caps, value) });
    to_int(finish(
        result,
        &[("ctx", ctx.is_null()), ("caps", caps.is_null())],
    ))
}

/// Queries the binding of a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query(mkey: *mut ibv_mr, info: *mut ibmkey_info) -> c_int {
    // SAFETY: By the function's contract.
    unsafe {
        ibmkey_query_layout(
            mkey,
            info,
            0,
            core::ptr::null_mut(),
            0,
            core::ptr::null_mut(),
        )
    }
}

/// Queries the base address of a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_base(mkey: *mut ibv_mr, base_addr: *mut u64) -> c_int {
    // SAFETY: By the function's contract.
    let key = unsafe { object::mr_handle(mkey) };
    let base = key.and_then(|(fd, handle)| mkey::query_base(fd, handle));

    // SAFETY: By the function's contract.
    let result = base.and_then(|base| unsafe { store(base_addr, base) });
    let arguments = [("mkey", mkey.is_null()), ("base_addr", base_addr.is_null())];
    to_int(finish(result, &arguments))
}

/// Queries the binding of a key, with its layout.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_layout(
    mkey: *mut ibv_mr,
    info: *mut ibmkey_info,
    max_dims: u32,
    repeat_count: *mut u64,
    max_blocks: u32,
    blocks: *mut ibmkey_block,
) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { object::mr_handle(mkey) }.and_then(|(fd, handle)| {
        // SAFETY: By the function's contract. The caller may not have initialised the elements, but
        // any bit pattern is valid for their types, and this library does not read them.
        let (repeat_count, blocks) =
            unsafe { (slice(max_dims, repeat_count)?, slice(max_blocks, blocks)?) };

        mkey::query(fd, handle, repeat_count, blocks)
    });

    // SAFETY: By the function's contract.
    let result = result.and_then(|value| unsafe { store(info, value) });
    let arguments = [
        ("mkey", mkey.is_null()),
        ("repeat_count", max_dims > 0 && repeat_count.is_null()),
        ("blocks", max_blocks > 0 && blocks.is_null()),
        ("info", info.is_null()),
    ];
    to_int(finish(result, &arguments))
}

/// Queries the binding of a key, with its indices.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_indexed(
    mkey: *mut ibv_mr,
    info: *mut ibmkey_info,
    layout: *mut ibmkey_indexed,
    max_indices: u32,
    indices: *mut u64,
) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { object::mr_handle(mkey) }.and_then(|(fd, handle)| {
        // SAFETY: By the function's contract. Any bit pattern is a valid index, and this library
        // reads none.
        mkey::query_indexed(fd, handle, unsafe { slice(max_indices, indices)? })
    });

    // SAFETY: By the function's contract.
    let result = result.and_then(|(value, indexed)| unsafe {
        match indexed {
            Some(indexed) => store(layout, indexed)?,
            None if layout.is_null() => return Err(Errno::EFAULT),
            None => {}
        }
        store(info, value)
    });
    let arguments = [
        ("mkey", mkey.is_null()),
        ("indices", max_indices > 0 && indices.is_null()),
        ("layout", layout.is_null()),
        ("info", info.is_null()),
    ];
    to_int(finish(result, &arguments))
}

/// Queries the last refused access to a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_refused_access(
    mkey: *mut ibv_mr,
    access: *mut ibmkey_refused_access,
) -> c_int {
    // SAFETY: By the function's contract.
    let key = unsafe { object::mr_handle(mkey) };
    let found = key.and_then(|(fd, handle)| mkey::query_refused_access(fd, handle));

    // SAFETY: By the function's contract.
    let result = found.and_then(|found| unsafe { store(access, found) });
    let arguments = [("mkey", mkey.is_null()), ("access", access.is_null())];
    let result = finish(result, &arguments);
    if let Ok(found) = found {
        reason::tell_access(&found);
    }
    to_int(result)
}

/// Says why a request has completed with an error.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_why(ctx: *mut ibv_context, wc: *const ibv_wc) -> *const c_char {
    // SAFETY: By the function's contract.
    let status = unsafe { wc.as_ref() }.map(|wc| wc.status);
    // SAFETY: By the function's contract.
    let found = unsafe { object::cmd_fd(ctx) }.and_then(mkey::last_refused_access);
    let arguments = [("ctx", ctx.is_null())];
    if let Ok(found) = finish(found, &arguments) {
        explain::store(&reason::why(status, &found));
    }
    explain::last()
}

/// # Safety
///
/// `items` is NULL or points to `count` elements that may be written during
/// `'a`.
unsafe fn slice<'a, T>(count: u32, items: *mut T) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if items.is_null() {
        return Err(Errno::EFAULT);
    }

    // SAFETY: By the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts_mut(items, count as usize) })
}
