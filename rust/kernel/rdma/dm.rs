// SPDX-License-Identifier: GPL-2.0

//! Device memory objects.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{mr::NewMr, Device};
use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
    types::Opaque,
};

/// A device memory object, which a process or a kernel user has.
///
/// # Invariants
///
/// The object is not freed while an MR is registered over it.
#[repr(transparent)]
pub(crate) struct Dm(Opaque<bindings::ib_dm>);

impl Dm {
    /// # Safety
    ///
    /// `raw` must be as the type invariant requires, and valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_dm) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: The device is set before a user gets the object, and stays registered as long as
        // it has device memory.
        unsafe { Device::from_raw((*self.0.get()).device) }
    }

    /// Returns the data of the memory's driver.
    ///
    /// # Safety
    ///
    /// The memory must have come from a [`DriverDm<T>`].
    pub(super) unsafe fn driver_data<T>(&self) -> &T {
        // SAFETY: By the safety requirement; `ib_dm` is the first field of a `DriverDm`.
        unsafe { &(*self.0.get().cast::<DriverDm<T>>()).data }
    }

    fn users(&self) -> &Atomic<i32> {
        // SAFETY: The field is an `atomic_t`, and all accesses to it are atomic.
        unsafe { Atomic::from_ptr(&raw mut (*self.0.get()).usecnt.counter) }
    }

    /// Counts `mr`, a new MR, as one over the object, until `ib_dereg_mr()` has deregistered the
    /// MR.
    pub(crate) fn attach(&self, mr: &NewMr<'_>) {
        self.users().add(1, ordering::Relaxed);
        // SAFETY: The MR is new, so only its maker uses it. The core decrements the count when it
        // deregisters the MR, and by the type invariant the object exists until then.
        unsafe { (*mr.as_raw()).dm = self.0.get() };
    }
}

/// A device memory object with the data of its driver, before the core or C gets it.
#[repr(C)]
pub(crate) struct DriverDm<T> {
    raw: Opaque<bindings::ib_dm>,
    data: T,
}

impl<T> DriverDm<T> {
    /// Makes an object whose `ib_dm` is zero, for the core to fill in.
    pub(crate) fn new(data: T) -> Result<KBox<Self>> {
        let raw = Opaque::zeroed();
        Ok(KBox::new(Self { raw, data }, GFP_KERNEL)?)
    }

    /// Fills in the fields that the core fills in for a process.
    pub(crate) fn init(&mut self, device: &Device, length: u32) {
        let raw = self.raw.get();
        // SAFETY: There is no other reference to the object yet.
        unsafe {
            (*raw).device = device.as_raw();
            (*raw).length = length;
        }
    }

    /// Gives the object to the core or to C.
    pub(crate) fn into_raw(this: KBox<Self>) -> *mut bindings::ib_dm {
        KBox::into_raw(this).cast()
    }
}

/// Device memory that the core or a C caller gives up.
///
/// # Invariants
///
/// The pointer came from [`DriverDm::into_raw`]. There is no other user of it, except for MRs.
#[repr(transparent)]
pub(crate) struct GivenUpDm<T>(NonNull<bindings::ib_dm>, PhantomData<DriverDm<T>>);

impl<T> GivenUpDm<T> {
    /// Frees the memory.
    ///
    /// # Errors
    ///
    /// `EBUSY` while an MR is registered over it. The memory is not given up then.
    pub(crate) fn free(self) -> Result {
        let raw = self.0.as_ptr();
        // SAFETY: By the type invariant; an object that MRs use is not freed below.
        if unsafe { Dm::from_raw(raw) }.users().load(ordering::Relaxed) != 0 {
            return Err(EBUSY);
        }
        // SAFETY: By the type invariant, and there are no MRs.
        drop(unsafe { KBox::from_raw(raw.cast::<DriverDm<T>>()) });
        Ok(())
    }
}
