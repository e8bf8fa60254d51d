// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Reads libibverbs's objects, and makes MRs as libibverbs does.

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
    mkey::Bound,
    sys, //
};

/// Returns the command file descriptor of a context.
///
/// # Safety
///
/// `ctx` is NULL or an open context.
pub(crate) unsafe fn cmd_fd(ctx: *mut sys::ibv_context) -> Result<c_int> {
    if ctx.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: The context is open, by the caller's promise. The field is not written after the
    // context was opened.
    Ok(unsafe { (*ctx).cmd_fd })
}

/// Returns the extended part of a context, if it contains `member`.
///
/// Later versions of libibverbs add members at the front of the structure. `sz` is the size of the
/// structure of this context.
///
/// # Safety
///
/// `ctx` is an open context.
pub unsafe fn extended(
    ctx: *mut sys::ibv_context,
    member: usize,
) -> Option<NonNull<sys::verbs_context>> {
    // SAFETY: The context is open, by the caller's promise.
    let abi = unsafe { (*ctx).abi_compat } as usize;

    // This is the value of __VERBS_ABI_IS_EXTENDED, as wrapper.h asserts.
    if abi != usize::MAX {
        return None;
    }

    let vctx = ctx
        .wrapping_byte_sub(offset_of!(sys::verbs_context, context))
        .cast::<sys::verbs_context>();
    // SAFETY: The context is the last member of an extended context. In all versions, the member
    // `sz` is right before it.
    let size = unsafe { (*vctx).sz };

    if size < size_of::<sys::verbs_context>().saturating_sub(member) {
        return None;
    }
    NonNull::new(vctx)
}

/// Allocates a zeroed `T`, which the C library's `free()` can free.
pub(crate) fn calloc<T>() -> Result<NonNull<T>> {
    // SAFETY: No requirements.
    let object = unsafe { libc::calloc(1, size_of::<T>()) };

    NonNull::new(object.cast()).ok_or(Errno::ENOMEM)
}

/// Frees memory that [`calloc`] returned.
///
/// # Safety
///
/// `object` came from [`calloc`], and there are no more references to it.
pub(crate) unsafe fn free<T>(object: NonNull<T>) {
    // SAFETY: By the caller's promise.
    unsafe { libc::free(object.as_ptr().cast()) }
}

/// Writes the length, the lkey and the rkey that a bind or an unbind has changed.
///
/// # Safety
///
/// `mkey` is an MR that the kernel has accepted as a key. Only this library writes these fields of
/// a key.
pub(crate) unsafe fn set_bound(mkey: *mut sys::ibv_mr, bound: Bound) {
    // SAFETY: By the caller's promise.
    unsafe {
        (&raw mut (*mkey).length).write(bound.length);
        (&raw mut (*mkey).lkey).write(bound.rkey);
        (&raw mut (*mkey).rkey).write(bound.rkey);
    }
}

/// The values that the kernel returns for an MR that it has created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) length: usize,
}

impl<const N: usize> Command<'_, N> {
    /// Runs a call that creates an MR of `length` bytes. The call returns the lkey and the rkey in
    /// the attributes with these ids.
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

/// Makes an MR that `ibv_dereg_mr()` accepts. `create` creates the MR in the kernel, and this
/// function makes the structure, as libibverbs does. The field `addr` stays NULL: the MR is
/// zero-based, and libibverbs's fork handling ignores an MR without an address.
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

    // SAFETY: `pd` is not NULL, so it is a protection domain, by the caller's promise. The fields
    // are not written after the allocation.
    let (context, pd_handle) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: A protection domain's context stays open as long as the domain exists.
    let fd = unsafe { cmd_fd(context) }?;

    // Allocate the structure before the kernel creates the MR, so that nothing can fail after that.
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

/// Destroys the MR with this handle in the kernel.
pub(crate) fn destroy(fd: c_int, handle: u32) -> Result {
    Command::<1>::new(sys::UVERBS_OBJECT_MR, sys::UVERBS_METHOD_MR_DESTROY)
        .object(sys::UVERBS_ATTR_DESTROY_MR_HANDLE, handle)
        .run(fd)
        .map(drop)
}

/// Destroys an MR of [`new_mr`], as `ibv_dereg_mr()` and a provider would.
///
/// # Safety
///
/// `mr` came from [`new_mr`]. Unless this fails, there are no more references to it.
pub(crate) unsafe fn destroy_mr(mr: *mut sys::ibv_mr) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { mr_handle(mr) }?;
    destroy(fd, handle)?;

    if let Some(vmr) = NonNull::new(mr.cast::<sys::verbs_mr>()) {
        // SAFETY: By the caller's promise, `new_mr()` allocated the structure. Its first member is
        // the MR.
        unsafe { free(vmr) }
    }
    Ok(())
}

/// Returns the file descriptor and the handle of an MR.
///
/// # Safety
///
/// `mr` is NULL or an MR.
pub(crate) unsafe fn mr_handle(mr: *mut sys::ibv_mr) -> Result<(c_int, u32)> {
    if mr.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: `mr` is not NULL, so it is an MR, by the caller's promise. The fields are not written
    // after the registration.
    let (context, handle) = unsafe { ((*mr).context, (*mr).handle) };
    // SAFETY: An MR's context stays open as long as the MR exists.
    Ok((unsafe { cmd_fd(context) }?, handle))
}
