// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Functions for devices: which ones are supported, their abilities, their memory and their CQs.

use core::ffi::c_int;

use ibmkey::{
    errno::{
        to_int,
        to_ptr, //
    },
    ffi,
    sys::{
        ib_uverbs_mkey_caps,
        ibv_alloc_dm_attr,
        ibv_close_device,
        ibv_context,
        ibv_cq_ex,
        ibv_cq_init_attr_ex,
        ibv_device,
        ibv_dm,
        ibv_open_device,
        IBMKEY_CAP_REQUEST, //
    },
    Errno,
    Result, //
};

use crate::{
    completion, qp,
    sys::{
        self,
        mlx5dv_alloc_dm_attr,
        mlx5dv_context,
        mlx5dv_context_attr,
        mlx5dv_cq_init_attr, //
    },
};

/// The fields of `struct mlx5dv_context` that have a meaning for these devices. All are zero,
/// because the devices lack these abilities.
const VALID: u32 = sys::MLX5DV_CONTEXT_MASK_CQE_COMPRESION
    | sys::MLX5DV_CONTEXT_MASK_SWP
    | sys::MLX5DV_CONTEXT_MASK_STRIDING_RQ
    | sys::MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS
    | sys::MLX5DV_CONTEXT_MASK_DYN_BFREGS
    | sys::MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS
    | sys::MLX5DV_CONTEXT_MASK_DC_ODP_CAPS
    | sys::MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD
    | sys::MLX5DV_CONTEXT_MASK_DCI_STREAMS
    | sys::MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH
    | sys::MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD
    | sys::MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM
    | sys::MLX5DV_CONTEXT_MASK_OOO_RECV_WRS;

