// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `LD_PRELOAD=libibmkey-preload.so` gives device memory to programs that do not know libibmkey:
//! the library enables every context that they open. `ibv_advise_mr()`, `ibv_reg_dmabuf_mr()`, `ibv_rereg_mr()`,
//! `ibv_import_dm()` and `ibv_dm_export_dmabuf_fd()` then work even if the provider's library lacks
//! them.
//!
//! If the kernel offers no device memory on a device, the contexts of that device stay as they are.
//! The library prints no message, because the program may not need device memory. With
//! `IBMKEY_DEBUG=1`, the library reports on standard error what it did with each context.

use core::{
    ffi::{
        c_char,
        c_int,
        c_void,
        CStr, //
    },
    mem::transmute,
    ptr::NonNull,
};
use std::io::Write;

use ibmkey::sys::{
    ibv_context,
    ibv_device,
    ibv_dm,
    ibv_mr,
    ibv_pd, //
};

/// The value of `enum ibv_rereg_mr_err_code` that says that the driver refused.
const IBV_REREG_MR_ERR_CMD: c_int = -4;

type OpenDevice = unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
type ImportDevice = unsafe extern "C" fn(c_int) -> *mut ibv_context;

/// Opens a device as libibverbs does, and enables it.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let Some(symbol) = next(c"ibv_open_device", c"IBVERBS_1.1") else {
        return missing(c"ibv_open_device");
    };

    // SAFETY: This is the type of libibverbs's function with this name and version.
    let open = unsafe { transmute::<NonNull<c_void>, OpenDevice>(symbol) };
    // SAFETY: The contract of this function is that of libibverbs's function.
    unsafe { enabled(open(device)) }
}

/// Imports a device as libibverbs does, and enables it.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    let Some(symbol) = next(c"ibv_import_device", c"IBVERBS_1.10") else {
        return missing(c"ibv_import_device");
    };

    // SAFETY: This is the type of libibverbs's function with this name and version.
    let import = unsafe { transmute::<NonNull<c_void>, ImportDevice>(symbol) };
    // SAFETY: The contract of this function is that of libibverbs's function.
    unsafe { enabled(import(cmd_fd)) }
}

type RegDmabufMr = unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;

/// Registers a part of a dma-buf by libibverbs, or by the kernel if the provider lacks the verb.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    if let Some(symbol) = next(c"ibv_reg_dmabuf_mr", c"IBVERBS_1.12") {
        // SAFETY: This is the type of libibverbs's function with this name and version.
        let register = unsafe { transmute::<NonNull<c_void>, RegDmabufMr>(symbol) };
        // SAFETY: The contract of this function is that of libibverbs's function.
        let mr = unsafe { register(pd, offset, length, iova, fd, access) };
        // SAFETY: The pointer to this thread's errno is always valid.
        let errno = unsafe { *libc::__errno_location() };
        if !mr.is_null() || errno != libc::EOPNOTSUPP {
            return mr;
        }
    }
    // SAFETY: The contract of libibverbs's function covers that of libibmkey's function.
    unsafe { ibmkey::ffi::ibmkey_reg_dmabuf_mr(pd, offset, length, iova, fd, access) }
}

type ReregMr =
    unsafe extern "C" fn(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int;

/// Registers an MR again by libibverbs, or by the kernel if the provider lacks the verb.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: The pointer to this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    if let Some(symbol) = next(c"ibv_rereg_mr", c"IBVERBS_1.1") {
        // SAFETY: This is the type of libibverbs's function with this name and version.
        let rereg = unsafe { transmute::<NonNull<c_void>, ReregMr>(symbol) };
        // A provider that lacks the function leaves errno as it was, or sets one of two values.
        // SAFETY: The contract of this function is that of libibverbs's function. `errno` is valid.
        unsafe {
            *errno = 0;
            let result = rereg(mr, flags, pd, addr, length, access);
            if result != IBV_REREG_MR_ERR_CMD
                || ![0, libc::ENOSYS, libc::EOPNOTSUPP].contains(&*errno)
            {
                return result;
            }
        }
    }
    // SAFETY: The contract of libibverbs's function covers that of libibmkey's function.
    unsafe {
        *errno = ibmkey::ffi::ibmkey_rereg_mr(mr, flags, pd, addr, length, access);
        if *errno == 0 {
            0
        } else {
            IBV_REREG_MR_ERR_CMD
        }
    }
}

type ImportDm = unsafe extern "C" fn(*mut ibv_context, u32) -> *mut ibv_dm;

