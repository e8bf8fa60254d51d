// SPDX-License-Identifier: GPL-2.0

//! QPs, and the address handles of their requests.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::bindings;
use kernel::types::Opaque;

/// A QP.
#[repr(transparent)]
pub(crate) struct Qp(Opaque<bindings::ib_qp>);

impl Qp {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_qp) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.0.get()
    }

    /// Returns the QP's device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A QP's device is set before the driver creates it and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }
}

/// An address handle.
#[repr(transparent)]
pub(crate) struct Ah(Opaque<bindings::ib_ah>);

impl Ah {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_ah) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_ah {
        self.0.get()
    }

    /// Returns the handle's device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A handle's device is set before the driver creates it and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Returns `true` if the handle belongs to a process.
    pub(crate) fn is_users(&self) -> bool {
        // SAFETY: The field is set when the handle is made.
        unsafe { !(*self.as_raw()).uobject.is_null() }
    }
}
