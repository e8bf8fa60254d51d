// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::bindings;
use core::ptr;
use kernel::{prelude::*, str::CStr, types::Opaque};

/// A registered RDMA device.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

impl Device {
    /// # Safety
    ///
    /// `raw` must be a registered device for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// Returns the name, such as `rxe0`.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The core keeps the name terminated.
        unsafe { CStr::from_char_ptr((*self.as_raw()).name.as_ptr().cast()) }
    }

    /// Returns the index that `rdma dev` shows.
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: The device is registered. The index is set before that.
        unsafe { (*self.as_raw()).index }
    }

    /// Returns the driver, a value of `enum rdma_driver_id`.
    pub(crate) fn driver_id(&self) -> u32 {
        // SAFETY: The operations are set before the device is registered.
        unsafe { (*self.as_raw()).ops.driver_id }
    }

    /// Returns the NUMA node that the device is near, or a negative number for none.
    pub(crate) fn node(&self) -> i32 {
        // SAFETY: The device is registered.
        unsafe { bindings::ib_device_node(self.as_raw()) }
    }
}

/// The name of a device that may have been unregistered.
///
/// # Invariants
///
/// A reference to the `struct device` in the `ib_device` is held, so its memory is not freed.
pub(crate) struct DeviceName(ptr::NonNull<bindings::ib_device>);

// SAFETY: Any thread may read the name, as the core does.
unsafe impl Send for DeviceName {}
// SAFETY: As above.
unsafe impl Sync for DeviceName {}

impl DeviceName {
    /// Refers to the name of `device`. If the device is renamed, [`Self::get`] returns the new
    /// name.
    pub(crate) fn new(device: &Device) -> Self {
        let raw = device.as_raw();
        // SAFETY: The device is registered, so its memory is valid and has references.
        // INVARIANT: The reference is taken here.
        unsafe {
            bindings::get_device((&raw mut (*raw).__bindgen_anon_1).cast());
            Self(ptr::NonNull::new_unchecked(raw))
        }
    }

    /// Returns the name.
    pub(crate) fn get(&self) -> &CStr {
        // SAFETY: By the type invariant, the memory is valid. The name in it is terminated.
        unsafe { Device::from_raw(self.0.as_ptr()) }.name()
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_device((&raw mut (*self.0.as_ptr()).__bindgen_anon_1).cast()) };
    }
}
