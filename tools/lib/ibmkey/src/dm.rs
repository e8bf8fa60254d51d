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
    advise,
    errno::{
        to_int,
        to_ptr,
        Errno,
        Result, //
    },
    ioctl::Command,
    mkey,
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

/// libibverbs's structure of device memory, followed by this library's mapping of that memory.
#[repr(C)]
struct Dm {
    dm: sys::ibv_dm,
    view: View,
}

/// Held while [`enable`] changes the function pointers of a context.
static ENABLING: Mutex<()> = Mutex::new(());

type AllocDm =
    unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_alloc_dm_attr) -> *mut sys::ibv_dm;

type QueryDevice = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *const sys::ibv_query_device_ex_input,
    *mut sys::ibv_device_attr_ex,
    usize,
) -> c_int;

/// The `query_device_ex` of the provider whose context was enabled first. Contexts of other
/// providers keep their own function.
static PROVIDERS_QUERY: OnceLock<QueryDevice> = OnceLock::new();

/// Makes the device-memory verbs work on a context; see `ibmkey_enable()`.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub unsafe fn enable(ctx: *mut sys::ibv_context) -> Result {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;

    if mkey::query_caps(fd)?.flags & u64::from(sys::IBMKEY_CAP_DM) == 0 {
        return Err(Errno::EOPNOTSUPP);
    }

    // The first pointer that this function replaces. An extended context that contains this pointer
    // contains the other ones, too.
    const FIRST: usize = offset_of!(sys::verbs_context, reg_dm_mr);
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, alloc_dm));
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, free_dm));
    const _: () = assert!(FIRST < offset_of!(sys::verbs_context, query_device_ex));

    // SAFETY: `ctx` is not NULL, because it has a file descriptor. So it is an open context, by the
    // caller's promise.
    let vctx = unsafe { object::extended(ctx, FIRST) }.ok_or(Errno::EOPNOTSUPP)?;
    let vctx = vctx.as_ptr();

    let _guard = ENABLING.lock().unwrap_or_else(PoisonError::into_inner);

    // SAFETY: The context has the member, because `extended()` checked it. After the context was
    // opened, only this function writes the member, under the lock.
    let present = unsafe { (*vctx).alloc_dm };

    // SAFETY: `alloc` is the `alloc_dm` of `ctx`.
    if present.is_some_and(|alloc| unsafe { is_provided(alloc, ctx) }) {
        return Ok(());
    }

    // SAFETY: The context has these members, and this thread holds the lock. Each pointer is
    // written with one store. So a thread that calls a device-memory verb at the same time finds
    // the old function or the new one.
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
        // A provider that lacks the verbs above lacks this one, too.
        advise::enable(ctx);
    }
    Ok(())
}

/// Does what the provider's function does, and reports the size of device memory. The kernel does
/// not report that size to programs whose library may lack the verbs.
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
    // SAFETY: The arguments fulfil the contract of ibv_query_device_ex(). `enable()` replaced
    // `query` on this context.
    let result = unsafe { query(ctx, input, attr, size) };
    if result != 0 || size < NEEDED {
        return result;
    }
    // SAFETY: By ibv_query_device_ex()'s contract, the context is open.
    let caps = unsafe { object::cmd_fd(ctx) }.and_then(mkey::query_caps);
    if let Ok(caps) = caps {
        // SAFETY: `size` bytes may be written, and the member is within them.
        unsafe { (&raw mut (*attr).max_dm_size).write(caps.max_dm_size) };
    }
    result
}