/// Imports device memory by libibverbs, or by this library if the provider lacks the verb.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    // SAFETY: The pointer to this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    if let Some(symbol) = next(c"ibv_import_dm", c"IBVERBS_1.13") {
        // SAFETY: This is the type of libibverbs's function with this name and version.
        let import = unsafe { transmute::<NonNull<c_void>, ImportDm>(symbol) };
        // SAFETY: The contract of this function is that of libibverbs's function.
        let dm = unsafe { import(context, handle) };
        // SAFETY: The pointer to this thread's errno is always valid.
        if !dm.is_null() || unsafe { *errno } != libc::EOPNOTSUPP {
            return dm;
        }
    }
    // SAFETY: The contract of libibverbs's function covers that of libibmkey's function.
    match unsafe { ibmkey::dm::import(context, handle) } {
        Ok(dm) => dm,
        Err(err) => {
            // SAFETY: The pointer to this thread's errno is always valid.
            unsafe { *errno = err.get() };
            core::ptr::null_mut()
        }
    }
}

type UnimportDm = unsafe extern "C" fn(*mut ibv_dm);

/// Frees the structure of `ibv_import_dm()`. The device memory stays.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: By the contract of libibverbs's function, `dm` is device memory.
    if unsafe { ibmkey::dm::is_own(dm) } {
        // SAFETY: `import()` made the structure. By the contract of libibverbs's function, the
        // caller does not use it again.
        return unsafe { ibmkey::dm::unimport(dm) };
    }
    if let Some(symbol) = next(c"ibv_unimport_dm", c"IBVERBS_1.13") {
        // SAFETY: This is the type of libibverbs's function with this name and version.
        let unimport = unsafe { transmute::<NonNull<c_void>, UnimportDm>(symbol) };
        // SAFETY: The contract of this function is that of libibverbs's function.
        unsafe { unimport(dm) }
    }
}

type ExportDm = unsafe extern "C" fn(*mut ibv_dm) -> c_int;

/// Exports device memory as a dma-buf: by this library if this library made its structure,
/// otherwise by libibverbs.
///
/// # Safety
///
/// The requirements of libibverbs's function with this name.
#[no_mangle]
pub unsafe extern "C" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int {
    // SAFETY: By the contract of libibverbs's function, `dm` is device memory.
    let result = if unsafe { ibmkey::dm::is_own(dm) } {
        // SAFETY: By the contract of libibverbs's function, `dm` is device memory.
        unsafe { ibmkey::dm::export(dm) }.map_err(|err| err.get())
    } else if let Some(symbol) = next(c"ibv_dm_export_dmabuf_fd", c"IBVERBS_1.16") {
        // SAFETY: This is the type of libibverbs's function with this name and version.
        let export = unsafe { transmute::<NonNull<c_void>, ExportDm>(symbol) };
        // SAFETY: The contract of this function is that of libibverbs's function.
        return unsafe { export(dm) };
    } else {
        Err(libc::EOPNOTSUPP)
    };
    result.unwrap_or_else(|err| {
        // SAFETY: The pointer to this thread's errno is always valid.
        unsafe { *libc::__errno_location() = err };
        -1
    })
}

/// Returns the function that the program would call without this library.
fn next(name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `name` and `version` are C strings.
    let symbol = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };

    NonNull::new(symbol).or_else(|| {
        // `RTLD_NEXT` finds only libraries that were loaded with the program. A plugin or an
        // interpreter may have loaded libibverbs later.
        // SAFETY: The arguments are C strings. The handle is never closed, so libibverbs is never
        // unloaded.
        unsafe {
            let handle = libc::dlopen(
                c"libibverbs.so.1".as_ptr(),
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            );
            if handle.is_null() {
                return None;
            }
            NonNull::new(libc::dlvsym(handle, name.as_ptr(), version.as_ptr()))
        }
    })
}

fn missing(name: &CStr) -> *mut ibv_context {
    debug(&format!("libibverbs has no {}", name.to_string_lossy()));
    // SAFETY: The pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    core::ptr::null_mut()
}

/// Enables `ctx` unless it is NULL, and returns it.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
unsafe fn enabled(ctx: *mut ibv_context) -> *mut ibv_context {
    if ctx.is_null() {
        return ctx;
    }

    // SAFETY: `ctx` is not NULL, so it is an open context, by the caller's promise.
    let result = unsafe { ibmkey::dm::enable(ctx) };
    // SAFETY: An open context has a device, whose name is a string.
    let name = unsafe { CStr::from_ptr((&raw const (*(*ctx).device).name).cast::<c_char>()) };
    let name = name.to_string_lossy();

    match result {
        Ok(()) => debug(&format!("{name}: device memory enabled")),
        Err(errno) => debug(&format!("{name}: no device memory: {errno}")),
    }
    ctx
}

fn debug(what: &str) {
    if std::env::var_os("IBMKEY_DEBUG").is_some_and(|value| value == "1") {
        // Ignore an error: if standard error is closed, there is no other place for the message.
        let _ = writeln!(std::io::stderr(), "libibmkey-preload: {what}");
    }
}
