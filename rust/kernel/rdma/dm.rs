// SPDX-License-Identifier: GPL-2.0

//! Device memory objects.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{Device, OwnedMr};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
    types::Opaque,
};

/// An `ib_dm` and what the driver keeps with it.
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

    /// Fills in what the core fills in for memory of a program's.
    pub(crate) fn init(&mut self, device: &Device, length: u32) {
        let raw = self.raw.get();
        // SAFETY: Nobody else has the object yet.
        unsafe {
            (*raw).device = device.as_raw();
            (*raw).length = length;
        }
    }

    /// Is it memory of `device`?
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        // SAFETY: The field is written when the object is made.
        unsafe { (*self.raw.get()).device == device.as_raw() }
    }

    fn users(&self) -> &Atomic<i32> {
        // SAFETY: The field is an `atomic_t` that is only used as such.
        unsafe { Atomic::from_ptr(&raw mut (*self.raw.get()).usecnt.counter) }
    }

    /// Is a region registered over it?
    pub(crate) fn in_use(&self) -> bool {
        self.users().load(ordering::Relaxed) != 0
    }

    /// Makes `mr` count as a region over it, until `ib_dereg_mr()` has deregistered it.
    ///
    /// # Safety
    ///
    /// The object must have been given away by [`Self::into_raw`], and must not be taken back while
    /// it is [`Self::in_use`]. Nothing else may use `mr` during the call.
    pub(crate) unsafe fn attach(&self, mr: &OwnedMr) {
        self.users().add(1, ordering::Relaxed);
        // SAFETY: The region is used here alone, by the safety requirement. The core lowers the
        // count when it deregisters the region, and the object is there until then.
        unsafe {
            (*mr.as_raw()).dm = self.raw.get();
            (*mr.as_raw()).type_ = bindings::ib_mr_type_IB_MR_TYPE_DM;
        }
    }

    /// Gives it to the core.
    pub(crate) fn into_raw(this: KBox<Self>) -> *mut bindings::ib_dm {
        KBox::into_raw(this).cast()
    }

    /// # Safety
    ///
    /// `raw` came from [`Self::into_raw`] and is valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_dm) -> &'a Self {
        // SAFETY: By the safety requirement; `raw` is the first field of a `repr(C)` structure.
        unsafe { &*raw.cast::<Self>() }
    }

    /// # Safety
    ///
    /// `raw` came from [`Self::into_raw`] and nobody else uses it any more.
    pub(crate) unsafe fn take(raw: *mut bindings::ib_dm) -> KBox<Self> {
        // SAFETY: By the safety requirement.
        unsafe { KBox::from_raw(raw.cast::<Self>()) }
    }
}
