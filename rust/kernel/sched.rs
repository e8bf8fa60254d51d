// SPDX-License-Identifier: GPL-2.0

//! Rescheduling in long loops.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use crate::bindings;
use kernel::error::{code::EINTR, Result};

/// Reschedules, and checks whether the current process has been killed.
///
/// # Errors
///
/// `EINTR` if the process has been killed.
pub(crate) fn check_killed() -> Result {
    cond_resched();
    // SAFETY: No preconditions.
    if unsafe { bindings::current_is_killed() } {
        return Err(EINTR);
    }
    Ok(())
}

/// Reschedules if another task is due, on kernels that do not preempt. Sleeps.
pub(crate) fn cond_resched() {
    // SAFETY: The callers may sleep.
    unsafe { bindings::rdma_cond_resched() };
}
