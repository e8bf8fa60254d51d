// SPDX-License-Identifier: GPL-2.0

//! Processes, as makers of objects.
//!
//! C header: [`include/linux/pid.h`](srctree/include/linux/pid.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A process, and its name when this was made. The process may have ended since.
///
/// # Invariants
///
/// `pid` is the PID of a thread group. A reference to it is held, so no other process has the same
/// pointer, even if its number is used again.
pub(crate) struct Process {
    pid: NonNull<bindings::pid>,
    comm: [u8; bindings::TASK_COMM_LEN as usize],
}

// SAFETY: Any thread may use a `struct pid`.
unsafe impl Send for Process {}
// SAFETY: As above.
unsafe impl Sync for Process {}

impl Process {
    /// Returns the current process.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the current thread has no thread group.
    pub(crate) fn current() -> Result<Self> {
        let mut comm = [0; bindings::TASK_COMM_LEN as usize];
        // SAFETY: `comm` has the length of a task's name.
        let pid = unsafe {
            bindings::group_leader_comm(comm.as_mut_ptr().cast());
            bindings::get_current_tgid()
        };
        // INVARIANT: The reference was taken above.
        Ok(Self {
            pid: NonNull::new(pid).ok_or(ESRCH)?,
            comm,
        })
    }

    /// Returns the process ID in the initial PID namespace.
    pub(crate) fn number(&self) -> i32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::pid_nr(self.pid.as_ptr()) }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        self.comm.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}

impl Clone for Process {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::get_pid(self.pid.as_ptr()) };
        // INVARIANT: The reference was taken above.
        Self {
            pid: self.pid,
            comm: self.comm,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_pid(self.pid.as_ptr()) };
    }
}
