// SPDX-License-Identifier: GPL-2.0

//! The registered devices. A device that is held stays registered.

use super::Device;
use crate::{
    bindings,
    kernel_ext::rdma::client::{Adding, Client, ClientOps, Registration, Removing},
};
use core::{ops::Deref, ptr::NonNull};
use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    sync::{global_lock, Arc, ArcBorrow, CondVar, Mutex, SetOnce},
};

static CLIENT: Client<KnownDevice> = Client::new(super::NAME);

/// Set once a [`Devices`] was made.
static MADE: SetOnce<()> = SetOnce::new();

global_lock! {
    // SAFETY: `Devices::new()` initialises it. No other code uses it before that has registered the
    // client.
    unsafe(uninit) static NODES: Mutex<KVec<Arc<KnownDevice>>> = KVec::new();
}

/// A device and its users.
///
/// # Invariants
///
/// `raw` is a registered device until [`ClientOps::remove`] has returned.
#[pin_data]
pub(crate) struct KnownDevice {
    raw: NonNull<bindings::ib_device>,
    #[pin]
    state: Mutex<Usage>,
    #[pin]
    idle: CondVar,
}

struct Usage {
    users: usize,
    going: bool,
}

// SAFETY: Any thread may use a registered device; locks protect the other fields.
unsafe impl Send for KnownDevice {}
// SAFETY: As above.
unsafe impl Sync for KnownDevice {}

impl KnownDevice {
    fn index(&self) -> u32 {
        // SAFETY: By the type invariant: a node is used while it is in `NODES`, and `remove()`
        // takes it out.
        unsafe { (*self.raw.as_ptr()).index }
    }
}

impl ClientOps for KnownDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Adding<'_>) -> Option<Arc<Self>> {
        let raw = NonNull::new(device.as_raw())?;
        // INVARIANT: The device is registered while it is added, and `remove()` runs before it is
        // unregistered.
        let node = pin_init!(Self {
            raw,
            state <- new_mutex!(Usage { users: 0, going: false }),
            idle <- new_condvar!(),
        });
        let node = Arc::pin_init(node, GFP_KERNEL).ok()?;
        NODES.lock().push(node.clone(), GFP_KERNEL).ok()?;
        Some(node)
    }

    fn remove(self: ArcBorrow<'_, Self>, _device: &Removing<'_>) {
        {
            let mut nodes = NODES.lock();
            nodes.retain(|node| !core::ptr::eq(&**node, &*self));
            if nodes.is_empty() {
                // A static is never dropped, so free its allocation here.
                *nodes = KVec::new();
            }
        }
        let mut state = self.state.lock();
        state.going = true;
        while state.users != 0 {
            self.idle.wait(&mut state);
        }
    }
}

/// The devices that `ib_core` knows.
///
/// A module makes one. Dropping it waits until no device is held, so drop it after all objects that
/// hold a device.
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
        if !MADE.populate(()) {
            return Err(EBUSY);
        }
        // SAFETY: This is the only call. `MADE` ensures that it runs once.
        unsafe { NODES.init() };
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
        let nodes = NODES.lock();
        let node = nodes.iter().find(|node| node.index() == index);
        let node = node.ok_or(ENODEV)?;
        let mut state = node.state.lock();
        if state.going {
            return Err(ENODEV);
        }
        state.users += 1;
        // INVARIANT: Counted above, while the device was not being removed.
        Ok(HeldDevice(node.clone()))
    }
}

/// A device that stays registered while this exists.
///
/// # Invariants
///
/// It is one of the users of the node, whose `remove()` waits for it.
pub(crate) struct HeldDevice(Arc<KnownDevice>);

impl HeldDevice {
    /// Returns `true` if `other` is the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for HeldDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: By the type invariants, the device is registered while this exists.
        unsafe { Device::from_raw(self.0.raw.as_ptr()) }
    }
}

impl Clone for HeldDevice {
    fn clone(&self) -> Self {
        self.0.state.lock().users += 1;
        // INVARIANT: Counted above, while `self` was counted too.
        Self(self.0.clone())
    }
}

impl Drop for HeldDevice {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.users -= 1;
        if state.users == 0 {
            self.0.idle.notify_all();
        }
    }
}
