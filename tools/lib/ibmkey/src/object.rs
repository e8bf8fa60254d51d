// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! libibverbs's objects: looking into them, and making them.

use core::{
    ffi::c_int,
    mem::{
        offset_of,
        size_of, //
    },
    ptr::NonNull,
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    sys, //
};

/// The command file descriptor of a context.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub(crate) unsafe fn cmd_fd(ctx: *mut sys::ibv_context) -> Result<c_int> {
    if ctx.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: An open context, by the caller's promise. The field is never
    // written after the context was opened.
    Ok(unsafe { (*ctx).cmd_fd })
}

/// The extended part of a context, if it has one that goes back to `member`.
///
/// The structure grows at its front, and `sz` says how far it goes.
///
/// # Safety
///
/// `ctx` is an open context.
pub(crate) unsafe fn extended(
    ctx: *mut sys::ibv_context,
    member: usize,
) -> Option<NonNull<sys::verbs_context>> {
    // SAFETY: An open context, by the caller's promise.
    let abi = unsafe { (*ctx).abi_compat } as usize;

    // __VERBS_ABI_IS_EXTENDED; wrapper.h asserts it.
    if abi != usize::MAX {
        return None;
    }

    let vctx = ctx
        .wrapping_byte_sub(offset_of!(sys::verbs_context, context))
        .cast::<sys::verbs_context>();
    // SAFETY: The context is the last member of an extended one, and `sz`,
    // which is right before it, is there in all versions.
    let size = unsafe { (*vctx).sz };

    if size < size_of::<sys::verbs_context>().saturating_sub(member) {
        return None;
    }
    NonNull::new(vctx)
}

/// A zeroed `T` that the C library's `free()` can be called on.
pub(crate) fn calloc<T>() -> Result<NonNull<T>> {
    // SAFETY: No requirements.
    let object = unsafe { libc::calloc(1, size_of::<T>()) };

    NonNull::new(object.cast()).ok_or(Errno::ENOMEM)
}

/// Frees what [`calloc`] returned.
///
/// # Safety
///
/// `object` came from [`calloc`] and is not used any more.
pub(crate) unsafe fn free<T>(object: NonNull<T>) {
    // SAFETY: By the caller's promise.
    unsafe { libc::free(object.as_ptr().cast()) }
}

/// What the kernel tells of a region that it has created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) length: usize,
}

impl<const N: usize> Command<'_, N> {
    /// Makes a call that creates a region of `length` bytes and tells its keys in
    /// the attributes of these ids.
    pub(crate) fn run_region(
        self,
        fd: c_int,
        lkey_id: u32,
        rkey_id: u32,
        length: usize,
    ) -> Result<Region> {
        let (mut lkey, mut rkey) = (0u32, 0u32);
        let handle = self
            .out(lkey_id, &mut lkey)
            .out(rkey_id, &mut rkey)
            .run(fd)?;

        Ok(Region {
            handle,
            lkey,
            rkey,
            length,
        })
    }
}

/// Makes an MR that `ibv_dereg_mr()` takes: lets `create` create it in the
/// kernel and describes it as libibverbs does. `addr` stays NULL: the region is
/// zero-based, and a region without address is none that must be kept from
/// being forked.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn new_mr(
    pd: *mut sys::ibv_pd,
    create: impl FnOnce(c_int, u32) -> Result<Region>,
) -> Result<*mut sys::ibv_mr> {
    if pd.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: A protection domain, by the caller's promise. Neither field is
    // written after it was allocated.
    let (context, pd_handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: A protection domain's context is open as long as the domain is.
    let fd = unsafe { cmd_fd(context) }?;

    // First, because creating can be undone only by the provider.
    let vmr = calloc::<sys::verbs_mr>()?;
    let region = create(fd, pd_handle).inspect_err(|_| {
        // SAFETY: Allocated above; there is no other reference.
        unsafe { free(vmr) }
    })?;

    // SAFETY: Allocated above, and all zeroes is a valid value.
    let mr = unsafe { &mut (*vmr.as_ptr()).ibv_mr };
    mr.context = context;
    mr.pd = pd;
    mr.length = region.length;
    mr.handle = region.handle;
    mr.lkey = region.lkey;
    mr.rkey = region.rkey;
    Ok(mr)
}

/// Destroys an MR that [`new_mr`] made, as `ibv_dereg_mr()` and a provider would.
///
/// # Safety
///
/// `mr` came from [`new_mr`] and is not used any more, unless this fails.
pub(crate) unsafe fn destroy_mr(mr: *mut sys::ibv_mr) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { mr_handle(mr) }?;
    Command::<1>::new(sys::UVERBS_OBJECT_MR, sys::UVERBS_METHOD_MR_DESTROY)
        .object(sys::UVERBS_ATTR_DESTROY_MR_HANDLE, handle)
        .run(fd)?;

    if let Some(vmr) = NonNull::new(mr.cast::<sys::verbs_mr>()) {
        // SAFETY: By the caller's promise; the region is the first member.
        unsafe { free(vmr) }
    }
    Ok(())
}

/// The file descriptor and the handle of an MR.
///
/// # Safety
///
/// `mr` is NULL or a memory region.
pub(crate) unsafe fn mr_handle(mr: *mut sys::ibv_mr) -> Result<(c_int, u32)> {
    if mr.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: A region, by the caller's promise. Neither field is written after
    // it was registered.
    let (context, handle) = unsafe { ((*mr).context, (*mr).handle) };
    // SAFETY: A region's context is open as long as the region exists.
    Ok((unsafe { cmd_fd(context) }?, handle))
}
