// SPDX-License-Identifier: GPL-2.0

//! Waits of threads that others depend on.
//!
//! Work requests that bind or invalidate run in the driver's workers, which all QPs share. The removal
//! of any device waits for a deregistration. Such threads wait for accesses for a limited time.

use crate::kernel_ext::sync::users::Patience;
use kernel::{
    sync::atomic::{ordering, Atomic},
    time::{msecs_to_jiffies, Msecs},
};

/// The longest time for which such a thread waits for accesses in progress, or for another change of
/// the same region.
const WORKER_MSECS: Msecs = 2000;

/// The most threads that may wait for that time at once: an eighth of the driver's workers.
const MAX_WORKERS: i32 = 256;

/// The number of threads that may wait.
static WORKERS: Atomic<i32> = Atomic::new(0);

/// A thread that waits for a limited time.
pub(crate) struct Worker {
    /// The longest time of each wait.
    pub(crate) patience: Patience,
}

impl Worker {
    /// Counts the current thread until the result is dropped.
    pub(crate) fn new() -> Self {
        let others = WORKERS.fetch_add(1, ordering::Relaxed);
        let msecs = if others < MAX_WORKERS {
            WORKER_MSECS
        } else {
            0
        };
        Self {
            patience: Patience::Bounded(msecs_to_jiffies(msecs)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, ordering::Relaxed);
    }
}
