// SPDX-License-Identifier: GPL-2.0

//! Users, as owners of memory that was allocated for them.
//!
//! C header: [`include/linux/cred.h`](srctree/include/linux/cred.h)

use crate::bindings;

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

    /// Returns the user whom credentials are of.
    ///
    /// # Safety
    ///
    /// `cred` must be valid during this call.
    pub(crate) unsafe fn of_cred(cred: *const bindings::cred) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { bindings::cred_user(cred) })
    }

    /// Returns the number of the user in the initial user namespace.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}
