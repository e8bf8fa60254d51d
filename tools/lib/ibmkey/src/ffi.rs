// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The C interface; `<infiniband/mkey.h>` and the headers that it includes describe it.
//!
//! Callers must fulfil the contract of the header. A pointer is NULL or points to a valid object of
//! its type, and an array has as many elements as its count says. "The function's contract" in this
//! module means these rules. The functions return an error for a NULL that the header does not
//! allow.

#![allow(clippy::missing_safety_doc)]

mod alloc;
mod dm;
mod import;
mod pool;
mod query;
mod wr;

use core::ffi::{
    c_char,
    c_int,
    c_uint,
    c_void, //
};

pub use self::{
    alloc::*,
    dm::*,
    import::*,
    pool::*,
    query::*,
    wr::*, //
};
use crate::{
    convert,
    errno::{
        to_int,
        to_ptr,
        Errno,
        Result, //
    },
    explain::{
        self,
        finish,
        say, //
    },
    iov,
    mkey::{
        self,
        Bound, //
    },
    object, reason,
    sys::{
        self,
        ib_uverbs_mkey_bind,
        ib_uverbs_mkey_block as ibmkey_block,
        ib_uverbs_mkey_indexed as ibmkey_indexed,
        ib_uverbs_mkey_sge as ibmkey_range,
        ibmkey_alloc_attr,
        ibv_mr,
        ibv_pd,
        ibv_sge,
        iovec, //
    },
};

/// Makes the compiler compare the type of a definition with that of the header's declaration.
macro_rules! declared {
    ($($name:ident),* $(,)?) => {
        $(const _: () = {
            // The two arms of an `if` must have the same type. This code never runs.
            let _ = if true { crate::sys::$name } else { $name };
        };)*
    };
}

declared!(
    ibmkey_alloc,
    ibmkey_alloc_dm,
    ibmkey_alloc_ex,
    ibmkey_bind_at,
    ibmkey_bind_indexed,
    ibmkey_bind_interleaved,
    ibmkey_bind_list,
    ibmkey_bind_many,
    ibmkey_dereg,
    ibmkey_describe,
    ibmkey_describe_at,
    ibmkey_enable,
    ibmkey_export_dm,
    ibmkey_import_context,
    ibmkey_import_pd,
    ibmkey_last_error,
    ibmkey_pool_create,
    ibmkey_pool_destroy,
    ibmkey_pool_get,
    ibmkey_pool_put,
    ibmkey_post_bind,
    ibmkey_post_layout,
    ibmkey_post_unbind,
    ibmkey_query,
    ibmkey_query_base,
    ibmkey_query_caps,
    ibmkey_query_dm,
    ibmkey_query_indexed,
    ibmkey_query_layout,
    ibmkey_query_refused,
    ibmkey_query_refused_access,
    ibmkey_reg_alloc,
    ibmkey_reg_dmabuf_mr,
    ibmkey_reg_iov,
    ibmkey_reg_shared,
    ibmkey_reg_strided,
    ibmkey_rereg_mr,
    ibmkey_sge,
    ibmkey_share_mr,
    ibmkey_unbind,
    ibmkey_unimport_context,
    ibmkey_unimport_pd,
    ibmkey_why,
    ibmkey_wr_bind,
    ibmkey_wr_unbind,
    ibv_rereg_mr_interleaved,
    ibv_rereg_mr_sg,
);

/// Creates a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_alloc(pd: *mut ibv_pd, max_entries: u32) -> *mut ibv_mr {
    // SAFETY: By the function's contract.
    let key = unsafe { object::new_mr(pd, |fd, pd| mkey::create(fd, pd, max_entries, 0)) };

    to_ptr(finish(key, &[("pd", pd.is_null())]))
}

/// Creates a key with attributes.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_alloc_ex(
    pd: *mut ibv_pd,
    attr: *const ibmkey_alloc_attr,
) -> *mut ibv_mr {
    // SAFETY: By the function's contract.
    let attr = unsafe { attr.as_ref() };
    let key = match attr {
        Some(attr) if attr.comp_mask != 0 => Err(reason::invalid(
            sys::IB_UVERBS_MKEY_REASON_COMP_MASK,
            attr.comp_mask,
        )),
        Some(attr) if attr.flags & !sys::IBMKEY_ALLOC_REVOCABLE != 0 => {
            let words = format!("attr.flags {:#x} has an unknown bit", attr.flags);
            Err(say(Errno::EINVAL, &words))
        }
        // SAFETY: By the function's contract.
        Some(attr) => unsafe {
            object::new_mr(pd, |fd, pd| {
                mkey::create(fd, pd, attr.max_entries, attr.flags)
            })
        },
        None => Err(Errno::EFAULT),
    };

    // A wrong attribute is named even if there is no protection domain.
    let has_wrong = attr.is_some_and(|attr| attr.comp_mask != 0);
    to_ptr(finish(
        key,
        &[("attr", attr.is_none()), ("pd", pd.is_null() && !has_wrong)],
    ))
}

