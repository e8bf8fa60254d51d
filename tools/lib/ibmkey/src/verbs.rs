// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Devices and contexts, for programs in Rust.

use core::{
    ffi::{
        c_int,
        CStr, //
    },
    marker::PhantomData,
    ptr::NonNull,
    slice,
};

use crate::{
    dm,
    errno::{
        Errno,
        Result, //
    },
    mkey, object,
    sys::{
        self,
        ib_uverbs_mkey_caps, //
    },
};

mod memory;
mod queue;

pub use memory::{
    Pd,
    Span, //
};
pub use queue::{
    Address,
    Failure,
    Queue, //
};

#[link(name = "ibverbs")]
extern "C" {}

/// The RDMA devices of this machine that user space can open.
///
/// # Invariants
///
/// `list` came from `ibv_get_device_list()` and has `len` devices.
pub struct Devices {
    list: NonNull<*mut sys::ibv_device>,
    len: usize,
}

impl Devices {
    /// Lists the devices.
    pub fn list() -> Result<Self> {
        let mut len: c_int = 0;
        // SAFETY: `len` is a variable of this function.
        let list = unsafe { sys::ibv_get_device_list(&mut len) };

        // INVARIANT: libibverbs returned the list and its length.
        Ok(Self {
            list: NonNull::new(list).ok_or_else(Errno::last)?,
            len: usize::try_from(len).unwrap_or(0),
        })
    }

    /// Returns the devices, in libibverbs's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Device<'_>> {
        // SAFETY: By the type's invariant.
        let list = unsafe { slice::from_raw_parts(self.list.as_ptr(), self.len) };

        list.iter().map(|&raw| Device {
            raw,
            list: PhantomData,
        })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. libibverbs keeps the device of an open context.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) }
    }
}

/// A device that can be opened.
pub struct Device<'a> {
    raw: *mut sys::ibv_device,
    list: PhantomData<&'a Devices>,
}

impl Device<'_> {
    /// Returns the name, as in `rdma link`.
    pub fn name(&self) -> &str {
        // SAFETY: The lifetime ensures that the list of the device exists. The name is a C string.
        let name = unsafe { CStr::from_ptr(sys::ibv_get_device_name(self.raw)) };

        // The kernel accepts any bytes as a name; in practice names are ASCII.
        name.to_str().unwrap_or("?")
    }

    /// Opens the device.
    pub fn open(&self) -> Result<Context> {
        // SAFETY: The lifetime ensures that the list of the device exists.
        let ctx = unsafe { sys::ibv_open_device(self.raw) };

        // INVARIANT: The context was opened above, so there is no other owner.
        Ok(Context {
            raw: NonNull::new(ctx).ok_or_else(Errno::last)?,
        })
    }
}

/// An open device.
///
/// # Invariants
///
/// `raw` is an open context that only this object closes.
pub struct Context {
    raw: NonNull<sys::ibv_context>,
}

impl Context {
    /// Queries the limits of the device.
    pub fn caps(&self) -> Result<ib_uverbs_mkey_caps> {
        // SAFETY: By the type's invariant.
        mkey::query_caps(unsafe { object::cmd_fd(self.raw.as_ptr()) }?)
    }

    /// Makes the device-memory verbs work on the context.
    pub fn enable(&self) -> Result {
        // SAFETY: By the type's invariant.
        unsafe { dm::enable(self.raw.as_ptr()) }
    }

    /// Returns the context, for libibverbs's functions. Dropping this closes it.
    pub fn as_raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { sys::ibv_close_device(self.raw.as_ptr()) };
    }
}
