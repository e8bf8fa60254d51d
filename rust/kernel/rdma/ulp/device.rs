// SPDX-License-Identifier: GPL-2.0

//! A device.

use crate::bindings;
use kernel::types::Opaque;

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

    /// Returns the number by which `rdma dev` shows it.
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: The device is registered, and the number is set before it is.
        unsafe { (*self.as_raw()).index }
    }
}
