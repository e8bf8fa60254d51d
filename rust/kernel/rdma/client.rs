// SPDX-License-Identifier: GPL-2.0

//! Clients of `ib_core`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::{
    bindings,
    kernel_ext::sync::srcu::{self, Guard},
};
use core::{cell::UnsafeCell, marker::PhantomData, mem::MaybeUninit, ops::Deref};
use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    prelude::*,
    str::{CStr, CStrExt},
    sync::{Arc, ArcBorrow},
    types::ForeignOwnable,
};

/// A client's callbacks.
pub(crate) trait ClientOps: Sized + Send + Sync + 'static {
    /// Returns the client that calls this.
    fn client() -> &'static Client<Self>;

    /// Called when a device is registered, or after [`Self::remove`] when it moves to another
    /// network namespace.
    ///
    /// Returns the client's data for the device, or [`None`] to leave the device alone.
    fn add(device: &Adding<'_>, sole: SoleData<'_>) -> Option<Arc<Self>>;

    /// Called when [`Client::data`] finds the data. Returns `true` to keep them; otherwise
    /// [`Self::removed`] is called next.
    fn added(self: ArcBorrow<'_, Self>, device: &Adding<'_>) -> bool;

    /// Called when the device is about to be unregistered, or to move to another network namespace.
    /// Clients that were registered later have removed it already.
    fn remove(self: ArcBorrow<'_, Self>, device: &Removing<'_>);

    /// Called when [`Client::data`] does not find the data any more, and all critical sections that
    /// found them have ended.
    fn removed(self: ArcBorrow<'_, Self>);
}

/// A device that is being added to a client.
///
/// # Invariants
///
/// Clients that were registered later do not know the device yet, so they do not call it.
pub(crate) struct Adding<'a>(&'a Device);

impl Deref for Adding<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0
    }
}

/// The right to make what a client may have only once for a device. A constructor consumes it.
///
/// # Invariants
///
/// Each call of [`ClientOps::add`] gets one, and there is no other. When a device is added again,
/// its operations do not find what was made of an earlier one.
pub(crate) struct SoleData<'a>(&'a Device);

impl Deref for SoleData<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0
    }
}

/// A device that is being removed from a client.
///
/// # Invariants
///
/// Clients that were registered later do not know the device any more, so they do not call it.
pub(crate) struct Removing<'a>(&'a Device);

impl Deref for Removing<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0
    }
}

/// A client of `ib_core`, in static memory.
pub(crate) struct Client<T: ClientOps> {
    raw: UnsafeCell<bindings::ib_client>,
    _ops: PhantomData<T>,
}

// SAFETY: `ib_core` serialises changes to the structure.
unsafe impl<T: ClientOps> Sync for Client<T> {}

