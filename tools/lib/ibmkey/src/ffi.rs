// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The C interface; `<infiniband/mkey.h>` and the headers that it includes describe it.
//!
//! Callers must fulfil the contract of the header. A pointer is NULL or points to a valid object of
//! its type, and an array has as many elements as its count says. "The function's contract" in this
//! module means these rules. The functions return an error for a NULL that the header does not
//! allow.

#![allow(clippy::missing_safety_doc)]

mod dm;
mod import;
mod pool;
mod query;
mod wr;

use core::ffi::{
    c_char,
    c_int,
    c_uint, //
};

pub use self::{
    dm::*,
    import::*,
    pool::*,
    query::*,
    wr::*, //
};
use crate::{
    errno::{
        to_int,
        to_ptr,
        Errno,
        Result, //
    },
    explain::{
        self,
        calls::{
            self,
            explained, //
        },
        plain,
        Failed,
        Layout, //
    },
    indexed, iov,
    mkey::{
        self,
        Array,
        Bound, //
    },
    object,
    sys::{
        ibmkey_alloc_attr,
        ibmkey_block,
        ibmkey_indexed,
        ibmkey_range,
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
    ibmkey_bind_indexed,
    ibmkey_bind_interleaved,
    ibmkey_bind_list,
    ibmkey_bind_many,
    ibmkey_dereg,
    ibmkey_describe,
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
    ibmkey_post_unbind,
    ibmkey_query,
    ibmkey_query_caps,
    ibmkey_query_indexed,
    ibmkey_query_layout,
    ibmkey_query_refused,
    ibmkey_reg_dmabuf_mr,
    ibmkey_reg_iov,
    ibmkey_rereg_mr,
    ibmkey_unbind,
    ibmkey_unimport_context,
    ibmkey_unimport_pd,
    ibmkey_wr_bind,
    ibmkey_wr_unbind,
    ibv_rereg_mr_interleaved,
    ibv_rereg_mr_sg,
);

/// Creates a key.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_alloc(pd: *mut ibv_pd, max_entries: u32) -> *mut ibv_mr {
    // SAFETY: By the function's contract.
    let key =
        unsafe { object::new_mr(pd, |fd, pd_handle| mkey::create(fd, pd_handle, max_entries)) };

    to_ptr(explained(key, |errno| {
        calls::alloc(!pd.is_null(), max_entries, errno)
    }))
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
        Some(attr) if attr.comp_mask != 0 => Err(Errno::EINVAL),
        // SAFETY: By the function's contract.
        Some(attr) => unsafe {
            object::new_mr(pd, |fd, pd_handle| {
                mkey::create_with(fd, pd_handle, attr.max_entries, attr.flags)
            })
        },
        None => Err(Errno::EFAULT),
    };

    to_ptr(explained(key, |errno| {
        calls::alloc_ex(!pd.is_null(), attr, errno)
    }))
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
    let iov = match (iov.is_null(), num_iov) {
        (_, 0) => Some([].as_slice()),
        (true, _) => None,
        // SAFETY: By the function's contract; `iov` is not NULL.
        (false, _) => Some(unsafe { core::slice::from_raw_parts(iov, num_iov as usize) }),
    };
    let result = match iov {
        // SAFETY: By the function's contract.
        Some(iov) => unsafe { iov::register_iov(pd, iov, access) },
        None => Err(Errno::EFAULT),
    };

    // SAFETY: By the function's contract.
    to_ptr(explained(result, |errno| unsafe {
        calls::reg_iov(pd, iov, access, errno)
    }))
}

