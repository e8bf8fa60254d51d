// SPDX-License-Identifier: GPL-2.0

//! Time limits for waits that hold up other processes.
//!
//! Work requests that bind or invalidate run in the driver's workers, which all QPs of all devices
//! share. The removal of any device waits for a deregistration. Both wait for accesses for a
//! limited time.
//!
//! The number of workers that wait is limited, too. Each owner has a share: it may occupy another
//! worker if it occupies less than a quarter of the number that is left. So one owner occupies a
//! fifth of the limit at most, each share is smaller when other owners wait, and an owner that
//! needs its first worker still finds one. Kernel users have workers of their own number, because
//! many users together can occupy all others.
//!
//! The owner is the one that is charged for the region whose accesses the worker waits for. The
//! accesses keep the charge, so the device knows the owner until they have ended. An owner therefore
//! cannot lose its count and get a new share.

use crate::kernel_ext::sync::pending::Timeout;
use kernel::{
    sync::atomic::{ordering, Atomic},
    time::{msecs_to_jiffies, Msecs},
};

/// The longest wait for accesses in progress, or for another change of the same region.
const MAX_WAIT_MSECS: Msecs = 2000;

/// The most workers that may wait for users at once: an eighth of the workers that rxe has.
const MAX_WORKERS: i32 = 256;

/// The most workers that may wait for kernel users at once.
const KERNEL_WORKERS: i32 = 64;

/// An owner may occupy another worker if it occupies less than `1 / SHARE_DIVISOR` of those that
/// are left.
const SHARE_DIVISOR: i32 = 4;

/// The workers that wait now, for all users together.
static USERS: Atomic<i32> = Atomic::new(0);

/// The same for all kernel users together.
static KERNEL: Atomic<i32> = Atomic::new(0);

/// The number of workers that wait for an owner.
pub(crate) struct WaitingWorkers {
    count: Atomic<i32>,
    /// `true` for kernel users.
    in_kernel: bool,
}

impl WaitingWorkers {
    /// No worker, for kernel users or for a user.
    pub(crate) const fn new(in_kernel: bool) -> Self {
        Self {
            count: Atomic::new(0),
            in_kernel,
        }
    }

    /// Returns the number of workers that wait for all owners of this kind.
    fn all(&self) -> &'static Atomic<i32> {
        if self.in_kernel {
            &KERNEL
        } else {
            &USERS
        }
    }

    /// Returns `true` if an owner that occupies `own` of `all` workers of its kind may occupy
    /// another one.
    fn may_wait(&self, own: i32, all: i32) -> bool {
        if self.in_kernel {
            all < KERNEL_WORKERS
        } else {
            own < (MAX_WORKERS - all) / SHARE_DIVISOR
        }
    }
}

/// A worker of the driver that waits for a limited time, or not at all if its owner's share is used
/// up.
pub(crate) struct Worker<'a> {
    /// The owner that occupies the worker; [`None`] if it does not wait.
    owner: Option<&'a WaitingWorkers>,
    /// The longest time of each wait.
    pub(crate) timeout: Timeout,
}

impl<'a> Worker<'a> {
    /// Counts the current thread as one of the workers of `owner` until the result is dropped.
    pub(crate) fn of(owner: &'a WaitingWorkers) -> Self {
        let own = owner.count.fetch_add(1, ordering::Relaxed);
        let all = owner.all().fetch_add(1, ordering::Relaxed);
        let counted = Self {
            owner: Some(owner),
            timeout: Timeout::After(msecs_to_jiffies(MAX_WAIT_MSECS)),
        };
        if owner.may_wait(own, all) {
            return counted;
        }
        drop(counted);
        Self {
            owner: None,
            timeout: Timeout::After(0),
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            owner.all().fetch_sub(1, ordering::Relaxed);
            owner.count.fetch_sub(1, ordering::Relaxed);
        }
    }
}

/// Returns the longest wait of a call that other processes wait for. The caller occupies no worker.
pub(crate) fn call_timeout() -> Timeout {
    Timeout::After(msecs_to_jiffies(MAX_WAIT_MSECS))
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "worker_kunit.rs"]
mod kunit;
