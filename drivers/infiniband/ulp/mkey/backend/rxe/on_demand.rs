// SPDX-License-Identifier: GPL-2.0

//! Memory whose pages come on demand.
//!
//! Stock rxe copies such memory right only from the start of a page and within it (`rxe_odp.c`, as
//! of 7.2), so that this does not use it. A page is copied from or to while the mutex is held that
//! invalidations take, and is faulted in, without it, if it is not there.

use super::bindings::{self, rxe_mr};
use crate::{
    backend::{cut::each_block, Direction, Payload},
    layout::Row,
};
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, page::PAGE_SIZE, prelude::*};

/// A stock region of user memory whose pages come on demand.
///
/// # Invariants
///
/// The region is not freed while this exists, and has an `ib_umem_odp`.
pub(super) struct OnDemand(NonNull<rxe_mr>);

/// A page that stays until this is dropped.
///
/// # Invariants
///
/// The page is mapped, and the region's `umem_mutex` is held.
struct Locked<'a> {
    memory: &'a OnDemand,
    at: NonNull<u8>,
}

impl OnDemand {
    /// # Safety
    ///
    /// `mr` must be a region whose pages come on demand, kept as the type invariant of `Base` has
    /// it.
    pub(super) unsafe fn new(mr: NonNull<rxe_mr>) -> Self {
        // INVARIANT: By the safety requirement.
        Self(mr)
    }

    /// Locks the page of address `iova`, faulting it in.
    fn lock(&self, iova: u64, write: bool) -> Result<Locked<'_>> {
        // SAFETY: By the type invariant.
        let page = unsafe { bindings::ib_mkey_rxe_odp_lock(self.0.as_ptr(), iova, write) };
        let at = from_err_ptr(page)?;
        // INVARIANT: As just locked.
        Ok(Locked {
            memory: self,
            at: NonNull::new(at.cast()).ok_or(EFAULT)?,
        })
    }

    /// Copies between the pieces of `row` and `payload`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address that the region, or the process, does not have; those of faulting
    /// pages in.
    pub(super) fn copy(&self, row: Row, payload: &mut Payload<'_>) -> Result {
        let write = payload.direction() == Direction::ToMemory;
        each_block(row, PAGE_SIZE as u64, |row| {
            let in_page = (row.addr & (PAGE_SIZE as u64 - 1)) as usize;
            let page = self.lock(row.addr, write)?;
            // SAFETY: The page is mapped, and all pieces of the row are in it.
            unsafe { payload.copy(page.at.as_ptr().add(in_page), &row) }
        })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe {
            bindings::ib_mkey_rxe_odp_unlock(self.memory.0.as_ptr(), self.at.as_ptr().cast())
        };
    }
}