impl<T: ClientOps> Client<T> {
    /// Makes a client that is not registered.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        // SAFETY: All-zero is a valid `ib_client`: null pointers, absent callbacks and integers.
        let mut raw: bindings::ib_client = unsafe { MaybeUninit::zeroed().assume_init() };
        #[allow(clippy::disallowed_methods, reason = "as_char_ptr() is not const")]
        {
            raw.name = name.as_ptr().cast();
        }
        raw.add = Some(Self::add_callback);
        raw.remove = Some(Self::remove_callback);
        Self {
            raw: UnsafeCell::new(raw),
            _ops: PhantomData,
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this, as `ib_client.add`.
    unsafe extern "C" fn add_callback(raw: *mut bindings::ib_device) -> c_int {
        // SAFETY: `ib_core` calls with a registered device.
        // INVARIANT: `ib_core` adds a device to its clients in the order of their registration.
        let device = Adding(unsafe { Device::from_raw(raw) });
        // INVARIANT: Made for this call.
        let sole = SoleData(device.0);
        if let Some(data) = T::add(&device, sole) {
            let kept = data.clone().into_foreign();
            // SAFETY: The device and the client are registered while `add` runs.
            unsafe { Self::set_data(raw, kept) };
            if !T::added(data.as_arc_borrow(), &device) {
                // SAFETY: The device is still being added. `kept` came from `into_foreign()` above.
                // `set_data()` replaces it before it is dropped, so `remove_callback()` does not
                // find it.
                unsafe { Self::take_back(raw, <Arc<T> as ForeignOwnable>::from_foreign(kept)) };
            }
        }
        0
    }

    /// Takes back the data of a device, and drops this reference when no reader uses it any more.
    ///
    /// # Safety
    ///
    /// As for [`Self::set_data`]; `data` must be the data that were set.
    unsafe fn take_back(raw: *mut bindings::ib_device, data: Arc<T>) {
        // SAFETY: By the safety requirement.
        unsafe { Self::set_data(raw, core::ptr::null_mut()) };
        // When this returns, no reader uses a reference that `data()` returned.
        srcu::synchronize();
        T::removed(data.as_arc_borrow());
    }

    /// # Safety
    ///
    /// `raw` must be a device that is being added to or removed from this client.
    unsafe fn set_data(raw: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: By the safety requirement; the client is registered.
        unsafe { bindings::ib_set_client_data(raw, T::client().raw.get(), data) };
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
        // INVARIANT: `ib_core` removes a device from its clients in the reverse order of their
        // registration.
        let device = Removing(unsafe { Device::from_raw(raw) });
        T::remove(data.as_arc_borrow(), &device);
        // SAFETY: The device is being removed from the client, and `data` are those that were set.
        unsafe { Self::take_back(raw, data) };
    }

    /// Returns the client's data for a device. They stay until the critical section ends.
    #[inline]
    pub(crate) fn data<'a>(
        &'static self,
        device: &Device,
        _guard: &'a Guard,
    ) -> Option<ArcBorrow<'a, T>> {
        // SAFETY: The device is valid. If the client is not registered, it has no data.
        let data = unsafe { bindings::ib_get_client_data(device.as_raw(), self.raw.get()) };
        if data.is_null() {
            return None;
        }
        // SAFETY: `data` came from `into_foreign()`. `take_back()` waits for critical sections
        // before it drops its reference.
        Some(unsafe { <Arc<T> as ForeignOwnable>::borrow(data) })
    }
}

/// A registered client. Dropping it unregisters the client.
pub(crate) struct Registration<T: ClientOps>(PhantomData<T>);

impl<T: ClientOps> Registration<T> {
    /// Registers the client, which calls [`ClientOps::add`] for each device.
    ///
    /// # Errors
    ///
    /// The errors of `ib_register_client()`, such as `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The client is static and not registered: a module makes one registration.
        to_result(unsafe { bindings::ib_register_client(T::client().raw.get()) })?;
        Ok(Self(PhantomData))
    }
}

impl<T: ClientOps> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new()` registered it.
        unsafe { bindings::ib_unregister_client(T::client().raw.get()) };
        // A thread that dropped the last pin of the module may not have left the module's code.
        // SAFETY: No preconditions.
        unsafe { bindings::rdma_ops_drain() };
    }
}

/// Keeps a module from being unloaded.
pub(crate) struct ModulePin(&'static ThisModule);

impl ModulePin {
    /// Pins `module`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the module is being unloaded.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The caller is code of the module, so the module is loaded.
        if !unsafe { bindings::try_module_get(module.as_ptr()) } {
            return Err(ENODEV);
        }
        Ok(Self(module))
    }
}

impl Drop for ModulePin {
    fn drop(&mut self) {
        // SAFETY: `new()` took the reference. Code of the module that does not sleep may follow:
        // unloading drops the `Registration`, which waits for threads in such code.
        unsafe { bindings::module_put(self.0.as_ptr()) };
    }
}

/// Returns `true` if `ib_uverbs` is loaded. `ib_uverbs` reads a device's operations only when it
/// adds the device.
pub(crate) fn uverbs_is_loaded() -> bool {
    // This symbol is in ib_uverbs itself, not in a module that it depends on.
    let symbol = c"rdma_user_mmap_disassociate".as_char_ptr();
    // SAFETY: `symbol` is a C string.
    unsafe { bindings::text_address(symbol) != 0 }
}
