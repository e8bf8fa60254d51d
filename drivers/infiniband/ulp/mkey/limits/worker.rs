// SPDX-License-Identifier: GPL-2.0

//! What invalidations take of the driver's workers.

use crate::kernel_ext::sync::users::Patience;
use kernel::{
    sync::atomic::{ordering, Atomic},
    time::{msecs_to_jiffies, Msecs},
};

/// The longest time in which an invalidation by a work request waits for accesses in progress. It
/// keeps one of the driver's workers, which all QPs share.
const WORKER_MSECS: Msecs = 2000;

/// Workers that wait for that long at the same time, at most: one in eight of all.
const MAX_WORKERS: i32 = 256;

/// Workers that are in an invalidation.
static WORKERS: Atomic<i32> = Atomic::new(0);

/// A worker that is in an invalidation.
pub(crate) struct Worker {
    /// The longest time in which it may wait.
    pub(crate) patience: Patience,
}

impl Worker {
    /// Counts the current worker in, until the result is dropped.
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
