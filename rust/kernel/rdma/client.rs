// SPDX-License-Identifier: GPL-2.0

//! Clients of `ib_core`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::bindings;
use core::{cell::UnsafeCell, marker::PhantomData};
use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    prelude::*,
    str::CStr,
    sync::{Arc, SetOnce},
    types::ForeignOwnable,
};

/// A client's callbacks.
pub(crate) trait ClientOps: Sized + Send + Sync + 'static {
    /// Returns the client that calls this.
    fn client() -> &'static Client<Self>;

    /// Called when a device is registered, or after [`Self::remove`] when it moves to another
    /// network namespace. Clients that were registered later do not know the device yet.
    ///
    /// Returns the client's data for the device, or [`None`] to leave the device alone.
    fn add(device: &Device) -> Option<Arc<Self>>;

    /// Called when the device is about to be unregistered, or to move to another network namespace.
    /// Clients that were registered later have removed it already.
    fn remove(self: Arc<Self>, device: &Device);
}

/// A client of `ib_core`, in static memory.
pub(crate) struct Client<T: ClientOps> {
    raw: UnsafeCell<bindings::ib_client>,
    registered: SetOnce<()>,
    _ops: PhantomData<T>,
}

// SAFETY: `ib_core` serialises changes to the structure.
unsafe impl<T: ClientOps> Sync for Client<T> {}

impl<T: ClientOps> Client<T> {
    /// Makes a client that is not registered.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let mut raw: bindings::ib_client = pin_init::zeroed();
        #[allow(clippy::disallowed_methods, reason = "as_char_ptr() is not const")]
        {
            raw.name = name.as_ptr().cast();
        }
        raw.add = Some(Self::add_callback);
        raw.remove = Some(Self::remove_callback);
        Self {
            raw: UnsafeCell::new(raw),
            registered: SetOnce::new(),
            _ops: PhantomData,
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this, as `ib_client.add`.
    unsafe extern "C" fn add_callback(raw: *mut bindings::ib_device) -> c_int {
        // SAFETY: `ib_core` calls with a registered device.
        if let Some(data) = T::add(unsafe { Device::from_raw(raw) }) {
            // SAFETY: The device and the client are registered while `add` runs.
            unsafe {
                bindings::ib_set_client_data(raw, T::client().raw.get(), data.into_foreign());
            }
        }
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this, as `ib_client.remove`.
    unsafe extern "C" fn remove_callback(raw: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: `add_callback()` set `data`, or left them null.
        let Some(data) = (unsafe { <Arc<T> as ForeignOwnable>::try_from_foreign(data) }) else {
            return;
        };
        // SAFETY: `ib_core` calls with a device that is still registered.
        T::remove(data, unsafe { Device::from_raw(raw) });
    }
}

/// A registered client. Dropping it unregisters the client.
pub(crate) struct Registration<T: ClientOps>(PhantomData<T>);

impl<T: ClientOps> Registration<T> {
    /// Registers the client, which calls [`ClientOps::add`] for each device.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the client was registered before; the errors of `ib_register_client()`, such as
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        if !T::client().registered.populate(()) {
            return Err(EBUSY);
        }
        // SAFETY: The client is static, and nothing has registered it before.
        to_result(unsafe { bindings::ib_register_client(T::client().raw.get()) })?;
        Ok(Self(PhantomData))
    }
}

impl<T: ClientOps> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new()` registered it.
        unsafe { bindings::ib_unregister_client(T::client().raw.get()) };
    }
}
