// SPDX-License-Identifier: GPL-2.0

//! RDMA objects as arguments and results of functions that C calls.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    dm::GivenUpDm, driver::DriverMr, ops::Attrs, pd::UserContext, Device, Dm, DriverDm, Mr,
    OwnedMr, Pd,
};
use crate::{
    bindings,
    kernel_ext::export_c::{Element, FromC, IntoPtr},
};
use kernel::prelude::*;

// SAFETY: The pointer is to a device that stays registered.
unsafe impl FromC for &Device {
    type C = *mut bindings::ib_device;
}

// SAFETY: The pointer is to a protection domain that is not deallocated.
unsafe impl FromC for &Pd {
    type C = *mut bindings::ib_pd;
}

// SAFETY: The pointer is to the context of a process that has the device open.
unsafe impl FromC for &UserContext {
    type C = *mut bindings::ib_ucontext;
}

// SAFETY: The pointer is to the attributes of a method that a process calls.
unsafe impl FromC for Attrs<'_> {
    type C = *mut bindings::uverbs_attr_bundle;
}

// SAFETY: The pointer is to an MR that is not deregistered, except by the function.
unsafe impl FromC for &Mr {
    type C = *mut bindings::ib_mr;
}

// SAFETY: The pointer is to device memory that is not freed, of a registered device.
unsafe impl FromC for &Dm {
    type C = *mut bindings::ib_dm;
}

// SAFETY: The pointer came from `IntoPtr` of a `KBox<DriverDm<T>>`. The caller does not use the
// memory again, unless the function fails.
unsafe impl<T> FromC for GivenUpDm<T> {
    type C = *mut bindings::ib_dm;
}

impl<T> IntoPtr for KBox<DriverDm<T>> {
    type C = bindings::ib_dm;

    fn into_ptr(self) -> *mut bindings::ib_dm {
        DriverDm::into_raw(self)
    }
}

impl IntoPtr for DriverMr {
    type C = bindings::ib_mr;

    fn into_ptr(self) -> *mut bindings::ib_mr {
        self.into_raw()
    }
}

/// An MR that is held, and its protection domain.
///
/// # Invariants
///
/// The MR is neither deregistered nor moved to another protection domain for `'a`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct HeldMr<'a>(&'a Mr);

// SAFETY: The pointer is to an MR as the type invariant requires.
unsafe impl FromC for HeldMr<'_> {
    type C = *mut bindings::ib_mr;
}

// SAFETY: Each pointer is to an MR as the type invariant requires.
unsafe impl Element for HeldMr<'_> {
    type C = *mut bindings::ib_mr;
}

impl<'a> HeldMr<'a> {
    /// Holds an MR of this module.
    pub(crate) fn of(mr: &'a OwnedMr) -> Self {
        // INVARIANT: Only the owner can deregister the MR. `rereg_mr` is for MRs of processes.
        Self(mr)
    }

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

// SAFETY: The pointer is to an MR that the caller gives up, unless the function fails. Nothing else
// deregisters the MR.
unsafe impl FromC for OwnedMr {
    type C = *mut bindings::ib_mr;
}

impl IntoPtr for OwnedMr {
    type C = bindings::ib_mr;

    fn into_ptr(self) -> *mut bindings::ib_mr {
        self.into_raw()
    }
}
