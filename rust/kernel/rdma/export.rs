// SPDX-License-Identifier: GPL-2.0

//! RDMA objects as arguments and results of functions that a module exports to C.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{mr::NewMr, ops::DeviceOps, Device, Dm, Mr, OwnedMr, Pd};
use crate::{
    bindings,
    kernel_ext::export_c::{FromC, FromCArray, IntoPtr},
};
use core::{marker::PhantomData, ops::Deref};
use kernel::prelude::*;

// SAFETY: The pointer is to a device that stays registered for `'a`.
unsafe impl<'a> FromC for &'a Device {
    type Raw = *mut bindings::ib_device;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { Device::from_raw(raw) }
    }
}

// SAFETY: The pointer is to a protection domain that stays for `'a`.
unsafe impl<'a> FromC for &'a Pd {
    type Raw = *mut bindings::ib_pd;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { Pd::from_raw(raw) }
    }
}

/// An MR that a C caller holds, and its protection domain.
///
/// # Invariants
///
/// The MR is neither deregistered nor moved to another protection domain for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct HeldMr<'a>(&'a Mr);

// SAFETY: The pointer is to an MR that is neither deregistered nor moved to another protection
// domain for `'a`.
unsafe impl<'a> FromC for HeldMr<'a> {
    type Raw = *mut bindings::ib_mr;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement.
        // INVARIANT: As above.
        Self(unsafe { Mr::from_raw(raw) })
    }
}

impl<'a> HeldMr<'a> {
    /// Returns the MR.
    pub(crate) fn mr(self) -> &'a Mr {
        self.0
    }

    /// Returns the MR's protection domain.
    pub(crate) fn pd(self) -> &'a Pd {
        // SAFETY: By the type invariant; a protection domain outlives its MRs.
        unsafe { Pd::from_raw(self.0.pd()) }
    }
}

/// An MR that a C caller gives up, unless the function fails.
pub(crate) struct GivenUpMr<'a>(HeldMr<'a>);

// SAFETY: As for `HeldMr`. The caller does not use the MR again after it was taken, and nothing
// else deregisters it.
unsafe impl<'a> FromC for GivenUpMr<'a> {
    type Raw = *mut bindings::ib_mr;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { HeldMr::from_c(raw) })
    }
}

impl<'a> GivenUpMr<'a> {
    /// Returns the MR, which the caller still holds.
    pub(crate) fn held(&self) -> HeldMr<'a> {
        self.0
    }

    /// Takes the MR. If the function fails nevertheless, it must return the MR by [`IntoPtr`].
    pub(crate) fn take(self) -> Result<OwnedMr> {
        // SAFETY: The caller has given it up.
        unsafe { OwnedMr::from_raw(self.0.mr().as_raw()) }.ok_or(EINVAL)
    }
}

impl IntoPtr for OwnedMr {
    type C = bindings::ib_mr;

    fn into_ptr(self) -> *mut bindings::ib_mr {
        self.into_raw()
    }
}

/// The MRs of an array of handles of processes.
#[derive(Clone, Copy)]
pub(crate) struct MrHandles<'a> {
    first: *const *mut bindings::ib_uobject,
    len: usize,
    _handles: PhantomData<&'a Mr>,
}

// SAFETY: The pointer is to `len` handles, each of an MR as for `HeldMr`. `ib_uverbs` holds them
// for a method that reads them.
unsafe impl<'a> FromCArray for MrHandles<'a> {
    type Raw = *mut *mut bindings::ib_uobject;

    unsafe fn from_c(raw: Self::Raw, len: usize) -> Self {
        Self {
            first: raw,
            len,
            _handles: PhantomData,
        }
    }
}

impl<'a> MrHandles<'a> {
    /// Returns the MRs in their order.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = HeldMr<'a>> + Clone {
        (0..self.len).map(move |index| {
            // SAFETY: There are `len` handles, each with an MR.
            unsafe { HeldMr::from_c((**self.first.add(index)).object.cast()) }
        })
    }
}

/// Device memory that a C caller holds. It belongs to a client or to the driver.
pub(crate) struct AnyDm<'a>(&'a kernel::types::Opaque<bindings::ib_dm>);

// SAFETY: The pointer is to device memory that is not freed for `'a`, of a registered device.
unsafe impl<'a> FromC for AnyDm<'a> {
    type Raw = *mut bindings::ib_dm;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement; the type is transparent.
        Self(unsafe { &*raw.cast() })
    }
}

impl<'a> AnyDm<'a> {
    /// Returns the device of the memory.
    pub(crate) fn device(&self) -> &'a Device {
        // SAFETY: The device stays registered as long as it has device memory.
        unsafe { Device::from_raw((*self.0.get()).device) }
    }

    /// Returns the memory as memory of the client whose data for the device is `data`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver itself has device memory, `EINVAL` for another device.
    pub(crate) fn of<T: DeviceOps>(&self, data: &T) -> Result<&'a Dm<T::Dm>> {
        if !core::ptr::eq(T::of(self.device())?, data) {
            return Err(EINVAL);
        }
        // SAFETY: All device memory of a device of `T` came from `DeviceOps::alloc_dm()`.
        Ok(unsafe { Dm::from_raw(self.0.get()) })
    }
}

/// Device memory of a client that a C caller holds.
pub(crate) struct HeldDm<'a, T>(&'a Dm<T>);

// SAFETY: The pointer came from `IntoPtr` of a `KBox<Dm<T>>`, and the memory is not freed for `'a`.
unsafe impl<'a, T> FromC for HeldDm<'a, T> {
    type Raw = *mut bindings::ib_dm;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { Dm::from_raw(raw) })
    }
}

impl<T> Deref for HeldDm<'_, T> {
    type Target = Dm<T>;

    fn deref(&self) -> &Dm<T> {
        self.0
    }
}

impl<T> HeldDm<'_, T> {
    /// Counts `mr` as an MR over the memory until the MR is deregistered. Until then the memory
    /// cannot be taken, see [`GivenUpDm::take`].
    pub(crate) fn attach(&self, mr: &NewMr<'_>) {
        // SAFETY: C holds the object, which came from `IntoPtr`, and `take()` refuses one in use.
        unsafe { self.0.attach(mr) };
    }
}

/// Device memory of a client that a C caller gives up, unless the function fails.
pub(crate) struct GivenUpDm<'a, T> {
    raw: *mut bindings::ib_dm,
    held: HeldDm<'a, T>,
}

// SAFETY: As for `HeldDm`. The caller does not use the memory again after it was taken.
unsafe impl<'a, T> FromC for GivenUpDm<'a, T> {
    type Raw = *mut bindings::ib_dm;

    unsafe fn from_c(raw: Self::Raw) -> Self {
        Self {
            raw,
            // SAFETY: By the safety requirement.
            held: unsafe { HeldDm::from_c(raw) },
        }
    }
}

impl<T> GivenUpDm<'_, T> {
    /// Takes the memory. The function must not fail after this.
    ///
    /// # Errors
    ///
    /// `EBUSY` while an MR is registered over it.
    pub(crate) fn take(self) -> Result<KBox<Dm<T>>> {
        if self.held.in_use() {
            return Err(EBUSY);
        }
        // SAFETY: No MR refers to it, and the caller has given it up.
        Ok(unsafe { Dm::take(self.raw) })
    }
}

impl<T> IntoPtr for KBox<Dm<T>> {
    type C = bindings::ib_dm;

    fn into_ptr(self) -> *mut bindings::ib_dm {
        Dm::into_raw(self)
    }
}
