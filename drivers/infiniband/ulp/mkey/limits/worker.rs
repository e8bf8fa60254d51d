// SPDX-License-Identifier: GPL-2.0

//! The driver's workers that invalidations occupy.

use crate::kernel_ext::sync::users::Patience;
use kernel::{
    sync::atomic::{ordering, Atomic},
    time::{msecs_to_jiffies, Msecs},
};

/// The longest time for which an invalidation by a work request waits for accesses in progress.
/// Meanwhile it occupies one of the driver's workers, which all QPs share.
const WORKER_MSECS: Msecs = 2000;

/// The most workers that may wait for that time at once: an eighth of all.
const MAX_WORKERS: i32 = 256;

/// The number of workers that run an invalidation.
static WORKERS: Atomic<i32> = Atomic::new(0);

/// A worker that runs an invalidation.
pub(crate) struct Worker {
    /// The longest time for which it may wait.
    pub(crate) patience: Patience,
}

impl Worker {
    /// Counts the current worker until the result is dropped.
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
