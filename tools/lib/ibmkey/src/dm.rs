// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The device-memory verbs, and how a context gets them.

pub(crate) mod calls;
mod copy;
mod view;

use core::{
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    mem::offset_of,
    ptr::NonNull,
};
use std::sync::{
    Mutex,
    OnceLock,
    PoisonError, //
};

use crate::{
    caps,
    errno::{
        to_int,
        to_ptr,
        Errno,
        Result, //
    },
    ioctl::Command,
    object,
    sys, //
};
use copy::{
    by_call,
    memcpy_from_dm,
    memcpy_to_dm,
    CopyTo,
    Direction, //
};
use view::View;

/// libibverbs's structure of device memory, and what this library knows of the memory.
#[repr(C)]
struct Dm {
    dm: sys::ibv_dm,
    view: View,
}

/// Serialises the changes to contexts.
static ENABLING: Mutex<()> = Mutex::new(());

type AllocDm =
    unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_alloc_dm_attr) -> *mut sys::ibv_dm;

type QueryDevice = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *const sys::ibv_query_device_ex_input,
    *mut sys::ibv_device_attr_ex,
    usize,
) -> c_int;

/// The `query_device_ex` of the first context's provider. Contexts of other providers keep theirs.
static PROVIDERS_QUERY: OnceLock<QueryDevice> = OnceLock::new();

/// Makes the device-memory verbs work on a context; see `ibmkey_enable()`.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub unsafe fn enable(ctx: *mut sys::ibv_context) -> Result {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;

    if caps::query(fd)?.flags & u64::from(sys::IBMKEY_CAP_DM) == 0 {
        return Err(Errno::EOPNOTSUPP);
    }

    // The first of the replaced pointers. An extended context that contains it contains the others, too.
    const FIRST: usize = offset_of!(sys::verbs_context, reg_dm_mr);
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, alloc_dm));
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, free_dm));
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, query_device_ex));

    // SAFETY: `ctx` is not NULL, because it has a file descriptor. So it is an open context, by the
    // caller's promise.
    let vctx = unsafe { object::extended(ctx, FIRST) }.ok_or(Errno::EOPNOTSUPP)?;
    let vctx = vctx.as_ptr();

    let _guard = ENABLING.lock().unwrap_or_else(PoisonError::into_inner);

    // SAFETY: The context has the member, as checked above. After the context was opened, only this
    // function writes it, under the lock.
    let present = unsafe { (*vctx).alloc_dm };

    // SAFETY: This is the context's own function.
    if present.is_some_and(|alloc| unsafe { is_provided(alloc, ctx) }) {
        return Ok(());
    }

    // SAFETY: As above. Pointers are written with one store. So a thread that calls a device-memory
    // verb while another thread enables the context finds the old function or the new one.
    unsafe {
        (&raw mut (*vctx).free_dm).write_volatile(Some(free_dm));
        (&raw mut (*vctx).reg_dm_mr).write_volatile(Some(reg_dm_mr));
        (&raw mut (*vctx).alloc_dm).write_volatile(Some(alloc_dm));
        if let Some(query) = (*vctx).query_device_ex {
            let providers = *PROVIDERS_QUERY.get_or_init(|| query);
            if core::ptr::fn_addr_eq(query, providers) {
                (&raw mut (*vctx).query_device_ex).write_volatile(Some(query_device_ex));
            }
        }
    }
    Ok(())
}

/// Reports the size of device memory. The kernel does not report it to programs that may be unable
/// to allocate any.
unsafe extern "C" fn query_device_ex(
    ctx: *mut sys::ibv_context,
    input: *const sys::ibv_query_device_ex_input,
    attr: *mut sys::ibv_device_attr_ex,
    size: usize,
) -> c_int {
    const NEEDED: usize = offset_of!(sys::ibv_device_attr_ex, max_dm_size) + size_of::<u64>();

    let Some(query) = PROVIDERS_QUERY.get() else {
        return Errno::EOPNOTSUPP.get();
    };
    // SAFETY: The arguments are those of ibv_query_device_ex(), on a context that had this
    // function.
    let result = unsafe { query(ctx, input, attr, size) };
    if result != 0 || size < NEEDED {
        return result;
    }
    // SAFETY: By ibv_query_device_ex()'s contract, the context is open.
    let caps = unsafe { object::cmd_fd(ctx) }.and_then(caps::query);
    if let Ok(caps) = caps {
        // SAFETY: `size` bytes may be written, and the member is within them.
        unsafe { (&raw mut (*attr).max_dm_size).write(caps.max_dm_size) };
    }
    result
}

