// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Completions: a request that configured an mkey completes with `MLX5DV_WC_UMR`.
//!
//! For the device such a request is one that binds a key, which completes with `IBV_WC_BIND_MW`, as
//! one that binds a window does. The completion has the number of inline bytes of the request. A
//! request that configures an mkey has inline bytes, and a request that binds a window has none.

use core::{
    ffi::c_int,
    ptr::fn_addr_eq, //
};
use std::sync::{
    Mutex,
    OnceLock,
    PoisonError, //
};

use ibmkey::{
    object,
    sys::{
        ibv_context,
        ibv_cq,
        ibv_cq_ex,
        ibv_cq_init_attr_ex,
        ibv_destroy_cq,
        ibv_wc,
        ibv_wc_opcode,
        verbs_context,
        IBV_WC_BIND_MW,
        IBV_WC_DRIVER1,
        IBV_WC_EX_WITH_BYTE_LEN,
        IBV_WC_MW_BIND_ERR,
        IBV_WC_SUCCESS, //
    },
    Errno,
    Result, //
};

use crate::mkey;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type ReadOpcode = unsafe extern "C" fn(*mut ibv_cq_ex) -> ibv_wc_opcode;
type ReadByteLen = unsafe extern "C" fn(*mut ibv_cq_ex) -> u32;

/// The provider's functions, which are the same for all of its contexts and CQs.
struct Provider {
    poll_cq: PollCq,
    read_opcode: ReadOpcode,
    read_byte_len: ReadByteLen,
}

/// The only provider whose devices have keys. Once set, it never changes, so the functions of CQs
/// read it without a lock.
static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// Held while functions of a context or a CQ are replaced.
static REPLACING: Mutex<()> = Mutex::new(());

/// Returns the opcode that a program gets instead of `IBV_WC_BIND_MW`.
fn opcode_of_bind(inline_bytes: u32) -> ibv_wc_opcode {
    match inline_bytes {
        0 => IBV_WC_BIND_MW,
        _ => IBV_WC_DRIVER1,
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num: c_int, wcs: *mut ibv_wc) -> c_int {
    let Some(provider) = PROVIDER.get() else {
        return -libc::EINVAL;
    };

    // SAFETY: This function has the contract of the provider's function.
    let polled = unsafe { (provider.poll_cq)(cq, num, wcs) };
    for at in 0..usize::try_from(polled).unwrap_or(0) {
        // SAFETY: The provider has filled in `polled` elements.
        let wc = unsafe { &mut *wcs.add(at) };

        if wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW {
            wc.opcode = opcode_of_bind(wc.byte_len);
        }
        if wc.status == IBV_WC_MW_BIND_ERR {
            // SAFETY: The program polls a CQ that exists.
            mkey::debug_refused(unsafe { (*cq).context });
        }
    }
    polled
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    let Some(provider) = PROVIDER.get() else {
        return IBV_WC_BIND_MW;
    };

    // SAFETY: This function has the contract of the provider's function. The provider's function
    // for the length reads the same completion as the one for the opcode, so it works even if the
    // program did not ask for lengths.
    unsafe {
        match (provider.read_opcode)(cq) {
            IBV_WC_BIND_MW => opcode_of_bind((provider.read_byte_len)(cq)),
            other => other,
        }
    }
}

/// Creates a CQ to read the provider's functions, which are fields of a CQ, and destroys it.
///
/// # Safety
///
/// `ctx` is an open context.
unsafe fn ask(ctx: *mut ibv_context, poll_cq: PollCq) -> Result<Provider> {
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 1,
        wc_flags: IBV_WC_EX_WITH_BYTE_LEN.into(),
        ..ibv_cq_init_attr_ex::default()
    };
    // SAFETY: By the caller's promise.
    let cq = unsafe { create_cq_ex(ctx, &mut attr) }?;
    // SAFETY: The CQ was created above, and nothing else uses it.
    let (read_opcode, read_byte_len) = unsafe {
        let functions = ((*cq).read_opcode, (*cq).read_byte_len);
        ibv_destroy_cq(cq.cast());
        functions
    };

    Ok(Provider {
        poll_cq,
        read_opcode: read_opcode.ok_or(Errno::EOPNOTSUPP)?,
        read_byte_len: read_byte_len.ok_or(Errno::EOPNOTSUPP)?,
    })
}

/// Creates a CQ of the provider, and does not replace its functions.
///
/// # Safety
///
/// `ctx` is an open context.
pub(crate) unsafe fn create_cq_ex(
    ctx: *mut ibv_context,
    attr: &mut ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex> {
    let member = core::mem::offset_of!(verbs_context, create_cq_ex);
    // SAFETY: By the caller's promise.
    let extended = unsafe { object::extended(ctx, member) }.ok_or(Errno::EOPNOTSUPP)?;
    // SAFETY: As checked above, the context has this member. libibverbs calls it in the same way.
    let cq = unsafe {
        let create = (*extended.as_ptr()).create_cq_ex;
        create.ok_or(Errno::EOPNOTSUPP)?(ctx, attr)
    };

    if cq.is_null() {
        return Err(Errno::last());
    }
    Ok(cq)
}

/// Returns `true` if [`watch`] succeeded on a context.
///
/// # Safety
///
/// `ctx` is an open context.
pub(crate) unsafe fn is_watched(ctx: *mut ibv_context) -> bool {
    // SAFETY: By the caller's promise.
    let current = unsafe { (*ctx).ops.poll_cq };

    current.is_some_and(|current| fn_addr_eq(current, poll_cq as PollCq))
}

/// Replaces the function of a context that polls CQs. A second call on a context does nothing.
///
/// # Safety
///
/// `ctx` is an open context of a device that has keys.
pub(crate) unsafe fn watch(ctx: *mut ibv_context) -> Result {
    let _replacing = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: By the caller's promise.
    if unsafe { is_watched(ctx) } {
        return Ok(());
    }
    // SAFETY: By the caller's promise. After the provider has set the field, only this function
    // writes it, under the lock.
    let current = unsafe { (*ctx).ops.poll_cq }.ok_or(Errno::EOPNOTSUPP)?;
    let provider = match PROVIDER.get() {
        Some(provider) => provider,
        None => {
            // SAFETY: By the caller's promise.
            let provider = unsafe { ask(ctx, current) }?;
            PROVIDER.get_or_init(|| provider)
        }
    };
    // The context is of another provider, or another library has replaced the function.
    if !fn_addr_eq(provider.poll_cq, current) {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: By the caller's promise. A thread that polls at the same time calls the old function
    // or the new one. Both are right, because no request that configures an mkey was posted yet.
    unsafe { (&raw mut (*ctx).ops.poll_cq).write(Some(poll_cq)) };
    Ok(())
}

/// Replaces the function of a CQ that reads opcodes, if it is an extended CQ.
///
/// # Safety
///
/// `cq` is a CQ of a context on which [`watch`] succeeded.
pub(crate) unsafe fn watch_cq(cq: *mut ibv_cq) {
    let _replacing = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
    let extended = cq.cast::<ibv_cq_ex>();

    // SAFETY: The provider allocates every CQ as an extended CQ. In a CQ of `ibv_create_cq()` the
    // fields of extended CQs are NULL.
    unsafe {
        let field = &raw mut (*extended).read_opcode;

        if (*field).is_some() {
            field.write(Some(read_opcode));
        }
    }
}
