// SPDX-License-Identifier: GPL-2.0

//! rereg_mr: new memory for an existing MR.
//!
//! rxe cannot give an MR other memory. The caller of this code registers a second MR over the
//! new memory. The two MRs then exchange their memory. The first MR keeps its keys and its `ib_mr`.
//! The second MR is deregistered, with the old memory.
//!
//! rxe takes a reference to an MR before it reads the MR's state. This file makes the state invalid
//! and waits for a grace period. Once only the owner's reference is left, no thread reads the
//! fields that are exchanged. rxe looks an MR up for each packet. The bytes of a packet are
//! therefore all in the old memory or all in the new memory. rxe refuses a packet that arrives
//! during the exchange.

use super::{
    bindings::{self, rxe_mr_state, rxe_mr_state_RXE_MR_STATE_INVALID as INVALID},
    claimed::{MrRange, RxeMr},
    SuspendedMr,
};
use crate::kernel_ext::rdma::{Access, Mr};
use core::ptr;
use kernel::{
    prelude::*,
    time::{delay::fsleep, Delta},
};

/// The longest time to wait for accesses in progress.
const TIMEOUT_MS: u32 = 3000;

/// An MR that look-ups refuse, with the state and access flags to restore.
struct HiddenMr<'a> {
    mr: &'a RxeMr,
    state: rxe_mr_state,
    access: Access,
}

impl<'a> HiddenMr<'a> {
    /// Hides an MR that was in `state`. Without access flags rxe binds no window to it either.
    fn new(mr: &'a RxeMr, state: rxe_mr_state) -> Self {
        mr.set_state(INVALID);
        let access = mr.access();
        mr.set_access(Access::empty());
        Self { mr, state, access }
    }

    /// Restores the access flags. The MR stays hidden.
    fn allow(&self) {
        self.mr.set_access(self.access);
    }

    fn show(self) {
        self.mr.set_state(self.state);
    }

    /// Returns `true` if only the owner has a reference to the MR.
    fn is_alone(&self) -> bool {
        self.mr.references() == 1
    }
}

/// Exchanges the memory of two MRs.
///
/// # Safety
///
/// Both must be MRs over user memory, and hidden. Only their owners may have references to them.
unsafe fn exchange(one: &RxeMr, two: &RxeMr) {
    let (first, second) = (one.range(), two.range());
    one.set_range(second);
    two.set_range(first);
    let (one, two) = (one.private(), two.private());
    // SAFETY: By the safety requirement no other thread reads these fields meanwhile.
    unsafe {
        ptr::swap(&raw mut (*one).umem, &raw mut (*two).umem);
        ptr::swap(&raw mut (*one).page_shift, &raw mut (*two).page_shift);
        ptr::swap(&raw mut (*one).page_mask, &raw mut (*two).page_mask);
        ptr::swap(&raw mut (*one).num_buf, &raw mut (*two).num_buf);
        let buffers = &raw mut (*two).max_allowed_buf;
        ptr::swap(&raw mut (*one).max_allowed_buf, buffers);
        ptr::swap(&raw mut (*one).nbuf, &raw mut (*two).nbuf);
        ptr::swap(&raw mut (*one).page_info, &raw mut (*two).page_info);
        let size = &raw mut (*two).ibmr.page_size;
        ptr::swap(&raw mut (*one).ibmr.page_size, size);
    }
}

/// Exchanges the memory of a suspended MR and of `spare`, a new MR without users. The MR then
/// begins at address `range.0` and has `range.1` bytes. Calls `finish` before it allows
/// accesses again. Ends the suspension. On an error nothing has changed.
///
/// # Errors
///
/// The errors of `finish`; `EBUSY` if the MR is still in use after some seconds; `EINVAL` for
/// an address that the driver cannot give to this kind of memory.
pub(crate) fn retranslate(
    mr: &Mr,
    suspended: SuspendedMr,
    spare: &Mr,
    range: (u64, u64),
    finish: impl FnOnce() -> Result,
) -> Result {
    let (one, state) = suspended.end(mr).ok_or(EINVAL)?;
    let Some(two) = RxeMr::of(spare) else {
        one.set_state(state);
        return Err(EINVAL);
    };
    // The spare MR is hidden too, because a peer can guess its key.
    let (old, new) = (HiddenMr::new(one, state), HiddenMr::new(two, two.state()));
    // SAFETY: No preconditions.
    unsafe { crate::bindings::synchronize_rcu() };
    let mut waited = 0;
    while !(old.is_alone() && new.is_alone()) && waited < TIMEOUT_MS {
        fsleep(Delta::from_millis(1));
        waited += 1;
    }
    // SAFETY: Both MRs are valid.
    let fits = unsafe {
        bindings::ib_mkey_rxe_is_user(one.private())
            && bindings::ib_mkey_rxe_fits(two.private(), range.0, range.1)
    };
    let result = if !fits {
        Err(EINVAL)
    } else if !(old.is_alone() && new.is_alone()) {
        // Accesses have references, and so has a bind of a window in progress.
        Err(EBUSY)
    } else {
        // SAFETY: Both are over user memory and hidden, and `is_alone()` was true for both.
        unsafe { exchange(one, two) };
        let (start, len) = range;
        one.set_range(MrRange { start, len });
        old.allow();
        finish().inspect_err(|_| {
            // SAFETY: As above.
            unsafe { exchange(one, two) };
        })
    };
    if result.is_err() {
        old.allow();
    }
    old.show();
    result
}