/// Returns `true` if a context's `alloc_dm` is implemented.
///
/// libibverbs sets functions that a provider lacks to ones that fail with EOPNOTSUPP, so the
/// pointer alone is no evidence. No device allocates zero bytes; a device that has the verb reports
/// another error.
///
/// # Safety
///
/// `alloc` is `ctx`'s `alloc_dm`.
unsafe fn is_provided(alloc: AllocDm, ctx: *mut sys::ibv_context) -> bool {
    if core::ptr::eq(alloc as *const c_void, alloc_dm as *const c_void) {
        return true;
    }

    let mut attr = sys::ibv_alloc_dm_attr::default();
    // SAFETY: By the caller's promise.
    let dm = unsafe { alloc(ctx, &mut attr) };
    if dm.is_null() {
        return Errno::last() != Errno::EOPNOTSUPP;
    }

    // SAFETY: A context with `alloc_dm` has `free_dm`, which takes its memory. `enable()` checked
    // that both are set.
    unsafe {
        if let Some(vctx) = object::extended(ctx, offset_of!(sys::verbs_context, free_dm)) {
            if let Some(free) = (*vctx.as_ptr()).free_dm {
                free(dm);
            }
        }
    }
    true
}

unsafe extern "C" fn alloc_dm(
    ctx: *mut sys::ibv_context,
    attr: *mut sys::ibv_alloc_dm_attr,
) -> *mut sys::ibv_dm {
    // SAFETY: By ibv_alloc_dm()'s contract, both are valid.
    to_ptr(unsafe { new_dm(ctx, &*attr, 0) })
}

/// Allocates device memory of a class; see `ibmkey_alloc_dm()`.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub unsafe fn alloc(
    ctx: *mut sys::ibv_context,
    attr: &sys::ibv_alloc_dm_attr,
    class: u32,
) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    unsafe { enable(ctx) }?;

    // SAFETY: `enable()` succeeded, so it is an open context with these members.
    let present = unsafe {
        let vctx = object::extended(ctx, offset_of!(sys::verbs_context, free_dm))
            .ok_or(Errno::EOPNOTSUPP)?
            .as_ptr();
        (*vctx).alloc_dm.ok_or(Errno::EOPNOTSUPP)?
    };
    if core::ptr::fn_addr_eq(present, alloc_dm as AllocDm) {
        // SAFETY: As above.
        return unsafe { new_dm(ctx, attr, class) };
    }

    // ibv_free_dm() frees only what the owner of the context's functions allocates. If that is
    // another copy of this library, for example the preload library, let it allocate.
    let theirs = ibmkey_alloc_dm_beside(present as *const c_void).ok_or(Errno::EOPNOTSUPP)?;
    // SAFETY: The contract of that function is the one of this function.
    let dm = unsafe { theirs(ctx, attr, class) };
    if dm.is_null() {
        return Err(Errno::last());
    }
    Ok(dm)
}

type AllocDmOfClass = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *const sys::ibv_alloc_dm_attr,
    u32,
) -> *mut sys::ibv_dm;

/// Returns the `ibmkey_alloc_dm()` of the shared object that contains `function`, if it has one.
fn ibmkey_alloc_dm_beside(function: *const c_void) -> Option<AllocDmOfClass> {
    let object_of = |address: *const c_void| {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: The structure may be written; all zeroes is a valid value.
        let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
        // SAFETY: As above.
        (found != 0).then(|| unsafe { info.assume_init() })
    };
    let object = object_of(function)?;

    // SAFETY: dladdr() returned the name of a loaded object. The handle is kept, so the object is
    // not unloaded while its functions are in use.
    let handle = unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: A handle and a C string.
    let symbol = unsafe { libc::dlsym(handle, c"ibmkey_alloc_dm".as_ptr()) };
    // A library that the object needs may have the symbol, but does not own the context.
    if symbol.is_null() || object_of(symbol)?.dli_fbase != object.dli_fbase {
        return None;
    }
    // SAFETY: This is the type of the function with this name in every version of this library.
    Some(unsafe { core::mem::transmute::<*mut c_void, AllocDmOfClass>(symbol) })
}

/// Makes the structure for device memory with the handle `handle`, which another process or
/// context made; see `ibv_import_dm()`.
///
/// # Errors
///
/// `ENOENT` for a handle that names nothing.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub unsafe fn import(ctx: *mut sys::ibv_context, handle: u32) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;
    let dm = object::calloc::<Dm>()?;

    // A copy of zero bytes fails if there is no such device memory.
    by_call(fd, handle, Direction::To, 0, 0, 0).inspect_err(|_| {
        // SAFETY: Allocated above; there is no other reference.
        unsafe { object::free(dm) }
    })?;
    // SAFETY: Allocated above.
    Ok(unsafe { fill(dm, ctx, handle) })
}

