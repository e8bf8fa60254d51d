// SPDX-License-Identifier: GPL-2.0

//! Users, as owners of memory that was allocated for them.
//!
//! C header: [`include/linux/cred.h`](srctree/include/linux/cred.h)

use crate::{bindings, kernel_ext::rdma::Pd};

/// The user who opened a device.
///
/// The users of a user namespace are one user here, because a user can have many of their IDs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User(u32);

impl User {
    /// Returns the user whom a number stands for in the initial user namespace.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the user who opened the device that `context` belongs to.
    ///
    /// # Safety
    ///
    /// `context` must be valid during this call.
    pub(crate) unsafe fn of_context(context: *mut bindings::ib_ucontext) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { bindings::ib_ucontext_user(context) })
    }

    /// Returns the user who opened the device for which `pd` was made, or [`None`] if it belongs to
    /// a kernel user.
    pub(crate) fn of(pd: &Pd) -> Option<Self> {
        if pd.is_kernels() {
            return None;
        }
        // SAFETY: The fields are set when the domain is made, and the context outlives the domain.
        Some(unsafe { Self::of_context((*(*pd.as_raw()).uobject).context) })
    }

    /// Returns the number of the user in the initial user namespace.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}
