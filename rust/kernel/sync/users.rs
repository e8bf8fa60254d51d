// SPDX-License-Identifier: GPL-2.0

//! A number of users that a thread can wait to fall to zero.
//!
//! The kernel crate's condition variable has no wait that only a fatal signal ends.
//!
//! C header: [`include/linux/wait_bit.h`](srctree/include/linux/wait_bit.h)

use crate::bindings;
use kernel::{
    ffi::c_long,
    prelude::*,
    sync::Arc,
    time::Jiffies,
    types::Opaque, //
};

/// How long a thread waits for users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until there is none.
    Endless,
    /// Until there is none, or the process that runs this was killed.
    Killable,
    /// Until there is none, or that many jiffies have passed.
    Bounded(Jiffies),
}

/// A number of users.
pub(crate) struct Users(Opaque<bindings::atomic_t>);

// SAFETY: The number is atomic, and those who wait for it are the kernel's matter.
unsafe impl Send for Users {}
// SAFETY: As above.
unsafe impl Sync for Users {}

impl Users {
    /// Makes a number of none.
    pub(crate) fn new(flags: kernel::alloc::Flags) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self(Opaque::new(bindings::atomic_t::default())),
            flags,
        )?)
    }

    /// Returns `true` if there is no user.
    pub(crate) fn is_idle(&self) -> bool {
        // SAFETY: The number is valid.
        unsafe { bindings::atomic_read(self.0.get()) == 0 }
    }

    /// Waits until there is no user, or until there is no more `patience`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed, `EBUSY` if the time has passed; users are left.
    pub(crate) fn wait(&self, patience: Patience) -> Result {
        let count = self.0.get();
        // SAFETY: The number is valid, and stays so while this waits.
        let (idle, error) = unsafe {
            match patience {
                Patience::Endless => {
                    bindings::wait_for_none(count);
                    (true, EBUSY)
                }
                Patience::Killable => (bindings::wait_for_none_killable(count), EINTR),
                Patience::Bounded(jiffies) => {
                    let jiffies = c_long::try_from(jiffies)?;
                    (bindings::wait_for_none_timeout(count, jiffies), EBUSY)
                }
            }
        };
        idle.then_some(()).ok_or(error)
    }
}

/// One user.
pub(crate) struct User(Arc<Users>);

impl User {
    /// Counts a user.
    pub(crate) fn new(users: &Arc<Users>) -> Self {
        // SAFETY: The number is valid.
        unsafe { bindings::atomic_inc(users.0.get()) };
        Self(users.clone())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: The number is valid; `new()` counted.
        unsafe { bindings::put_and_wake(self.0 .0.get()) };
    }
}