/// Returns `true` if this library made the structure `dm`.
///
/// # Safety
///
/// `dm` is NULL or device memory.
pub unsafe fn is_own(dm: *mut sys::ibv_dm) -> bool {
    // SAFETY: By the caller's promise.
    let copy = unsafe { dm.as_ref() }.and_then(|dm| dm.memcpy_to_dm);

    copy.is_some_and(|copy| core::ptr::fn_addr_eq(copy, memcpy_to_dm as CopyTo))
}

/// Frees the structure of [`import`]. The device memory stays.
///
/// # Safety
///
/// `dm` came from [`import`], and there are no more references to it.
pub unsafe fn unimport(dm: *mut sys::ibv_dm) {
    // SAFETY: By the caller's promise.
    unsafe { free(dm) }
}

/// Frees the structure of device memory.
///
/// # Safety
///
/// `dm` is NULL or came from [`fill`]. There are no more references to it.
unsafe fn free(dm: *mut sys::ibv_dm) {
    if let Some(dm) = NonNull::new(dm.cast::<Dm>()) {
        // SAFETY: By the caller's promise.
        unsafe {
            dm.as_ref().view.close();
            object::free(dm);
        }
    }
}

/// Fills in the structure of device memory.
///
/// # Safety
///
/// `dm` came from `calloc()`, and there is no other reference to it.
unsafe fn fill(dm: NonNull<Dm>, ctx: *mut sys::ibv_context, handle: u32) -> *mut sys::ibv_dm {
    // SAFETY: By the caller's promise, and all zeroes is a valid value.
    let dm = unsafe { &mut (*dm.as_ptr()).dm };
    dm.context = ctx;
    dm.memcpy_to_dm = Some(memcpy_to_dm);
    dm.memcpy_from_dm = Some(memcpy_from_dm);
    dm.comp_mask = sys::IBV_DM_MASK_HANDLE;
    dm.handle = handle;
    dm
}

/// # Safety
///
/// `ctx` is an open context.
unsafe fn new_dm(
    ctx: *mut sys::ibv_context,
    attr: &sys::ibv_alloc_dm_attr,
    class: u32,
) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;

    // The mask names members that this library does not know.
    if attr.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }

    let dm = object::calloc::<Dm>()?;
    let length = attr.length as u64;
    let handle = calls::allocate(fd, length, attr.log_align_req, class).inspect_err(|_| {
        // SAFETY: Allocated above; there is no other reference.
        unsafe { object::free(dm) }
    })?;

    // SAFETY: Allocated above.
    Ok(unsafe { fill(dm, ctx, handle) })
}

unsafe extern "C" fn free_dm(dm: *mut sys::ibv_dm) -> c_int {
    // SAFETY: By ibv_free_dm()'s contract, `alloc_dm` returned it.
    let result = unsafe { dm_handle(dm) }.and_then(|(fd, handle)| calls::release(fd, handle));

    if result.is_ok() {
        // SAFETY: It came from `new_dm`, and the caller gives it up.
        unsafe { free(dm) };
    }
    to_int(result)
}

unsafe extern "C" fn reg_dm_mr(
    pd: *mut sys::ibv_pd,
    dm: *mut sys::ibv_dm,
    dm_offset: u64,
    length: usize,
    access: c_uint,
) -> *mut sys::ibv_mr {
    let register = |fd, pd_handle| {
        // SAFETY: By ibv_reg_dm_mr()'s contract, `alloc_dm` returned it.
        let (_, dm_handle) = unsafe { dm_handle(dm) }?;

        calls::register(fd, pd_handle, dm_handle, dm_offset, length, access)
    };

    // SAFETY: By ibv_reg_dm_mr()'s contract, it is a protection domain.
    to_ptr(unsafe { object::new_mr(pd, register) })
}

/// Makes a dma-buf of device memory; see `ibmkey_export_dm()`.
///
/// # Safety
///
/// `dm` is NULL or was returned by `alloc_dm`.
pub unsafe fn export(dm: *mut sys::ibv_dm) -> Result<c_int> {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { dm_handle(dm) }?;
    let mut new = [0u32];

    Command::<2>::new(sys::UVERBS_OBJECT_DM, sys::IB_MKEY_METHOD_DM_EXPORT)
        .object(sys::IB_MKEY_ATTR_DM_EXPORT_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_DM_EXPORT_RESP_FD, &mut new)
        .run(fd)?;
    c_int::try_from(new[0]).map_err(|_| Errno::EINVAL)
}

/// Returns the file descriptor and the handle of device memory.
///
/// # Safety
///
/// `dm` is NULL or was returned by `alloc_dm`.
unsafe fn dm_handle(dm: *mut sys::ibv_dm) -> Result<(c_int, u32)> {
    if dm.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: By the caller's promise. No field is written after the allocation.
    let (context, handle) = unsafe { ((*dm).context, (*dm).handle) };
    // SAFETY: The context stays open as long as the device memory exists.
    Ok((unsafe { object::cmd_fd(context) }?, handle))
}
