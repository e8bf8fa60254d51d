// SPDX-License-Identifier: GPL-2.0

//! One of rxe's MRs as the memory of a leaf: its rights and its atomics.

use super::{
    bindings::{
        self, resp_states_RESPST_ERR_RKEY_VIOLATION, rxe_mr,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    claimed::RxeMr,
    pages::{Kind, Pages},
};
use crate::{
    backend::interface::BaseMr,
    bindings::ib_mr_type_IB_MR_TYPE_DMA,
    kernel_ext::{
        rdma::{mr::Right, Mr},
        sched,
    },
};
use core::ptr::NonNull;
use kernel::{error::to_result, ffi::c_int, page::PAGE_SHIFT, prelude::*};

/// One of rxe's MRs: pinned pages, ODP pages, pages of a fast registration, or all memory.
///
/// # Invariants
///
/// A reference to the MR is held, so it is not freed. A pin of the MR, or the device memory behind
/// it, keeps the MR from being deregistered, because rxe's wait for references has a time limit, and
/// from being mapped to other pages. `kind` is the kind of its memory.
pub(crate) struct Base {
    mr: NonNull<rxe_mr>,
    kind: Kind,
}

/// The most bytes of one flush by rxe, which does not reschedule.
const MAX_FLUSHED: u64 = 1 << 24;

impl Clone for Base {
    /// Takes a further reference, for a leaf that keeps the MR.
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_ref_mr(self.mr.as_ptr()) };
        // INVARIANT: The reference was taken above.
        Self {
            mr: self.mr,
            kind: self.kind,
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_put_mr(self.mr.as_ptr()) };
    }
}

// SAFETY: Any thread may do the operations on the MR.
unsafe impl Send for Base {}
// SAFETY: Any thread may do the operations on the MR, and several at a time.
unsafe impl Sync for Base {}

impl Base {
    /// Takes a reference to an MR.
    ///
    /// # Safety
    ///
    /// `mr` must be an MR of user memory, of a fast registration or of all memory, to which the
    /// caller has a reference. While the result exists, the MR must not be deregistered or mapped
    /// to other pages.
    pub(super) unsafe fn new(mr: &RxeMr) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { bindings::ib_mkey_rxe_ref_mr(mr.private()) };
        // SAFETY: By the safety requirement. The reference was taken above.
        unsafe { Self::with_reference(NonNull::from(mr).cast()) }
    }

    /// Takes the caller's reference to an MR over.
    ///
    /// # Safety
    ///
    /// The errors of [`Self::new`]. The caller must not drop its reference later.
    pub(super) unsafe fn with_reference(mr: NonNull<rxe_mr>) -> Self {
        let raw = mr.as_ptr();
        // SAFETY: By the safety requirement.
        let kind = unsafe {
            if (*raw).ibmr.type_ == ib_mr_type_IB_MR_TYPE_DMA {
                Kind::All
            } else if bindings::ib_mkey_rxe_is_odp(raw) {
                Kind::OnDemand
            } else if (*raw).page_shift < PAGE_SHIFT as u32 {
                Kind::Parts
            } else {
                Kind::List
            }
        };
        // INVARIANT: By the safety requirement; the type stays, and so do the pages.
        Self { mr, kind }
    }

    /// Lets copies expect errors of persistent memory, of which the MR's pages are.
    pub(super) fn into_persistent(mut self) -> Self {
        if self.kind == Kind::List {
            self.kind = Kind::Persistent;
        }
        self
    }

    /// The state that rxe's responder gets for an access that is not allowed.
    pub(crate) const DENIED: c_int = resp_states_RESPST_ERR_RKEY_VIOLATION as c_int;
}

impl BaseMr for Base {
    type Pages<'a> = Pages<'a>;

    fn mr(&self) -> *const Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(&raw mut (*self.mr.as_ptr()).ibmr) }
    }

    #[inline]
    fn is_on_demand(&self) -> bool {
        self.kind == Kind::OnDemand
    }

    #[inline]
    fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result {
        // rereg and fast registration can change all of the fields. A later change counts as a
        // change after the access. SAFETY: By the type invariant.
        let mr = unsafe { RxeMr::from_raw(self.mr.as_ptr()) };
        let allowed = mr.state() == VALID
            && mr.pd() as usize == pd
            && mr.own_lkey() == lkey
            && mr.iova() == start
            && (!write || mr.access().contains(Right::LocalWrite));
        if allowed {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    #[inline]
    fn pages(&self) -> Pages<'_> {
        // SAFETY: By the type invariants.
        unsafe { Pages::new(self.mr, self.kind) }
    }

    fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> c_int {
        // rxe's own lock serialises atomic operations.
        // SAFETY: By the type invariant; rxe checks range and alignment.
        unsafe {
            bindings::ib_mkey_rxe_leaf_atomic_op(
                self.mr.as_ptr(),
                iova,
                opcode,
                compare,
                swap_add,
                original,
            )
        }
    }

    fn atomic_write(&self, iova: u64, value: u64) -> c_int {
        // SAFETY: By the type invariant; rxe checks range and alignment.
        unsafe { bindings::ib_mkey_rxe_leaf_atomic_write(self.mr.as_ptr(), iova, value) }
    }

    fn flush(&self, mut iova: u64, mut len: u64) -> Result {
        while len > 0 {
            let bytes = len.min(MAX_FLUSHED);
            // SAFETY: By the type invariant; rxe checks the range.
            to_result(unsafe { bindings::ib_mkey_rxe_leaf_flush(self.mr.as_ptr(), iova, bytes) })?;
            iova = iova.wrapping_add(bytes);
            len -= bytes;
            sched::cond_resched();
        }
        Ok(())
    }
}
