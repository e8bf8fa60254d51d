// SPDX-License-Identifier: GPL-2.0

//! ODP MRs.
//!
//! A row has many pieces, which the evaluator copies itself. So this file copies from or to a page
//! under the mutex that invalidations take, and faults an absent page in without that mutex.

use super::bindings::{self, rxe_mr};
use crate::{
    backend::{cut::Cut, Direction, Payload},
    layout::Row,
};
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, page::PAGE_SIZE, prelude::*};

/// The number of bytes of a page.
const PAGE: u64 = PAGE_SIZE as u64;

/// One of rxe's ODP MRs.
///
/// # Invariants
///
/// The MR is not freed while this exists, and has an `ib_umem_odp`.
pub(super) struct OnDemand(NonNull<rxe_mr>);

/// A page that is not invalidated until this is dropped.
///
/// # Invariants
///
/// The page is mapped, and the MR's `umem_mutex` is held.
struct Locked<'a> {
    memory: &'a OnDemand,
    at: NonNull<u8>,
}

impl OnDemand {
    /// Makes an ODP MR from rxe's structure.
    ///
    /// # Safety
    ///
    /// `mr` must be an ODP MR that is kept as the type invariant of `Base` requires.
    pub(super) unsafe fn new(mr: NonNull<rxe_mr>) -> Self {
        // INVARIANT: By the safety requirement.
        Self(mr)
    }

    /// Locks the page of address `iova`, faulting it in.
    fn lock(&self, iova: u64, write: bool) -> Result<Locked<'_>> {
        // SAFETY: By the type invariant.
        let page = unsafe { bindings::ib_mkey_rxe_odp_lock(self.0.as_ptr(), iova, write) };
        let at = from_err_ptr(page)?;
        // INVARIANT: `ib_mkey_rxe_odp_lock()` mapped the page and took the mutex.
        Ok(Locked {
            memory: self,
            at: NonNull::new(at.cast()).ok_or(EFAULT)?,
        })
    }

    /// Copies between the pieces of `row` and `payload`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for one that the process has not mapped;
    /// those of faulting pages in.
    pub(super) fn copy(&self, row: Row, payload: &mut Payload<'_>) -> Result {
        let write = payload.direction() == Direction::ToMemory;
        if row.count == 1 {
            return self.copy_piece(&row, payload, write);
        }
        payload.check(&row)?;
        for row in Cut::new(row, PAGE) {
            let in_page = (row.addr & (PAGE - 1)) as usize;
            let page = self.lock(row.addr, write)?;
            // SAFETY: The page is mapped, and all pieces of the row are in it. They are pieces of
            // the row that was checked.
            unsafe { payload.copy(page.at.as_ptr().add(in_page), &row) };
        }
        Ok(())
    }

    /// Does what [`Self::copy`] does, for a row of one piece. Most rows of small pieces are, and
    /// need no search for the pieces of each page.
    #[inline(always)]
    fn copy_piece(&self, row: &Row, payload: &Payload<'_>, write: bool) -> Result {
        payload.check_piece(row)?;
        let (mut addr, mut packet, mut left) = (row.addr, payload.at(row.at), row.len);
        while left != 0 {
            let in_page = addr % PAGE;
            let bytes = left.min(PAGE.wrapping_sub(in_page));
            let page = self.lock(addr, write)?;
            // SAFETY: The page is mapped, and the bytes are in it. The payload was checked. A packet
            // is never part of an MR's memory.
            unsafe {
                let memory = page.at.as_ptr().add(in_page as usize);
                payload.copy_bytes(memory, packet, bytes as usize);
            }
            addr = addr.wrapping_add(bytes);
            packet = packet.wrapping_add(bytes as usize);
            left = left.wrapping_sub(bytes);
        }
        Ok(())
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
