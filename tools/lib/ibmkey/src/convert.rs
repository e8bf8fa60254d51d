// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Layouts for MRs of `ibv_reg_mr()`: `ibv_rereg_mr_sg()` and `ibv_rereg_mr_interleaved()`.
//!
//! The kernel cannot turn an MR into a key. So the library creates a key and deregisters the MR, and
//! the program's `struct ibv_mr` becomes that of the key. `ibv_dereg_mr()` passes the handle in it
//! to the kernel, so it destroys the key. A layout can name the MR itself. The library then keeps
//! the MR registered, and `ibmkey_dereg()` deregisters both.

use core::{
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    ptr::null_mut, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    iov,
    mkey::{
        self,
        Bound, //
    },
    object,
    owners::{
        self,
        Former,
        Owned, //
    },
    sys, //
};

/// Returns `true` for an MR that a layout can replace: one with an address.
///
/// # Safety
///
/// `mr` is NULL or an MR.
pub(crate) unsafe fn is_ordinary(mr: *mut sys::ibv_mr) -> bool {
    // SAFETY: By the caller's promise.
    !mr.is_null() && unsafe { !(*mr).addr.is_null() }
}

/// Replaces an MR by a key. `call` binds the key, and `names` then tells whether the layout has an
/// entry with this lkey.
///
/// # Safety
///
/// `mr` is an MR with an address.
pub(crate) unsafe fn to_key(
    mr: *mut sys::ibv_mr,
    call: impl FnOnce(c_int, u32) -> Result<Bound>,
    names: impl FnOnce(u32) -> bool,
) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mr) }?;
    // SAFETY: An MR has a protection domain, whose handle is not written after the allocation.
    let (pd_handle, lkey) = unsafe { ((*(*mr).pd).handle, (*mr).lkey) };
    let max_entries = mkey::query_caps(fd)?.max_entries;
    let key = mkey::create(fd, pd_handle, max_entries, 0)?;

    let result = call(fd, key.handle).and_then(|bound| {
        let keeps = names(lkey);
        if !keeps {
            object::destroy(fd, handle)?;
        }
        Ok((bound, keeps))
    });
    let (bound, keeps) = result.inspect_err(|_| {
        // Nothing refers to the new key, so this succeeds.
        let _ = object::destroy(fd, key.handle);
    })?;

    // SAFETY: By the caller's promise. The kernel has bound the key.
    unsafe {
        let mut owned = owners::take(mr).unwrap_or_default();
        let memory = owned.memory.take();
        // Unless the MR stays, its memory is freed here.
        if keeps {
            owned.former.push(Former {
                handle,
                _memory: memory,
            });
        }
        (*mr).addr = null_mut();
        (*mr).handle = key.handle;
        object::set_bound(mr, bound);
        owners::set(mr, owned);
    }
    Ok(())
}

/// Replaces the key of [`to_key`] by an MR over `length` bytes from `addr` on; see `ibmkey_rereg_mr()`.
///
/// # Safety
///
/// `mr` is an MR that [`to_key`] has replaced by a key, and owned this. `pd` is NULL or a protection
/// domain.
pub(crate) unsafe fn to_memory(
    mr: *mut sys::ibv_mr,
    owned: &mut Owned,
    flags: c_uint,
    pd: *mut sys::ibv_pd,
    (addr, length): (*mut c_void, usize),
    access: c_uint,
) -> Result {
    const KNOWN: c_uint = sys::IBV_REREG_MR_CHANGE_TRANSLATION
        | sys::IBV_REREG_MR_CHANGE_PD
        | sys::IBV_REREG_MR_CHANGE_ACCESS;
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mr) }?;
    let pd = match flags & sys::IBV_REREG_MR_CHANGE_PD {
        // SAFETY: By the caller's promise.
        0 => unsafe { (*mr).pd },
        _ => pd,
    };
    if flags & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    // The kernel reregisters no MR of 0 bytes, but it registers one.
    if pd.is_null() || length == 0 {
        return Err(Errno::EINVAL);
    }
    let access = match flags & sys::IBV_REREG_MR_CHANGE_ACCESS {
        0 => mkey::query(fd, handle, &mut [], &mut [])?.access,
        _ => access,
    };

    // SAFETY: `pd` is not NULL, so it is a protection domain, by the caller's promise.
    let pd_handle = unsafe { (*pd).handle };
    let [new, lkey, rkey] = iov::register(fd, pd_handle, addr as u64, length as u64, access)?;
    object::destroy(fd, handle).inspect_err(|_| {
        // Nothing refers to the new MR, so this succeeds.
        let _ = object::destroy(fd, new);
    })?;
    // Those to which another key or a window refers stay until `mr` is deregistered.
    owned
        .former
        .retain(|former| object::destroy(fd, former.handle).is_err());

    // SAFETY: By the caller's promise. `addr` and the other values are those of the new MR.
    unsafe {
        (*mr).pd = pd;
        (*mr).addr = addr;
        (*mr).handle = new;
        object::set_bound(mr, Bound { length, rkey });
        (*mr).lkey = lkey;
    }
    Ok(())
}
