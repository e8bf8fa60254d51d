// SPDX-License-Identifier: GPL-2.0

//! A count of users. A thread can wait until it is zero.
//!
//! `CondVar` of the `kernel` crate has no wait that only a fatal signal interrupts.
//!
//! C header: [`include/linux/wait_bit.h`](srctree/include/linux/wait_bit.h)

use crate::bindings;
use kernel::{
    ffi::c_long,
    prelude::*,
    sync::Arc,
    time::{msecs_to_jiffies, Instant, Jiffies, Monotonic},
    types::Opaque, //
};

/// The longest time for which a thread waits for users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Until there are no users.
    Never,
    /// Until there are no users, or the current process is killed.
    WhenKilled,
    /// Until there are no users, or that many jiffies have passed.
    After(Jiffies),
}

/// A time limit for several waits together.
pub(crate) struct Deadline {
    timeout: Timeout,
    start: Instant<Monotonic>,
}

impl Deadline {
    /// Starts the time of the first wait.
    pub(crate) fn new(timeout: Timeout) -> Self {
        Self {
            timeout,
            start: Instant::now(),
        }
    }

    /// Returns the timeout for the next wait.
    pub(crate) fn left(&self) -> Timeout {
        let Timeout::After(all) = self.timeout else {
            return self.timeout;
        };
        let msecs = u32::try_from(self.start.elapsed().as_millis()).unwrap_or(u32::MAX);
        Timeout::After(all.saturating_sub(msecs_to_jiffies(msecs)))
    }
}

/// A count of users.
pub(crate) struct Users(Opaque<bindings::atomic_t>);

// SAFETY: The count is atomic, and the kernel's wait queues lock themselves.
unsafe impl Send for Users {}
// SAFETY: As above.
unsafe impl Sync for Users {}

impl Users {
    /// Makes a count of zero.
    pub(crate) fn new(flags: kernel::alloc::Flags) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self(Opaque::new(bindings::atomic_t::default())),
            flags,
        )?)
    }

    /// Returns `true` if there are no users.
    pub(crate) fn is_idle(&self) -> bool {
        // SAFETY: The count is initialised, and a reference keeps it.
        unsafe { bindings::atomic_read(self.0.get()) == 0 }
    }

    /// Waits until there are no users, at most as long as `timeout` allows. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed, `EBUSY` after the time of [`Timeout::After`]. There
    /// are users left then.
    pub(crate) fn wait(&self, timeout: Timeout) -> Result {
        let count = self.0.get();
        // SAFETY: The count is initialised, and `self` keeps it while this waits.
        let (idle, error) = unsafe {
            match timeout {
                Timeout::Never => {
                    bindings::wait_for_none(count);
                    (true, EBUSY)
                }
                Timeout::WhenKilled => (bindings::wait_for_none_killable(count), EINTR),
                Timeout::After(jiffies) => {
                    let jiffies = c_long::try_from(jiffies)?;
                    (bindings::wait_for_none_timeout(count, jiffies), EBUSY)
                }
            }
        };
        idle.then_some(()).ok_or(error)
    }
}

impl Users {
    /// Waits as [`Self::wait`] does, and sleeps only if there are users.
    ///
    /// # Errors
    ///
    /// Those of [`Self::wait`].
    pub(crate) fn wait_if_used(&self, timeout: Timeout) -> Result {
        if self.is_unused() {
            return Ok(());
        }
        self.wait(timeout)
    }

    /// Returns `true` if there are no users. The caller may then free what they used.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        // SAFETY: The count is initialised, and a reference keeps it.
        unsafe { bindings::rdma_no_users(self.0.get()) }
    }

    /// Counts a user. This is a full barrier.
    #[inline]
    pub(crate) fn enter(&self) {
        // SAFETY: The count is initialised, and a reference keeps it.
        unsafe { bindings::rdma_count_user(self.0.get()) };
    }

    /// Ends a user that [`Self::enter`] counted. If it was the last user, calls `is_awaited`, and
    /// wakes the threads that wait if that returns `true`. Ending is a full barrier.
    #[inline]
    pub(crate) fn leave(&self, is_awaited: impl FnOnce() -> bool) {
        // SAFETY: The count is initialised, and a reference keeps it.
        if unsafe { bindings::rdma_uncount_user(self.0.get()) } && is_awaited() {
            // SAFETY: As above.
            unsafe { bindings::rdma_wake_waiting(self.0.get()) };
        }
    }
}

/// One user.
pub(crate) struct User(Arc<Users>);

impl User {
    /// Counts a user.
    pub(crate) fn new(users: &Arc<Users>) -> Self {
        // SAFETY: The count is initialised, and a reference keeps it.
        unsafe { bindings::atomic_inc(users.0.get()) };
        Self(users.clone())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: The count is initialised, and `new()` incremented it.
        unsafe { bindings::put_and_wake(self.0 .0.get()) };
    }
}
