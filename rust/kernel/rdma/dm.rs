// SPDX-License-Identifier: GPL-2.0

//! Device memory objects.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{mr::NewMr, Device};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
    types::Opaque,
};

/// An `ib_dm` with the driver's own data.
#[repr(C)]
pub(crate) struct Dm<T> {
    raw: Opaque<bindings::ib_dm>,
    pub(crate) data: T,
}

impl<T> Dm<T> {
    /// Makes an object whose `ib_dm` is zero, for the core to fill in.
    pub(crate) fn new(data: T) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                raw: Opaque::zeroed(),
                data,
            },
            GFP_KERNEL,
        )?)
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

    /// Returns `true` if the memory is of `device`.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        // SAFETY: The field is written only when the object is made.
        unsafe { (*self.raw.get()).device == device.as_raw() }
    }

    fn users(&self) -> &Atomic<i32> {
        // SAFETY: The field is an `atomic_t`, and all accesses to it are atomic.
        unsafe { Atomic::from_ptr(&raw mut (*self.raw.get()).usecnt.counter) }
    }

    /// Returns `true` if an MR is registered over the object.
    pub(crate) fn in_use(&self) -> bool {
        self.users().load(ordering::Relaxed) != 0
    }

    /// Counts `mr`, a new MR, as one over the object, until `ib_dereg_mr()` has deregistered the
    /// MR.
    ///
    /// # Safety
    ///
    /// The object must have been given away by [`Self::into_raw`], and must not be taken back while
    /// it is [`Self::in_use`].
    pub(super) unsafe fn attach(&self, mr: &NewMr<'_>) {
        self.users().add(1, ordering::Relaxed);
        // SAFETY: The MR is new, so only its maker uses it. The core decrements the count when it
        // deregisters the MR, and the object exists until then.
        unsafe { (*mr.as_raw()).dm = self.raw.get() };
    }

    /// Gives the object to the core.
    pub(crate) fn into_raw(this: KBox<Self>) -> *mut bindings::ib_dm {
        KBox::into_raw(this).cast()
    }

    /// # Safety
    ///
    /// `raw` must have come from [`Self::into_raw`] and must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_dm) -> &'a Self {
        // SAFETY: By the safety requirement; `raw` is the first field of a `repr(C)` structure.
        unsafe { &*raw.cast::<Self>() }
    }

    /// # Safety
    ///
    /// `raw` must have come from [`Self::into_raw`]. There must be no other user of it.
    pub(crate) unsafe fn take(raw: *mut bindings::ib_dm) -> KBox<Self> {
        // SAFETY: By the safety requirement.
        unsafe { KBox::from_raw(raw.cast::<Self>()) }
    }
}
