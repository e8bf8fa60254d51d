// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Registered memory for descriptions that do not fit into a request.
//!
//! The device reads such a description when it executes the request. Until then the memory must not
//! change. The library is not told when the device executes a request. But a send queue holds a
//! fixed number of requests, and they leave it in order. So once that many requests were posted
//! after a request, it has been executed.
//!
//! The memory belongs to the mkey, because this library destroys mkeys and can then free the
//! memory. The library does not learn when a QP is destroyed.

use ibmkey::{
    sys::{
        ibv_dereg_mr,
        ibv_mr,
        ibv_pd,
        ibv_reg_mr,
        IBV_ACCESS_LOCAL_WRITE, //
    },
    Errno,
    Result, //
};

use crate::qp;

/// The number of requests with a description in registered memory that a QP has posted.
pub(crate) struct Progress {
    /// The number of the QP in this library. No two QPs ever have the same number.
    pub(crate) qp: u64,
    /// The number of requests that a send queue holds.
    pub(crate) capacity: u64,
    /// The number of such requests that were posted.
    pub(crate) posted: u64,
    /// The number of such requests that were added since `wr_start` and are not posted yet.
    pub(crate) added: u64,
    /// The number of calls of `wr_start`.
    pub(crate) batch: u64,
}

/// A request that reads, or has read, a slot.
struct Reader {
    qp: u64,
    /// The number of requests of the QP before this one, as `Progress` counts them.
    before: u64,
    batch: u64,
}

impl Reader {
    /// Returns `true` if the request was executed or was never posted. `progress` is that of the QP
    /// that needs a slot.
    fn is_done(&self, progress: &Progress) -> bool {
        if self.qp != progress.qp {
            return !qp::exists(self.qp);
        }
        match progress.posted.checked_sub(self.before) {
            None | Some(0) => self.batch != progress.batch,
            Some(posted) => posted > progress.capacity,
        }
    }
}

/// Memory for one description.
struct Slot {
    mr: *mut ibv_mr,
    memory: Vec<u8>,
    reader: Reader,
}

/// The registered memory of an mkey.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Slot>,
}

// SAFETY: libibverbs's functions for MRs may be called by any thread.
unsafe impl Send for Slot {}

impl Staging {
    /// Copies the description for the next request of a QP into a free slot, or into a new one.
    /// Returns the MR and the address.
    ///
    /// # Safety
    ///
    /// `pd` is the protection domain of the mkey.
    pub(crate) unsafe fn place(
        &mut self,
        pd: *mut ibv_pd,
        text: &[u8],
        progress: &mut Progress,
    ) -> Result<(*mut ibv_mr, u64)> {
        let reader = Reader {
            qp: progress.qp,
            before: progress.posted.wrapping_add(progress.added),
            batch: progress.batch,
        };
        let free = self
            .slots
            .iter_mut()
            .find(|slot| slot.memory.len() >= text.len() && slot.reader.is_done(progress));
        let slot = match free {
            Some(slot) => {
                slot.reader = reader;
                slot
            }
            // SAFETY: By the caller's promise.
            None => unsafe { self.add(pd, text.len(), reader) }?,
        };

        if let Some(to) = slot.memory.get_mut(..text.len()) {
            to.copy_from_slice(text);
        }
        progress.added = progress.added.wrapping_add(1);
        Ok((slot.mr, slot.memory.as_ptr().expose_provenance() as u64))
    }

    /// Adds a slot.
    ///
    /// # Safety
    ///
    /// `pd` is a protection domain.
    unsafe fn add(&mut self, pd: *mut ibv_pd, length: usize, reader: Reader) -> Result<&mut Slot> {
        let length = length.checked_next_power_of_two().ok_or(Errno::ENOMEM)?;
        let mut memory = Vec::new();

        memory
            .try_reserve_exact(length)
            .map_err(|_| Errno::ENOMEM)?;
        memory.resize(length, 0u8);
        self.slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // CAST: The value is a single flag.
        let access = IBV_ACCESS_LOCAL_WRITE as i32;
        // SAFETY: By the caller's promise. The slot owns the memory, and deregisters the MR before
        // it frees the memory.
        let mr = unsafe { ibv_reg_mr(pd, memory.as_mut_ptr().cast(), length, access) };
        if mr.is_null() {
            return Err(Errno::last());
        }
        self.slots.push(Slot { mr, memory, reader });
        self.slots.last_mut().ok_or(Errno::ENOMEM)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Ignore an error: the kernel then keeps the pages until the context is closed.
        // SAFETY: The slot is the only owner of the MR. By the contract of `mlx5dv_destroy_mkey()`,
        // no request reads the memory any more.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(posted: u64, batch: u64) -> Progress {
        Progress {
            qp: 7,
            capacity: 3,
            posted,
            added: 0,
            batch,
        }
    }

    const THIS: Reader = Reader {
        qp: 7,
        before: 10,
        batch: 4,
    };

    #[test]
    fn a_request_that_is_not_posted_yet_keeps_its_slot_for_this_batch_only() {
        assert!(!THIS.is_done(&progress(10, 4)));
        assert!(!THIS.is_done(&progress(9, 4)));
        assert!(THIS.is_done(&progress(10, 5)));
    }

    #[test]
    fn a_posted_request_is_done_when_a_whole_queue_was_posted_after_it() {
        for posted in 11..=13 {
            assert!(!THIS.is_done(&progress(posted, 9)), "{posted}");
        }
        assert!(THIS.is_done(&progress(14, 9)));
    }

    #[test]
    fn a_qp_that_is_gone_reads_nothing() {
        let other = Progress {
            qp: 8,
            ..progress(10, 4)
        };
        assert!(THIS.is_done(&other));
    }
}
