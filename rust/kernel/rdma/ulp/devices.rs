// SPDX-License-Identifier: GPL-2.0

//! The devices there are, each held for as long as it is used.

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

static CLIENT: Client<Node> = Client::new(super::NAME);

/// Whether there has been a [`Devices`].
static MADE: SetOnce<()> = SetOnce::new();

global_lock! {
    // SAFETY: Initialised by `Devices::new()`. Until it has registered the client nobody else
    // comes here.
    unsafe(uninit) static NODES: Mutex<KVec<Arc<Node>>> = KVec::new();
}

/// A device, and who uses it.
///
/// # Invariants
///
/// `raw` is a registered device until [`ClientOps::remove`] has returned.
#[pin_data]
pub(crate) struct Node {
    raw: NonNull<bindings::ib_device>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    idle: CondVar,
}

struct State {
    users: usize,
    going: bool,
}

// SAFETY: A registered device may be used from any thread; the rest is locked.
unsafe impl Send for Node {}
// SAFETY: As above.
unsafe impl Sync for Node {}

impl Node {
    fn index(&self) -> u32 {
        // SAFETY: By the type invariant: nodes are looked at while they are in `NODES`, which they
        // leave in `remove()`.
        unsafe { Device::from_raw(self.raw.as_ptr()) }.index()
    }
}

impl ClientOps for Node {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Adding<'_>) -> Option<Arc<Self>> {
        let raw = NonNull::new(device.as_raw())?;
        // INVARIANT: Devices are registered while they are added, and `remove()` is called before
        // they are not any more.
        let node = pin_init!(Self {
            raw,
            state <- new_mutex!(State { users: 0, going: false }),
            idle <- new_condvar!(),
        });
        Arc::pin_init(node, GFP_KERNEL).ok()
    }

    fn added(self: ArcBorrow<'_, Self>, _device: &Adding<'_>) -> bool {
        NODES.lock().push(self.into(), GFP_KERNEL).is_ok()
    }

    fn remove(self: ArcBorrow<'_, Self>, _device: &Removing<'_>) {
        {
            let mut nodes = NODES.lock();
            nodes.retain(|node| !core::ptr::eq(&**node, &*self));
            if nodes.is_empty() {
                // Nobody frees what a static has allocated.
                *nodes = KVec::new();
            }
        }
        let mut state = self.state.lock();
        state.going = true;
        while state.users != 0 {
            self.idle.wait(&mut state);
        }
    }

    fn removed(self: ArcBorrow<'_, Self>) {}
}

/// The devices that `ib_core` knows.
///
/// There is one in a module. Dropping it waits until no device is held: hold it longer than what
/// uses a device.
pub(crate) struct Devices {
    _registration: Registration<Node>,
}

impl Devices {
    /// Asks `ib_core` to tell of devices.
    ///
    /// # Errors
    ///
    /// `EBUSY` for a second time, `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        if !MADE.populate(()) {
            return Err(EBUSY);
        }
        // SAFETY: Only here, which is once.
        unsafe { NODES.init() };
        Ok(Self {
            _registration: Registration::new()?,
        })
    }

    /// Holds the device that `rdma dev` shows as number `index`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none, or if it is about to go.
    pub(crate) fn hold(&self, index: u32) -> Result<HeldDevice> {
        let nodes = NODES.lock();
        let node = nodes.iter().find(|node| node.index() == index);
        let node = node.ok_or(ENODEV)?;
        let mut state = node.state.lock();
        if state.going {
            return Err(ENODEV);
        }
        state.users += 1;
        // INVARIANT: Counted just now, while the device was not going.
        Ok(HeldDevice(node.clone()))
    }
}

/// A device that stays registered.
///
/// # Invariants
///
/// It is one of the users of the node, whose `remove()` waits for it.
pub(crate) struct HeldDevice(Arc<Node>);

impl HeldDevice {
    /// Is it the same device as `other`?
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for HeldDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: By the type invariants the device is registered for as long as this exists.
        unsafe { Device::from_raw(self.0.raw.as_ptr()) }
    }
}

impl Clone for HeldDevice {
    fn clone(&self) -> Self {
        self.0.state.lock().users += 1;
        // INVARIANT: Counted just now, while `self` was, too.
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