/// Destroys a key and the MRs that it owns.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_dereg(mkey: *mut ibv_mr) -> c_int {
    // SAFETY: By the function's contract.
    let result = unsafe { iov::deregister(mkey) };

    to_int(explained(result, |errno| {
        plain::on_key(&[("mkey", mkey.is_null())], errno)
    }))
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
    let list = unsafe { Array::from_raw(num_ranges, ranges) };
    let call = |fd, handle| mkey::bind_list(fd, handle, access, list);
    let layout = || Layout::List(list.items().unwrap_or_default());

    // SAFETY: By the function's contract.
    unsafe { rebind_or_explain(mkey, call, layout, access, num_ranges, 0) }
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
    let list = unsafe { Array::from_raw(num_sge, sg_list) };
    let call = |fd, handle| mkey::bind_sge_list(fd, handle, access, list);
    let ranges = std::cell::OnceCell::new();
    let layout = || {
        let elements = list.items().unwrap_or_default();
        Layout::List(ranges.get_or_init(|| {
            let translated = elements.iter().map(mkey::sge_to_range);
            translated.collect::<Vec<_>>()
        }))
    };

    // SAFETY: By the function's contract.
    unsafe { rebind_or_explain(mkey, call, layout, access, num_sge, 0) }
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
    // SAFETY: By the function's contract.
    let (repeat, blocks) = unsafe {
        (
            Array::from_raw(num_dims, repeat_count),
            Array::from_raw(num_blocks, blocks),
        )
    };
    let call = |fd, handle| mkey::bind_interleaved(fd, handle, access, repeat, blocks);
    let layout = || {
        Layout::Interleaved(
            repeat.items().unwrap_or_default(),
            blocks.items().unwrap_or_default(),
        )
    };

    // SAFETY: By the function's contract.
    unsafe { rebind_or_explain(mkey, call, layout, access, num_blocks, num_dims) }
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
    // SAFETY: By this function's contract, which is that of `ibmkey_bind_interleaved()`.
    unsafe { ibmkey_bind_interleaved(mkey, access, num_dims, repeat_count, num_blocks, blocks) }
}

/// Binds a key to blocks at indices.
#[no_mangle]
pub unsafe extern "C" fn ibmkey_bind_indexed(
    mkey: *mut ibv_mr,
    access: c_uint,
    layout: *const ibmkey_indexed,
) -> c_int {
    // SAFETY: By the function's contract.
    let Some(layout) = (unsafe { layout.as_ref() }) else {
        explain::store_sentence("layout is NULL");
        return Errno::EFAULT.get();
    };
    let call = |fd, handle| indexed::bind(fd, handle, access, layout);

    // SAFETY: By the function's contract.
    unsafe {
        rebind_or_explain(
            mkey,
            call,
            || Layout::Indexed(layout),
            access,
            layout.num_indices,
            0,
        )
    }
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
    let result = unsafe { rebind(mkey, mkey::unbind) };

    to_int(explained(result, |errno| {
        plain::on_key(&[("mkey", mkey.is_null())], errno)
    }))
}

/// Runs a call that changes the binding, and then updates the fields of the `struct ibv_mr`.
///
/// # Safety
///
/// `mkey` is NULL or an MR.
unsafe fn rebind(mkey: *mut ibv_mr, call: impl FnOnce(c_int, u32) -> Result<Bound>) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mkey) }?;
    let bound = call(fd, handle)?;

    // SAFETY: `mkey` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    unsafe { object::set_bound(mkey, bound) };
    Ok(())
}

/// Runs a bind as [`rebind`] does. If it fails, stores a sentence about the layout.
///
/// # Safety
///
/// `mkey` is NULL or an MR. The memory that the layout points to can be read.
unsafe fn rebind_or_explain<'a>(
    mkey: *mut ibv_mr,
    call: impl FnOnce(c_int, u32) -> Result<Bound>,
    layout: impl FnOnce() -> Layout<'a>,
    access: u32,
    count: u32,
    dims: u32,
) -> c_int {
    // SAFETY: By the caller's promise.
    let result = unsafe { rebind(mkey, call) };

    if let Err(errno) = result {
        let failed = Failed {
            layout: layout(),
            access,
            count,
            dims,
        };
        // SAFETY: By the caller's promise.
        unsafe { explain::keep(mkey, errno, &failed, "") };
    }
    to_int(result)
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
