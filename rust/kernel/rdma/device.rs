// SPDX-License-Identifier: GPL-2.0

//! RDMA devices, and regions that their drivers made.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::mr::Mr;
use crate::bindings;
use core::ptr;
use kernel::{
    ffi::c_int,
    prelude::*,
    str::CStr,
    types::Opaque, //
};

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

    /// Returns the number by which `rdma dev` shows it.
    #[allow(dead_code, reason = "for ULPs")]
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: The device is registered, and the number is set before it is.
        unsafe { (*self.as_raw()).index }
    }

    /// Returns which driver it is of, `enum rdma_driver_id`.
    pub(crate) fn driver_id(&self) -> u32 {
        // SAFETY: The operations are set before the device is registered.
        unsafe { (*self.as_raw()).ops.driver_id }
    }

    /// Returns the NUMA node it is near, negative for none.
    pub(crate) fn node(&self) -> i32 {
        // SAFETY: The device is registered.
        unsafe { bindings::ib_device_node(self.as_raw()) }
    }
}

/// A device's name, for those who outlive the device.
///
/// # Invariants
///
/// A reference to the `struct device` in the `ib_device` is held: its memory is not freed.
pub(crate) struct DeviceName(ptr::NonNull<bindings::ib_device>);

// SAFETY: The name is read as the core reads it.
unsafe impl Send for DeviceName {}
// SAFETY: As above.
unsafe impl Sync for DeviceName {}

impl DeviceName {
    /// Refers to the name of `device`, whatever it will be.
    pub(crate) fn new(device: &Device) -> Self {
        let raw = device.as_raw();
        // SAFETY: The device is registered, so that it has references, and is not null.
        // INVARIANT: The reference is taken here.
        unsafe {
            bindings::get_device((&raw mut (*raw).__bindgen_anon_1).cast());
            Self(ptr::NonNull::new_unchecked(raw))
        }
    }

    /// Returns the name.
    pub(crate) fn get(&self) -> &CStr {
        // SAFETY: By the type invariant the memory is valid, and the name in it is terminated.
        unsafe { Device::from_raw(self.0.as_ptr()) }.name()
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_device((&raw mut (*self.0.as_ptr()).__bindgen_anon_1).cast()) };
    }
}

/// A memory region that its device's driver made but `ib_core` does not know yet.
///
/// # Invariants
///
/// The pointer came from the driver's `alloc_mr` or `reg_user_mr`.
pub(crate) struct DriverMr {
    raw: *mut bindings::ib_mr,
    dereg: Option<DeregMr>,
}

type DeregMr =
    unsafe extern "C" fn(mr: *mut bindings::ib_mr, udata: *mut bindings::ib_udata) -> c_int;

impl DriverMr {
    /// # Safety
    ///
    /// The driver whose operation `dereg` is made `raw`, and nobody else has it.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_mr, dereg: Option<DeregMr>) -> Self {
        // INVARIANT: By the safety requirements.
        Self { raw, dereg }
    }

    pub(super) fn into_raw(self) -> *mut bindings::ib_mr {
        core::mem::ManuallyDrop::new(self).raw
    }
}

impl core::ops::Deref for DriverMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(self.raw) }
    }
}

impl Drop for DriverMr {
    fn drop(&mut self) {
        if let Some(dereg) = self.dereg {
            // SAFETY: By the type invariant; the region was never given away.
            unsafe { dereg(self.raw, ptr::null_mut()) };
        }
    }
}
