// SPDX-License-Identifier: GPL-2.0

//! A count of what has not ended. A thread can wait until it is zero.
//!
//! `CondVar` of the `kernel` crate has no wait that only a fatal signal interrupts.
//!
//! C header: [`include/linux/wait_bit.h`](srctree/include/linux/wait_bit.h)

use crate::{bindings, kernel_ext::sched};
use kernel::{
    ffi::c_long,
    prelude::*,
    time::{msecs_to_jiffies, Instant, Jiffies, Monotonic},
    types::Opaque,
};

/// The longest time of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// No limit.
    Never,
    /// Until the current process is killed.
    WhenKilled,
    /// That many jiffies.
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

    /// Waits until `ended` returns `true`. Looks once in each jiffy, which suits a wait that is
    /// seldom needed. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed, `EBUSY` after the time of [`Timeout::After`].
    pub(crate) fn poll(&self, mut ended: impl FnMut() -> bool) -> Result {
        while !ended() {
            match self.left() {
                Timeout::Never => (),
                Timeout::WhenKilled => sched::check_killed()?,
                Timeout::After(0) => return Err(EBUSY),
                Timeout::After(_) => (),
            }
            sched::sleep_one_jiffy();
        }
        Ok(())
    }
}

/// A count of what has not ended.
pub(crate) struct Pending(Opaque<bindings::atomic_t>);

// SAFETY: The count is atomic, and the kernel's wait queues lock themselves.
unsafe impl Send for Pending {}
// SAFETY: As above.
unsafe impl Sync for Pending {}

impl Pending {
    /// Makes a count of zero.
    pub(crate) fn none() -> Self {
        Self(Opaque::new(bindings::atomic_t::default()))
    }

    /// Counts one more.
    pub(crate) fn add(&self) {
        // SAFETY: The count is initialised.
        unsafe { bindings::atomic_inc(self.0.get()) };
    }

    /// Ends one that [`Self::add`] counted. What the caller did before is done when a wait ends.
    pub(crate) fn end(&self) {
        // SAFETY: The count is initialised, and `add()` incremented it.
        unsafe { bindings::rdma_end_pending(self.0.get()) };
    }

    /// Returns `true` if the count is zero.
    pub(crate) fn is_none(&self) -> bool {
        // SAFETY: The count is initialised.
        unsafe { bindings::rdma_none_pending(self.0.get()) }
    }

    /// Waits until the count is zero, at most as long as `timeout` allows. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process was killed, `EBUSY` after the time of [`Timeout::After`].
    pub(crate) fn wait(&self, timeout: Timeout) -> Result {
        if self.is_none() {
            return Ok(());
        }
        let count = self.0.get();
        // SAFETY: The count is initialised, and `self` keeps it while this waits.
        let (none, error) = unsafe {
            match timeout {
                Timeout::Never => {
                    bindings::rdma_wait_pending(count);
                    (true, EBUSY)
                }
                Timeout::WhenKilled => (bindings::rdma_wait_pending_killable(count), EINTR),
                Timeout::After(jiffies) => {
                    let jiffies = c_long::try_from(jiffies)?;
                    (bindings::rdma_wait_pending_timeout(count, jiffies), EBUSY)
                }
            }
        };
        none.then_some(()).ok_or(error)
    }
}