/// Registers the memory of an iovec as one key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_reg_iov(
    pd: *mut ibv_pd,
    iov: *const iovec,
    num_iov: u32,
    access: c_int,
) -> *mut ibv_mr {
    // CAST: The argument is a set of flags, so its sign does not matter.
    let access = access as c_uint;
    let is_null = iov.is_null() && num_iov > 0;
    let result = match num_iov {
        0 => Err(say(Errno::EINVAL, "num_iov is 0")),
        _ if is_null => Err(Errno::EFAULT),
        // SAFETY: By the function's contract; `iov` is not NULL.
        _ => unsafe {
            let iov = core::slice::from_raw_parts(iov, num_iov as usize);
            iov::register_iov(pd, iov, access)
        },
    };

    to_ptr(finish(
        result,
        &[("iov", is_null), ("pd", pd.is_null() && num_iov > 0)],
    ))
}

/// Registers memory that repeats with a stride as one key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_reg_strided(
    pd: *mut ibv_pd,
    first: *mut c_void,
    bytes: usize,
    num_dims: u32,
    repeat_count: *const u64,
    stride: *const i64,
    access: c_int,
) -> *mut ibv_mr {
    // Without room for the strides in a block, the kernel is not asked.
    let result = if num_dims == 0 || num_dims > sys::IB_MKEY_MAX_DIMS {
        let reason = sys::IB_UVERBS_MKEY_REASON_DIMS;
        Err(reason::invalid(reason, num_dims.into()))
    } else if repeat_count.is_null() || stride.is_null() {
        Err(Errno::EFAULT)
    } else {
        // SAFETY: By the function's contract; the arrays are not NULL.
        unsafe {
            let repeat = core::slice::from_raw_parts(repeat_count, num_dims as usize);
            let stride = core::slice::from_raw_parts(stride, num_dims as usize);
            // CAST: The access flags are a set, so their sign does not matter.
            iov::register_strided(
                pd,
                first as u64,
                bytes as u64,
                repeat,
                stride,
                access as c_uint,
            )
        }
    };

    let arguments = [
        ("repeat_count", repeat_count.is_null()),
        ("stride", stride.is_null()),
        ("pd", pd.is_null()),
    ];
    to_ptr(finish(result, &arguments))
}

/// Destroys a key and the MRs that it owns.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_dereg(mkey: *mut ibv_mr) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { iov::deregister(mkey) };

    to_int(finish(result, &[("mkey", mkey.is_null())]))
}

/// Binds a key to ranges, one after another.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_list(
    mkey: *mut ibv_mr,
    access: c_uint,
    num_ranges: u32,
    ranges: *const ibmkey_range,
) -> c_int {
    // SAFETY: By the function's contract.
    unsafe { bind(mkey, &mkey::list(access, num_ranges, ranges)) }
}

/// Binds a key to ranges in libibverbs's elements, under the RFC's name.
#[no_mangle]
pub unsafe extern "C" fn ibv_rereg_mr_sg(
    mkey: *mut ibv_mr,
    access: c_uint,
    num_sge: u32,
    sg_list: *const ibv_sge,
) -> c_int {
    // SAFETY: By the function's contract.
    let call = |fd, handle| unsafe { mkey::bind_sges(fd, handle, access, num_sge, sg_list) };
    // SAFETY: By the function's contract.
    let elements = || unsafe { elements(sg_list, num_sge) };
    let names = |lkey| elements().iter().any(|sge| sge.lkey == lkey);

    // SAFETY: By the function's contract.
    unsafe { relayout(mkey, call, names) }
}

/// Binds a key to blocks that repeat with a stride.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_interleaved(
    mkey: *mut ibv_mr,
    access: c_uint,
    num_dims: u32,
    repeat_count: *const u64,
    num_blocks: u32,
    blocks: *const ibmkey_block,
) -> c_int {
    let layout = mkey::interleaved(access, num_dims, repeat_count, num_blocks, blocks);

    // SAFETY: By the function's contract.
    unsafe { bind(mkey, &layout) }
}

