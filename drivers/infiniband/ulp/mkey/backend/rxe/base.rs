// SPDX-License-Identifier: GPL-2.0

//! One of rxe's MRs as the memory of a leaf: its rights and its atomics.

use super::{
    bindings::{
        self, resp_states, resp_states_RESPST_ERR_MISALIGNED_ATOMIC as MISALIGNED,
        resp_states_RESPST_ERR_RKEY_VIOLATION as RKEY_VIOLATION, resp_states_RESPST_NONE as DONE,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID, rxe_odp_stats as OdpStats,
    },
    claimed::RxeMr,
    pages::{copy_segment, Kind},
};
use crate::{
    backend::copy::Payload,
    bindings::ib_mr_type_IB_MR_TYPE_DMA as TYPE_DMA,
    errors::Refused,
    kernel_ext::{rdma::mr::Right, sched},
    layout::Segment,
};
use kernel::{error::to_result, ffi::c_int, page::PAGE_SHIFT, prelude::*, sync::aref::ARef};

/// One of rxe's MRs: pinned pages, ODP pages, pages of a fast registration, or all memory.
///
/// # Invariants
///
/// A reference to the MR is held, so it is not freed. A pin of the MR, or the device memory behind
/// it, keeps the MR from being deregistered, because rxe's wait for references has a time limit, and
/// from being mapped to other pages. `kind` is the kind of its memory.
#[derive(Clone)]
pub(crate) struct BaseMr {
    mr: ARef<RxeMr>,
    kind: Kind,
}

/// The most bytes of one flush by rxe, which does not reschedule.
const MAX_FLUSHED: u64 = 1 << 24;

impl BaseMr {
    /// Returns an MR as the memory of a leaf.
    ///
    /// # Safety
    ///
    /// `mr` must be an MR of user memory, of a fast registration or of all memory. While the result
    /// exists, the MR must not be deregistered or mapped to other pages.
    pub(super) unsafe fn new(mr: ARef<RxeMr>) -> Self {
        let kind = if mr.kind() == TYPE_DMA {
            Kind::All
        // SAFETY: The MR is valid.
        } else if unsafe { bindings::ib_mkey_rxe_is_odp(mr.private()) } {
            Kind::OnDemand
        } else if mr.page_shift() < PAGE_SHIFT as u32 {
            Kind::Parts
        } else {
            Kind::List
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
}

/// Returns the result for a state of rxe's responder, to which an atomic operation on a leaf leads.
fn result_of(state: c_int) -> Result {
    match state as u32 {
        DONE => Ok(()),
        MISALIGNED => Err(Refused::ACCESS_ALIGN.into()),
        _ => Err(Refused::ACCESS_MEMORY.into()),
    }
}

/// Returns the state of rxe's responder for the result of an atomic operation.
pub(super) fn state_of(result: Result) -> resp_states {
    match result {
        Ok(()) => DONE,
        Err(error) if Refused::of_access(error) == Refused::ACCESS_ALIGN => MISALIGNED,
        Err(_) => RKEY_VIOLATION,
    }
}

impl BaseMr {
    /// Returns `true` for an ODP MR.
    #[inline]
    pub(crate) fn is_on_demand(&self) -> bool {
        self.kind == Kind::OnDemand
    }

    /// Checks that the MR is still in the protection domain `pd`, has the lkey `lkey` and begins at
    /// address `start`. rereg_mr and fast registration can change these after a bind.
    ///
    /// # Errors
    ///
    /// `EACCES` if one of these has changed, or if a `write` is not allowed.
    #[inline]
    pub(crate) fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result {
        // rereg and fast registration can change all of the fields. A later change counts as a
        // change after the access.
        let mr = &self.mr;
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

    /// Copies between the pieces of `segment` and `payload`. `delta` is added to their addresses; the
    /// sums are addresses of the MR.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for a page that cannot be faulted in; `EIO` for
    /// persistent memory that cannot be read.
    #[inline(always)]
    pub(crate) fn copy(
        &self,
        segment: Segment<'_, '_>,
        delta: u64,
        payload: &Payload<'_>,
    ) -> Result {
        // SAFETY: By the type invariants.
        unsafe { copy_segment((&self.mr, self.kind), segment, delta, payload) }
    }

    /// Performs an atomic operation by the driver's code, which serialises all atomic operations on
    /// the memory.
    ///
    /// # Errors
    ///
    /// `ACCESS_ALIGN` for memory that is not aligned to eight bytes; `ACCESS_MEMORY`.
    pub(crate) fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> Result {
        // rxe's own lock serialises atomic operations.
        // SAFETY: By the type invariant; rxe checks range and alignment.
        result_of(unsafe {
            bindings::ib_mkey_rxe_leaf_atomic_op(
                self.mr.private(),
                iova,
                opcode,
                compare,
                swap_add,
                original,
            )
        })
    }

    /// Writes eight bytes in one atomic write. Fails as [`Self::atomic_op`] does.
    pub(crate) fn atomic_write(&self, iova: u64, value: u64) -> Result {
        // SAFETY: By the type invariant; rxe checks range and alignment.
        result_of(unsafe {
            bindings::ib_mkey_rxe_leaf_atomic_write(self.mr.private(), iova, value)
        })
    }

    /// Prefetches the pages of `len` bytes from address `iova` on, by the `advice` of
    /// `ibv_advise_mr()`. Does nothing if the MR is not on demand. Unless `wait`, does not wait for
    /// pages, and keeps only the MR until they are there.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR; with `wait`, the errors of faulting pages in.
    pub(crate) fn prefetch(&self, iova: u64, len: u64, advice: u32, wait: bool) -> Result {
        // SAFETY: By the type invariant; rxe checks the range.
        to_result(unsafe {
            bindings::ib_mkey_rxe_leaf_prefetch(self.mr.private(), iova, len, advice, wait)
        })
    }

    /// Adds the numbers of the MR to `sum`. Returns `false` if the MR is not on demand.
    pub(crate) fn add_odp_stats(&self, sum: &mut OdpStats) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_leaf_odp_stats(self.mr.private(), sum) }
    }

    /// Makes `len` bytes from address `iova` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of the driver.
    pub(crate) fn flush(&self, mut iova: u64, mut len: u64) -> Result {
        while len > 0 {
            let bytes = len.min(MAX_FLUSHED);
            // SAFETY: By the type invariant; rxe checks the range.
            to_result(unsafe { bindings::ib_mkey_rxe_leaf_flush(self.mr.private(), iova, bytes) })?;
            iova = iova.wrapping_add(bytes);
            len -= bytes;
            sched::cond_resched();
        }
        Ok(())
    }
}
