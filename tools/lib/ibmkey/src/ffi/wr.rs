// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Several keys at once, and work requests: `<infiniband/mkey_wr.h>`.

use core::ffi::{
    c_int,
    c_uint,
    c_void, //
};

use super::{
    rebind,
    store, //
};
use crate::{
    errno::{
        to_int,
        Errno, //
    },
    explain::finish,
    many, mkey, object, reason,
    request::{
        self,
        Writer, //
    },
    sys::{
        ib_uverbs_mkey_refused as ibmkey_refused,
        ibmkey_bind,
        ibmkey_wr,
        ibv_mr,
        ibv_qp,
        ibv_qp_ex, //
    },
};

/// Binds several keys, all or none.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_many(
    binds: *const ibmkey_bind,
    num: u32,
    failed: *mut u32,
) -> c_int {
    let mut number = num;
    let result = if binds.is_null() {
        Err(Errno::EFAULT)
    } else {
        // SAFETY: By the function's contract.
        unsafe {
            let binds = core::slice::from_raw_parts(binds, num as usize);
            many::bind(binds, &mut number)
        }
    };

    if result.is_err() && !failed.is_null() {
        // SAFETY: By the function's contract.
        unsafe { failed.write(number) };
    }
    to_int(finish(result, &[("binds", binds.is_null())]))
}

/// Binds a key whose addresses begin at a base address.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_at(bind: *const ibmkey_bind, base_addr: u64) -> c_int {
    // SAFETY: By the function's contract.
    let Some(bind) = (unsafe { bind.as_ref() }) else {
        return to_int(finish(Err::<(), _>(Errno::EFAULT), &[("bind", true)]));
    };
    // SAFETY: By the function's contract.
    unsafe {
        rebind(bind.mkey, |fd, handle| {
            mkey::bind(fd, handle, &mkey::at(many::describe(bind)?, base_addr))
        })
    }
}

/// Writes the description of a layout for a work request.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_describe(
    bind: *const ibmkey_bind,
    to: *mut c_void,
    room: usize,
) -> usize {
    // SAFETY: By this function's contract, which is that of `ibmkey_describe_at()`.
    unsafe { ibmkey_describe_at(bind, 0, to, room) }
}

/// Writes the description of a layout with a base address.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_describe_at(
    bind: *const ibmkey_bind,
    base_addr: u64,
    to: *mut c_void,
    room: usize,
) -> usize {
    // SAFETY: By the function's contract.
    let bind = unsafe { bind.as_ref() };
    let described = bind.ok_or(Errno::EFAULT).and_then(|bind| {
        if to.is_null() && room > 0 {
            return Err(Errno::EFAULT);
        }
        // Compute the length first: a description that does not fit must not be written at all.
        // SAFETY: By the function's contract; nothing is written to a room of 0 bytes.
        let length = unsafe { Writer::new(core::ptr::null_mut(), 0).describe(bind, base_addr) }?;
        if length <= room {
            // SAFETY: By the function's contract.
            unsafe { Writer::new(to.cast(), room).describe(bind, base_addr) }?;
        }
        Ok(length)
    });

    let arguments = [("bind", bind.is_none()), ("to", to.is_null() && room > 0)];
    finish(described, &arguments).unwrap_or_else(|errno| {
        errno.set();
        0
    })
}

/// Posts a work request that binds a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_post_bind(
    qp: *mut ibv_qp,
    wr: *const ibmkey_wr,
    wr_id: u64,
    send_flags: c_uint,
) -> c_int {
    // SAFETY: By the function's contract.
    let wr = unsafe { wr.as_ref() };
    let result = match wr {
        // SAFETY: By the function's contract.
        Some(wr) => unsafe { request::post(qp, wr, wr_id, send_flags) },
        None => Err(Errno::EFAULT),
    };

    to_int(finish(
        result,
        &[("wr", wr.is_none()), ("qp", qp.is_null())],
    ))
}

/// Posts a work request that binds a key to a layout.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_post_layout(
    qp: *mut ibv_qp_ex,
    bind: *const ibmkey_bind,
    wr_id: u64,
    send_flags: c_uint,
) -> c_int {
    // SAFETY: By the function's contract.
    let result = match unsafe { bind.as_ref() } {
        // SAFETY: By the function's contract.
        Some(bind) => unsafe { request::post_layout(qp, bind, wr_id, send_flags) },
        None => Err(Errno::EFAULT),
    };

    to_int(finish(
        result,
        &[("bind", bind.is_null()), ("qp", qp.is_null())],
    ))
}

/// Adds a work request that binds a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_wr_bind(qp: *mut ibv_qp_ex, wr: *const ibmkey_wr) -> c_int {
    // SAFETY: By the function's contract.
    let wr = unsafe { wr.as_ref() };
    let result = match wr {
        // SAFETY: By the function's contract.
        Some(wr) => unsafe { request::add(qp, wr) },
        None => Err(Errno::EFAULT),
    };

    to_int(finish(
        result,
        &[("wr", wr.is_none()), ("qp", qp.is_null())],
    ))
}

/// Posts a work request that unbinds a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_post_unbind(
    qp: *mut ibv_qp,
    mkey: *mut ibv_mr,
    wr_id: u64,
    send_flags: c_uint,
) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { request::post_unbind(qp, mkey, wr_id, send_flags) };

    to_int(finish(
        result,
        &[("qp", qp.is_null()), ("mkey", mkey.is_null())],
    ))
}

/// Adds a work request that unbinds a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_wr_unbind(qp: *mut ibv_qp_ex, mkey: *mut ibv_mr) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { request::add_unbind(qp, mkey) };

    to_int(finish(
        result,
        &[("qp", qp.is_null()), ("mkey", mkey.is_null())],
    ))
}

/// Queries why a work request could not bind a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_query_refused(
    mkey: *mut ibv_mr,
    refused: *mut ibmkey_refused,
) -> c_int {
    // SAFETY: By the function's contract.
    let key = unsafe { object::mr_handle(mkey) };
    let found = key.and_then(|(fd, handle)| mkey::query_refused(fd, handle));

    // SAFETY: By the function's contract.
    let result = found.and_then(|found| unsafe { store(refused, found) });
    let arguments = [("mkey", mkey.is_null()), ("refused", refused.is_null())];
    let result = finish(result, &arguments);
    if let Ok(found) = found {
        reason::tell(&found);
    }
    to_int(result)
}