/// Binds a key to blocks that repeat with a stride, under the RFC's name.
#[no_mangle]
pub unsafe extern "C" fn ibv_rereg_mr_interleaved(
    mkey: *mut ibv_mr,
    access: c_uint,
    num_dims: u32,
    repeat_count: *const u64,
    num_blocks: u32,
    blocks: *const ibmkey_block,
) -> c_int {
    let layout = mkey::interleaved(access, num_dims, repeat_count, num_blocks, blocks);
    // SAFETY: By the function's contract.
    let call = |fd, handle| unsafe { mkey::bind(fd, handle, &layout) };
    // SAFETY: By the function's contract.
    let elements = || unsafe { elements(blocks, num_blocks) };
    let names = |lkey| elements().iter().any(|block| block.lkey == lkey);

    // SAFETY: By the function's contract.
    unsafe { relayout(mkey, call, names) }
}

/// Returns an array as a slice.
///
/// # Safety
///
/// `array` is NULL or has `count` elements.
unsafe fn elements<'a, T>(array: *const T, count: u32) -> &'a [T] {
    match array.is_null() {
        true => &[],
        // SAFETY: By the caller's promise.
        false => unsafe { core::slice::from_raw_parts(array, count as usize) },
    }
}

/// Binds a key, or replaces an MR by a key that `call` binds. `names` tells whether the layout has
/// an entry with this lkey.
///
/// # Safety
///
/// `mr` is NULL or an MR.
unsafe fn relayout(
    mr: *mut ibv_mr,
    call: impl FnOnce(c_int, u32) -> Result<Bound>,
    names: impl FnOnce(u32) -> bool,
) -> c_int {
    // SAFETY: By the caller's promise.
    unsafe {
        if convert::is_ordinary(mr) {
            return to_int(finish(convert::to_key(mr, call, names), &[]));
        }
        rebind(mr, call)
    }
}

/// Binds a key to blocks at indices.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_indexed(
    mkey: *mut ibv_mr,
    access: c_uint,
    layout: *const ibmkey_indexed,
) -> c_int {
    // SAFETY: By the function's contract.
    unsafe { bind(mkey, &mkey::indexed(access, layout)) }
}

/// Returns a sentence about the last call that failed in this thread.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_last_error() -> *const c_char {
    explain::last()
}

/// Returns a key to its state after it was created.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_unbind(mkey: *mut ibv_mr) -> c_int {
    // SAFETY: By the function's contract.
    unsafe { rebind(mkey, mkey::unbind) }
}

/// # Safety
///
/// `mkey` is NULL or an MR. The arrays of the layout are NULL, or as long as their counts say.
unsafe fn bind(mkey: *mut ibv_mr, layout: &ib_uverbs_mkey_bind) -> c_int {
    // SAFETY: By the caller's promise.
    let call = |fd, handle| unsafe { mkey::bind(fd, handle, layout) };

    // SAFETY: By the caller's promise.
    unsafe { rebind(mkey, call) }
}

/// Describes all bytes of a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_sge(mr: *const ibv_mr) -> ibv_sge {
    // SAFETY: By the function's contract.
    unsafe { mr.as_ref() }.map_or_else(ibv_sge::default, |mr| ibv_sge {
        addr: mr.addr as u64,
        length: u32::try_from(mr.length).unwrap_or(u32::MAX),
        lkey: mr.lkey,
    })
}

/// Runs a call that changes the binding, and then updates the fields of the `struct ibv_mr`.
///
/// # Safety
///
/// `mkey` is NULL or an MR.
unsafe fn rebind(mkey: *mut ibv_mr, call: impl FnOnce(c_int, u32) -> Result<Bound>) -> c_int {
    // SAFETY: By the caller's promise.
    let bound = unsafe { object::mr_handle(mkey) }.and_then(|(fd, handle)| call(fd, handle));
    // SAFETY: `mkey` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    let result = bound.map(|bound| unsafe { object::set_bound(mkey, bound) });

    to_int(finish(result, &[("mkey", mkey.is_null())]))
}

/// # Safety
///
/// `to` is NULL or may be written.
unsafe fn store<T>(to: *mut T, value: T) -> Result {
    if to.is_null() {
        return Err(Errno::EFAULT);
    }

    // SAFETY: By the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}
