// SPDX-License-Identifier: GPL-2.0

//! Processes, and rescheduling in long loops.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use crate::bindings;
use kernel::{
    current,
    error::{code::EINTR, Result},
    task::Pid,
};

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

/// Sleeps until the next jiffy.
pub(crate) fn sleep_one_jiffy() {
    // SAFETY: The callers may sleep.
    unsafe { bindings::schedule_timeout_uninterruptible(1) };
}

/// Reschedules if another task is due, on kernels that do not preempt. Sleeps.
pub(crate) fn cond_resched() {
    // SAFETY: The callers may sleep.
    unsafe { bindings::rdma_cond_resched() };
}

/// A process and its name when this was made. The process may have ended since.
#[derive(Clone)]
pub(crate) struct Process {
    pid: Pid,
    /// When the process was started.
    started: u64,
    comm: [u8; bindings::TASK_COMM_LEN as usize],
}

impl Process {
    /// Returns the current process.
    pub(crate) fn current() -> Self {
        let mut comm = [0; bindings::TASK_COMM_LEN as usize];
        // SAFETY: `comm` has the length of a task's name.
        let started = unsafe { bindings::group_leader(comm.as_mut_ptr().cast()) };
        Self {
            pid: current!().group_leader().pid(),
            started,
            comm,
        }
    }

    /// Returns `true` if this is `other`. A later process with the same number is another one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    /// Returns the process ID in the initial PID namespace.
    pub(crate) fn number(&self) -> Pid {
        self.pid
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        self.comm.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}
