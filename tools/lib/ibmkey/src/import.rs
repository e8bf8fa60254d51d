// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Makes contexts and protection domains from the numbers of other verbs libraries.
//!
//! Bindings of other languages may hide the objects of libibverbs, but offer the command file
//! descriptor of a context and the handle of an object. An imported context has no provider, so
//! only the functions of this library work on it.

use core::{
    ffi::c_int,
    mem::size_of, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    object,
    sys, //
};

/// Imports a context; see `ibmkey_import_context()`.
pub(crate) fn context(cmd_fd: c_int) -> Result<*mut sys::ibv_context> {
    // SAFETY: No requirements.
    let fd = unsafe { libc::fcntl(cmd_fd, libc::F_DUPFD_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Errno::last());
    }
    let vctx = object::calloc::<sys::verbs_context>().inspect_err(|_| {
        // SAFETY: The descriptor was opened above, and nothing else uses it.
        unsafe { libc::close(fd) };
    })?;

    // SAFETY: Allocated above, and all zeroes is a valid value.
    let vctx = unsafe { &mut *vctx.as_ptr() };
    vctx.sz = size_of::<sys::verbs_context>();
    vctx.context.cmd_fd = fd;
    vctx.context.async_fd = -1;
    // This is the value of __VERBS_ABI_IS_EXTENDED, as wrapper.h asserts.
    vctx.context.abi_compat = core::ptr::without_provenance_mut(usize::MAX);
    Ok(&raw mut vctx.context)
}

/// Closes an imported context.
///
/// # Safety
///
/// `ctx` is NULL or came from [`context`], and there are no more references to it.
pub(crate) unsafe fn close_context(ctx: *mut sys::ibv_context) {
    // SAFETY: By the caller's promise.
    let Ok(fd) = (unsafe { object::cmd_fd(ctx) }) else {
        return;
    };
    // SAFETY: `ctx` is not NULL, because it has a descriptor. So it came from `context()`, by the
    // caller's promise.
    let Some(vctx) = (unsafe { object::extended(ctx, 0) }) else {
        return;
    };

    // SAFETY: `context()` opened the descriptor and allocated the structure for this context.
    unsafe {
        libc::close(fd);
        object::free(vctx);
    }
}

/// Imports a protection domain; see `ibmkey_import_pd()`.
pub(crate) fn pd(ctx: *mut sys::ibv_context, handle: u32) -> Result<*mut sys::ibv_pd> {
    if ctx.is_null() {
        return Err(Errno::EINVAL);
    }
    let pd = object::calloc::<sys::ibv_pd>()?;

    // SAFETY: Allocated above, and all zeroes is a valid value.
    let pd = unsafe { &mut *pd.as_ptr() };
    pd.context = ctx;
    pd.handle = handle;
    Ok(pd)
}

/// Frees an imported protection domain.
///
/// # Safety
///
/// `pd` is NULL or came from [`pd`], and there are no more references to it.
pub(crate) unsafe fn free_pd(pd: *mut sys::ibv_pd) {
    if let Some(pd) = core::ptr::NonNull::new(pd) {
        // SAFETY: By the caller's promise.
        unsafe { object::free(pd) }
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use super::*;

    /// Returns `true` if a descriptor is open.
    fn is_open(fd: c_int) -> bool {
        // SAFETY: No requirements.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_context_has_its_own_descriptor() {
        let Ok(ctx) = context(0) else {
            // A test runner may have closed descriptor 0.
            assert!(!is_open(0));
            return;
        };
        // SAFETY: The context was imported above.
        let fd = unsafe { object::cmd_fd(ctx) }.unwrap_or(-1);

        assert!(fd > 0 && is_open(fd));
        // SAFETY: The context and the protection domain were imported above, and these are the only
        // references.
        unsafe {
            assert!(object::extended(ctx, 0).is_some());
            close_context(ctx);
        }
        assert!(!is_open(fd));
        assert!(is_open(0));
    }

    #[test]
    fn what_is_not_open_is_refused() {
        assert_eq!(context(-1), Err(Errno::EBADF));
        assert_eq!(pd(null_mut(), 1), Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
        unsafe {
            close_context(null_mut());
            free_pd(null_mut());
        }
    }
}
