// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `ibv_advise_mr()`, for providers whose library lacks that verb.

use core::{
    ffi::{
        c_int,
        c_uint, //
    },
    mem::{
        offset_of,
        size_of, //
    },
    slice,
};

use crate::{
    errno::{
        to_int,
        Result, //
    },
    ioctl::Command,
    object,
    sys, //
};

/// The bytes of a `struct ib_uverbs_sge`, which is also a `struct ibv_sge`.
type Entry = [u64; 2];

const _: () = assert!(size_of::<Entry>() == size_of::<sys::ibv_sge>());

/// Makes `ibv_advise_mr()` work on a context, if the context has a place for the function.
///
/// # Safety
///
/// `ctx` is an open context, and no other thread changes its functions meanwhile.
pub(crate) unsafe fn enable(ctx: *mut sys::ibv_context) {
    // SAFETY: By the caller's promise.
    let vctx = unsafe { object::extended(ctx, offset_of!(sys::verbs_context, advise_mr)) };
    if let Some(vctx) = vctx {
        // SAFETY: The context has the member. The pointer is written with one store, as in
        // `dm::enable()`.
        unsafe { (&raw mut (*vctx.as_ptr()).advise_mr).write_volatile(Some(advise_mr)) };
    }
}

unsafe extern "C" fn advise_mr(
    pd: *mut sys::ibv_pd,
    advice: c_uint,
    flags: u32,
    entries: *mut sys::ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: By ibv_advise_mr()'s contract, `pd` is a protection domain and `entries` has `count`
    // entries.
    to_int(unsafe { advise(pd, advice, flags, entries, count) })
}

/// Passes an advice to the kernel.
///
/// # Safety
///
/// `pd` is a protection domain and `entries` has `count` entries.
unsafe fn advise(
    pd: *mut sys::ibv_pd,
    advice: c_uint,
    flags: u32,
    entries: *const sys::ibv_sge,
    count: u32,
) -> Result {
    // SAFETY: By the caller's promise. The fields are not written after the allocation.
    let (ctx, handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: The context of a protection domain is open.
    let fd = unsafe { object::cmd_fd(ctx) }?;
    let entries: &[Entry] = if count == 0 {
        &[]
    } else {
        // SAFETY: By the caller's promise. Both types have the size, as asserted above, and the
        // alignment of a `u64`, and an entry is three integers without padding.
        unsafe { slice::from_raw_parts(entries.cast(), count as usize) }
    };

    Command::<4>::new(sys::UVERBS_OBJECT_MR, sys::UVERBS_METHOD_ADVISE_MR)
        .object(sys::UVERBS_ATTR_ADVISE_MR_PD_HANDLE, handle)
        .u64(sys::UVERBS_ATTR_ADVISE_MR_ADVICE, advice.into())
        .u32(sys::UVERBS_ATTR_ADVISE_MR_FLAGS, flags)
        .slice(sys::UVERBS_ATTR_ADVISE_MR_SGE_LIST, entries)
        .run(fd)?;
    Ok(())
}