/// Returns `Ok` if work requests can bind keys on a device.
///
/// # Safety
///
/// `ctx` is an open context.
unsafe fn check(ctx: *mut ibv_context) -> Result {
    let mut caps = ib_uverbs_mkey_caps::default();

    // SAFETY: By the caller's promise.
    Errno::check(unsafe { ffi::ibmkey_query_caps(ctx, &mut caps) })?;
    if caps.flags & u64::from(IBMKEY_CAP_REQUEST) == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Makes a context ready for mkeys. A second call on a context does nothing.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub(crate) unsafe fn prepare(ctx: *mut ibv_context) -> Result {
    if ctx.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: By the caller's promise.
    unsafe {
        if !completion::is_watched(ctx) {
            check(ctx)?;
            qp::forget(ctx);
            completion::watch(ctx)?;
        }
    }
    Ok(())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    if device.is_null() {
        return false;
    }
    // SAFETY: By the contract in `mlx5dv.h`, `device` is a device. Only this function uses the
    // context.
    unsafe {
        let ctx = ibv_open_device(device);
        if ctx.is_null() {
            return false;
        }
        let checked = check(ctx);
        ibv_close_device(ctx);
        checked.is_ok()
    }
}

unsafe fn open(
    device: *mut ibv_device,
    attr: Option<&mlx5dv_context_attr>,
) -> Result<*mut ibv_context> {
    let attr = attr.ok_or(Errno::EINVAL)?;
    if device.is_null() || attr.flags & !sys::MLX5DV_CONTEXT_FLAGS_DEVX != 0 || attr.comp_mask != 0
    {
        return Err(Errno::EINVAL);
    }
    // SAFETY: By the contract in `mlx5dv.h`, `device` is a device.
    let ctx = unsafe { ibv_open_device(device) };
    if ctx.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: The context was just opened.
    let prepared = unsafe { prepare(ctx) };
    if let Err(errno) = prepared {
        // SAFETY: The context was just opened, and nothing uses it any more.
        unsafe { ibv_close_device(ctx) };
        return Err(errno);
    }
    // Ignore an error: a kernel without device memory has keys, too.
    // SAFETY: As above.
    let _ = unsafe { ffi::ibmkey_enable(ctx) };
    Ok(ctx)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_open_device(
    device: *mut ibv_device,
    attr: *mut mlx5dv_context_attr,
) -> *mut ibv_context {
    // SAFETY: By the contract in `mlx5dv.h`.
    to_ptr(unsafe { open(device, attr.as_ref()) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_query_device(
    ctx: *mut ibv_context,
    attrs: *mut mlx5dv_context,
) -> c_int {
    // SAFETY: By the contract in `mlx5dv.h`.
    let result = unsafe { prepare(ctx) }.and_then(|()| {
        if attrs.is_null() {
            return Err(Errno::EINVAL);
        }
        // Older programs have a shorter structure. Only the first fields, and those that
        // `comp_mask` names, may be accessed.
        // SAFETY: By the contract in `mlx5dv.h`.
        unsafe {
            let known = (&raw const (*attrs).comp_mask).read();
            fill(attrs, known);
        }
        Ok(())
    });
    to_int(result)
}

/// Fills in the fields that exist in every version and those that `known` names.
///
/// # Safety
///
/// The fields that `known` names may be written.
unsafe fn fill(attrs: *mut mlx5dv_context, known: u64) {
    macro_rules! clear {
        ($($mask:ident: $($field:ident),+;)+) => {$(
            if known & u64::from(sys::$mask) != 0 {
                $(
                    // SAFETY: By the caller's promise. Zero is valid for all fields.
                    unsafe { core::ptr::write_bytes(&raw mut (*attrs).$field, 0, 1) };
                )+
            }
        )+};
    }

    // SAFETY: By the caller's promise.
    unsafe {
        (&raw mut (*attrs).version).write(0);
        (&raw mut (*attrs).flags).write(0);
        (&raw mut (*attrs).comp_mask).write(known & u64::from(VALID));
    }
    clear! {
        MLX5DV_CONTEXT_MASK_CQE_COMPRESION: cqe_comp_caps;
        MLX5DV_CONTEXT_MASK_SWP: sw_parsing_caps;
        MLX5DV_CONTEXT_MASK_STRIDING_RQ: striding_rq_caps;
        MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS: tunnel_offloads_caps;
        MLX5DV_CONTEXT_MASK_DYN_BFREGS: max_dynamic_bfregs;
        MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS: flow_action_flags;
        MLX5DV_CONTEXT_MASK_DC_ODP_CAPS: dc_odp_caps;
        MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD: sig_caps;
        MLX5DV_CONTEXT_MASK_DCI_STREAMS: dci_streams_caps;
        MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH: max_wr_memcpy_length;
        MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD: crypto_caps;
        MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM: max_dc_rd_atom, max_dc_init_rd_atom;
        MLX5DV_CONTEXT_MASK_OOO_RECV_WRS: ooo_recv_wrs_caps;
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_alloc_dm(
    ctx: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
    own: *mut mlx5dv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: By the contract in `mlx5dv.h`.
    let asked = unsafe { own.as_ref() }.map(|own| (own.type_, own.comp_mask));

    match asked {
        None => to_ptr(Err(Errno::EINVAL)),
        // SAFETY: By the contract in `mlx5dv.h`.
        Some((sys::MLX5_IB_UAPI_DM_TYPE_MEMIC, 0)) => unsafe { ffi::ibmkey_alloc_dm(ctx, attr, 0) },
        Some(_) => to_ptr(Err(Errno::EOPNOTSUPP)),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_create_cq(
    ctx: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
    own: *mut mlx5dv_cq_init_attr,
) -> *mut ibv_cq_ex {
    // SAFETY: By the contract in `mlx5dv.h`.
    let (attr, asked) = unsafe { (attr.as_mut(), own.as_ref()) };
    let result = match (attr, asked) {
        (None, _) => Err(Errno::EINVAL),
        (_, Some(own)) if own.comp_mask != 0 => Err(Errno::EOPNOTSUPP),
        // SAFETY: By the contract in `mlx5dv.h`. The new CQ belongs to the context that was made
        // ready.
        (Some(attr), _) => unsafe {
            prepare(ctx)
                .and_then(|()| completion::create_cq_ex(ctx, attr))
                .inspect(|cq| completion::watch_cq(cq.cast()))
        },
    };
    to_ptr(result)
}
