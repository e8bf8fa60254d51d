// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{bindings, kernel_ext::sync::racing::read_once};
use kernel::{container_of, device, fmt, str::BStr, sync::aref::ARef, types::Opaque};

/// An RDMA device that is registered, or is about to be.
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
    pub(crate) fn name(&self) -> Name {
        // SAFETY: The device is valid.
        unsafe { Name::of(self.as_raw()) }
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

/// A device that is about to be registered. Its driver gives it to the module that extends the
/// device.
///
/// # Invariants
///
/// There is one for each device. No other code uses the device yet.
pub(crate) struct NewDevice<'a>(&'a Device);

impl NewDevice<'_> {
    /// # Safety
    ///
    /// `raw` must be as the type invariants require, for `'a`.
    pub(crate) unsafe fn from_raw(raw: *mut bindings::ib_device) -> Self {
        // SAFETY: By the safety requirement, the device stays. Its operations are set.
        // INVARIANT: By the safety requirement.
        Self(unsafe { Device::from_raw(raw) })
    }
}

impl core::ops::Deref for NewDevice<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0
    }
}

/// A copy of the name that a device had. If the device was renamed meanwhile, the copy may have
/// characters of both names.
pub(crate) struct Name {
    text: [u8; bindings::IB_DEVICE_NAME_MAX as usize],
}

impl Name {
    /// Copies the name of a device.
    ///
    /// # Safety
    ///
    /// `raw` must be a device that was registered, and its memory must be valid.
    unsafe fn of(raw: *const bindings::ib_device) -> Self {
        // SAFETY: By the safety requirement. This makes no reference to the name.
        let name = unsafe { &raw const (*raw).name }.cast::<u8>();
        let mut text = [0; bindings::IB_DEVICE_NAME_MAX as usize];
        for (at, to) in text.iter_mut().enumerate() {
            // SAFETY: The name has as many bytes. `rdma dev set name` may write them meanwhile,
            // each at once. Each value is a byte.
            match unsafe { read_once(name.add(at)) } {
                0 => break,
                byte => *to = byte,
            }
        }
        Self { text }
    }

    fn bytes(&self) -> &[u8] {
        let end = self.text.iter().position(|byte| *byte == 0);
        self.text
            .get(..end.unwrap_or(self.text.len()))
            .unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(BStr::from_bytes(self.bytes()), f)
    }
}

/// The name of a device that may have been unregistered.
///
/// # Invariants
///
/// This is the `struct device` in an `ib_device`. The reference keeps the memory of both.
pub(crate) struct DeviceName(ARef<device::Device>);

impl DeviceName {
    /// Refers to the name of `device`. If the device is renamed, [`Self::get`] returns the new
    /// name.
    pub(crate) fn new(device: &Device) -> Self {
        let raw = device.as_raw();
        // SAFETY: The device is valid, so its `struct device` has references.
        // INVARIANT: This is the `struct device` in it.
        Self(unsafe { device::Device::get_device((&raw mut (*raw).__bindgen_anon_1).cast()) })
    }

    /// Returns the name.
    pub(crate) fn get(&self) -> Name {
        let inner = (&raw const *self.0).cast::<bindings::ib_device__bindgen_ty_1>();
        // SAFETY: By the type invariant.
        unsafe { Name::of(container_of!(inner, bindings::ib_device, __bindgen_anon_1)) }
    }
}
