// SPDX-License-Identifier: GPL-2.0

//! The registered devices. A device that is held stays registered.

use super::{id::RawId, Device};
use crate::kernel_ext::{
    rdma::client::{Client, ClientOps, Registration},
    sync::global::global_mutex,
};
use core::{ops::Deref, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{Arc, Completion, Mutex},
};

static CLIENT: Client<KnownDevice> = Client::new(super::NAME);

global_mutex!(
    /// The devices that are not being removed.
    static DEVICES: KVec<Arc<KnownDevice>> = KVec::new()
);

/// A device that `ib_core` reported.
///
/// # Invariants
///
/// The device is registered as long as this exists.
pub(crate) struct KnownDevice {
    device: NonNull<Device>,
    /// Completed when this is dropped.
    unused: Arc<Completion>,
}

// SAFETY: Any thread may use a registered device.
unsafe impl Send for KnownDevice {}
// SAFETY: Any thread may use a registered device, also several at once.
unsafe impl Sync for KnownDevice {}

impl ClientOps for KnownDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Device) -> Option<Arc<Self>> {
        // INVARIANT: `remove()` waits until this is dropped, and the device stays registered until
        // that has returned.
        let known = Self {
            device: NonNull::from(device),
            unused: Arc::pin_init(Completion::new(), GFP_KERNEL).ok()?,
        };
        let known = Arc::new(known, GFP_KERNEL).ok()?;
        DEVICES::lock().push(known.clone(), GFP_KERNEL).ok()?;
        Some(known)
    }

    fn remove(self: Arc<Self>, _device: &Device) {
        {
            let mut devices = DEVICES::lock();
            devices.retain(|known| !Arc::ptr_eq(known, &self));
            if devices.is_empty() {
                // A static is never dropped, so free its allocation here.
                *devices = KVec::new();
            }
        }
        let unused = self.unused.clone();
        drop(self);
        unused.wait_for_completion();
    }
}

impl Drop for KnownDevice {
    fn drop(&mut self) {
        self.unused.complete_all();
    }
}

/// The devices that `ib_core` knows. Dropping it waits until no device is held, so drop it after
/// all objects that hold a device.
pub(crate) struct Devices {
    _registration: Registration<KnownDevice>,
}

impl Devices {
    /// Registers a client with `ib_core`, which then reports all devices.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a `Devices` was made before, `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            _registration: Registration::new()?,
        })
    }

    /// Holds the device that `rdma dev` shows with this index.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device, or if it is being removed.
    pub(crate) fn hold(&self, index: u32) -> Result<HeldDevice> {
        let devices = DEVICES::lock();
        let mut devices = devices.iter().map(|known| HeldDevice {
            device: known.device,
            _holder: Holder::Client(known.clone()),
        });
        devices.find(|held| held.index() == index).ok_or(ENODEV)
    }
}

/// An object that keeps a device registered.
#[derive(Clone)]
enum Holder {
    /// The removal of the device waits for a client.
    Client(#[allow(dead_code, reason = "dropped only")] Arc<KnownDevice>),
    /// The removal of the device waits for the ids of `rdma_cm`.
    Id(#[allow(dead_code, reason = "dropped only")] Arc<RawId>),
}

/// A device that stays registered while this exists.
///
/// # Invariants
///
/// `_holder` keeps `device` registered.
#[derive(Clone)]
pub(crate) struct HeldDevice {
    device: NonNull<Device>,
    _holder: Holder,
}

// SAFETY: Any thread may use a registered device.
unsafe impl Send for HeldDevice {}
// SAFETY: Any thread may use a registered device, also several at once.
unsafe impl Sync for HeldDevice {}

impl HeldDevice {
    /// Holds `device`, which must be that of `id`.
    pub(super) fn by_id(device: &Device, id: &Arc<RawId>) -> Self {
        // INVARIANT: The device of an id stays until the id is destroyed.
        Self {
            device: NonNull::from(device),
            _holder: Holder::Id(id.clone()),
        }
    }

    fn index(&self) -> u32 {
        // SAFETY: The index is set before the device is registered.
        unsafe { (*self.as_raw()).index }
    }
}

impl Deref for HeldDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: By the type invariant, the device is registered.
        unsafe { self.device.as_ref() }
    }
}
