// SPDX-License-Identifier: GPL-2.0

//! The registered devices. A device that is held stays registered.

use super::{
    id::{Net, RawId},
    Device,
};
use crate::{
    bindings,
    kernel_ext::{
        rdma::client::{Client, ClientOps, Registration},
        sync::global::global_mutex,
        thread::Wake,
    },
};
use core::{net::Ipv4Addr, ops::Deref, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Completion, Mutex,
    },
};

/// The port of all devices.
const PORT: u32 = 1;

static CLIENT: Client<KnownDevice> = Client::new(super::NAME);

struct Known {
    /// The devices that are not being removed.
    devices: KVec<Arc<KnownDevice>>,
    /// Set when a device is removed.
    wake: Option<Arc<Wake>>,
}

global_mutex!(
    static KNOWN: Known = Known {
        devices: KVec::new(),
        wake: None,
    }
);

/// A device that `ib_core` reported.
///
/// # Invariants
///
/// The device is registered as long as this exists.
pub(crate) struct KnownDevice {
    device: NonNull<Device>,
    /// The removal has begun.
    leaving: Atomic<bool>,
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
            leaving: Atomic::new(false),
            unused: Arc::pin_init(Completion::new(), GFP_KERNEL).ok()?,
        };
        let known = Arc::new(known, GFP_KERNEL).ok()?;
        KNOWN::lock().devices.push(known.clone(), GFP_KERNEL).ok()?;
        Some(known)
    }

    fn remove(self: Arc<Self>, _device: &Device) {
        let mut known = KNOWN::lock();
        known.devices.retain(|known| !Arc::ptr_eq(known, &self));
        self.leaving.store(true, ordering::Relaxed);
        if let Some(wake) = &known.wake {
            wake.wake();
        }
        drop(known);
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

/// Frees what a static keeps, which is never dropped.
struct Forget;

impl Drop for Forget {
    fn drop(&mut self) {
        let mut known = KNOWN::lock();
        let old = core::mem::replace(&mut known.devices, KVec::new());
        let wake = known.wake.take();
        drop(known);
        drop((old, wake));
    }
}

/// The devices that `ib_core` knows. Dropping it waits until no device is held, so drop it after
/// all objects that hold a device.
pub(crate) struct Devices {
    // Fields drop in declaration order: the client before what it uses.
    _registration: Registration<KnownDevice>,
    _forget: Forget,
}

impl Devices {
    /// Registers a client with `ib_core`, which then reports all devices. The removal of a device
    /// sets `wake`, and waits until the device is not held any more.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a `Devices` was made before, `ENOMEM`.
    pub(crate) fn new(wake: &Arc<Wake>) -> Result<Self> {
        let mut known = KNOWN::lock();
        if known.wake.is_some() {
            return Err(EBUSY);
        }
        known.wake = Some(wake.clone());
        drop(known);
        let forget = Forget;
        Ok(Self {
            _registration: Registration::new()?,
            _forget: forget,
        })
    }

    /// Holds the device that `rdma dev` shows with this index.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device, or if it is being removed.
    pub(crate) fn hold(&self, index: u32) -> Result<HeldDevice> {
        let known = KNOWN::lock();
        let mut devices = known.devices.iter().map(|known| HeldDevice {
            device: known.device,
            holder: Holder::Client(known.clone()),
        });
        devices.find(|held| held.index() == index).ok_or(ENODEV)
    }
}

/// An object that keeps a device registered.
#[derive(Clone)]
enum Holder {
    /// The removal of the device waits for a client.
    Client(Arc<KnownDevice>),
    /// The removal of the device waits for the ids of `rdma_cm`.
    Id(Arc<RawId>),
}

/// A device that stays registered while this exists.
///
/// # Invariants
///
/// `holder` keeps `device` registered.
#[derive(Clone)]
pub(crate) struct HeldDevice {
    device: NonNull<Device>,
    holder: Holder,
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
            holder: Holder::Id(id.clone()),
        }
    }

    /// Returns `true` if the removal of the device has begun. It waits until this and all that holds
    /// the device are dropped.
    pub(crate) fn is_leaving(&self) -> bool {
        match &self.holder {
            Holder::Client(known) => known.leaving.load(ordering::Relaxed),
            Holder::Id(id) => id.is_lost(),
        }
    }

    /// Returns an IPv4 address of the device, and the network namespace that it is in.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it has none.
    pub(crate) fn address(&self) -> Result<(Net, Ipv4Addr)> {
        for index in 0..=u8::MAX {
            // SAFETY: The device is registered.
            let attr = unsafe { bindings::rdma_get_gid_attr(self.as_raw(), PORT, index.into()) };
            let attr = match from_err_ptr(attr.cast_mut()) {
                Ok(attr) => attr,
                // `EINVAL` is the end of the table, `ENODATA` an empty entry.
                Err(EINVAL) => break,
                Err(_) => continue,
            };
            // SAFETY: `attr` holds a reference until it is put.
            let (gid, net) = unsafe {
                let gid = (&raw const (*attr).gid).cast::<[u8; 16]>().read();
                let net = Net::of_gid(attr);
                bindings::rdma_put_gid_attr(attr);
                (gid, net)
            };
            // An address that is mapped to IPv6.
            if let [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] = gid {
                return Ok((net.ok_or(ENOENT)?, Ipv4Addr::new(a, b, c, d)));
            }
        }
        Err(ENOENT)
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