/// Returns `true` if a context's `alloc_dm` is implemented.
///
/// If a provider lacks a function, libibverbs sets the pointer to a function that fails with
/// EOPNOTSUPP. So this function calls `alloc_dm` for zero bytes, which no device allocates. A
/// provider that has the verb returns another error.
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

    // SAFETY: `free_dm` and `alloc_dm` of a context belong together, so `free_dm` takes this
    // memory. `enable()` checked that the context is large enough for both.
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
    // SAFETY: By ibv_alloc_dm()'s contract, `ctx` is an open context and `attr` is valid.
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
    class: u64,
) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    unsafe { enable(ctx) }?;

    // SAFETY: `enable()` succeeded, so `ctx` is an open context with these members.
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

    // ibv_free_dm() calls the context's `free_dm`, which frees only memory of the library that has
    // this function. If another copy of this library, for example the preload library, enabled the
    // context, that copy must allocate the memory.
    let theirs = ibmkey_alloc_dm_beside(present as *const c_void).ok_or(Errno::EOPNOTSUPP)?;
    // SAFETY: The other function has the contract of this function.
    let dm = unsafe { theirs(ctx, attr, class) };
    if dm.is_null() {
        return Err(Errno::last());
    }
    Ok(dm)
}

type AllocDmOfClass = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *const sys::ibv_alloc_dm_attr,
    u64,
) -> *mut sys::ibv_dm;

/// Returns the `ibmkey_alloc_dm()` of the shared object that contains `function`, if it has one.
fn ibmkey_alloc_dm_beside(function: *const c_void) -> Option<AllocDmOfClass> {
    let object_of = |address: *const c_void| {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `info` is a variable of this closure, so dladdr() may write it.
        let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
        // SAFETY: As above.
        (found != 0).then(|| unsafe { info.assume_init() })
    };
    let object = object_of(function)?;

    // SAFETY: dladdr() returned the name of a loaded object. The handle is never closed, so the
    // object is not unloaded while its functions are in use.
    let handle = unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: `handle` is a handle of dlopen(), and the name is a C string.
    let symbol = unsafe { libc::dlsym(handle, c"ibmkey_alloc_dm".as_ptr()) };
    // dlsym() also searches the libraries that the object needs. A symbol of such a library is not
    // the one of the object that enabled the context.
    if symbol.is_null() || object_of(symbol)?.dli_fbase != object.dli_fbase {
        return None;
    }
    // SAFETY: In every version of this library, the function with this name has this type.
    Some(unsafe { core::mem::transmute::<*mut c_void, AllocDmOfClass>(symbol) })
}

/// Makes the structure for the device memory with the handle `handle`, which another context
/// allocated; see `ibv_import_dm()`.
///
/// # Errors
///
/// `ENOENT` if the handle names no device memory.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub unsafe fn import(ctx: *mut sys::ibv_context, handle: u32) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;
    let dm = object::calloc::<Dm>()?;

    // Check the handle: a copy of zero bytes fails if it names no device memory.
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
    // SAFETY: `dm` is allocated and has no other reference, by the caller's promise. All zeroes is
    // a valid value.
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
    class: u64,
) -> Result<*mut sys::ibv_dm> {
    // SAFETY: By the caller's promise.
    let fd = unsafe { object::cmd_fd(ctx) }?;

    // The mask's bits stand for members that this library does not know.
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
        // SAFETY: The structure came from `new_dm`. By ibv_free_dm()'s contract, the caller does
        // not use it again.
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

    // SAFETY: By ibv_reg_dm_mr()'s contract, `pd` is a protection domain.
    to_ptr(unsafe { object::new_mr(pd, register) })
}

/// Returns the class of device memory; see `ibmkey_query_dm()`.
///
/// # Safety
///
/// `dm` is NULL or was returned by `alloc_dm`.
pub unsafe fn query(dm: *mut sys::ibv_dm) -> Result<u64> {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { dm_handle(dm) }?;
    let mut class = 0u64;

    Command::<2>::new(sys::UVERBS_OBJECT_DM, sys::IB_MKEY_METHOD_DM_QUERY)
        .object(sys::IB_MKEY_ATTR_DM_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_DM_QUERY_RESP_CLASS, &mut class)
        .run(fd)?;
    Ok(class)
}

/// Exports device memory as a dma-buf; see `ibmkey_export_dm()`.
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
