// SPDX-License-Identifier: GPL-2.0

//! The pages of one of rxe's MRs, of each kind.

use super::{
    bindings::rxe_mr,
    on_demand::OnDemand,
    page_table::{MappedPage, PageTable},
};
use crate::{
    backend::{cut::Cut, leaf::CopyPages, payload::Payload},
    bindings::{page, virt_to_page},
    layout::{Plane, Records, Row, Scattered},
};
use core::ptr::NonNull;
use kernel::{
    ffi::c_void,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// The place of the pages of an MR.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PageSource {
    /// The MR's table of pages.
    Pinned,
    /// The MR's table of pages, whose entries are parts of pages.
    PinnedParts,
    /// All memory. An address of the MR is a kernel address.
    AllMemory,
    /// ODP pages, which an access faults in and locks.
    OnDemand,
}

/// One of rxe's MRs.
///
/// # Invariants
///
/// While this is in use, the MR is neither freed nor mapped to other pages.
#[derive(Clone, Copy)]
pub(super) struct KeptMr {
    pub(super) mr: NonNull<rxe_mr>,
    pub(super) source: PageSource,
}

/// The pages of an MR, prepared for copies.
pub(crate) struct Pages<'a> {
    pub(super) kept: &'a KeptMr,
    /// The pages, if entries of the table are whole pages.
    pub(super) table: PageTable<'a>,
}

impl CopyPages for Pages<'_> {
    #[inline(always)]
    fn copy(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        match self.kept.source {
            PageSource::Pinned => self.copy_pages(row, payload),
            PageSource::AllMemory if is_mapped(&row) => copy_mapped(&row, payload),
            _ => self.copy_other(Row { ..row }, payload),
        }
    }

    #[inline(always)]
    fn copy_plane(&mut self, plane: &Plane, delta: u64, payload: &mut Payload<'_>) -> Result {
        if self.kept.source == PageSource::Pinned {
            return self.copy_rows(plane, delta, payload);
        }
        self.copy_each(plane.rows(), delta, payload)
    }

    #[inline(always)]
    fn copy_records(
        &mut self,
        records: &Records<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        if self.kept.source == PageSource::Pinned {
            return self.copy_blocks(records, delta, payload);
        }
        self.copy_each(records.rows(), delta, payload)
    }

    #[inline(always)]
    fn copy_scattered(
        &mut self,
        pieces: &Scattered<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        if self.kept.source == PageSource::Pinned {
            return self.copy_places(pieces, delta, payload);
        }
        self.copy_each(pieces.rows(), delta, payload)
    }
}

/// Returns `true` if `row`, of the MR of all memory, is one piece outside of the page of the null
/// pointer. A kernel user that gives no address thus gets an error.
#[inline(always)]
pub(super) fn is_mapped(row: &Row) -> bool {
    row.count == 1 && row.addr >= PAGE_SIZE as u64
}

/// Copies between `row`, which [`is_mapped`] in the MR of all memory, and `payload`.
#[inline(always)]
pub(super) fn copy_mapped(row: &Row, payload: &Payload<'_>) -> Result {
    payload.check_piece(row)?;
    // As `ib_virt_dma_to_ptr()` does for a device without DMA: the kernel has all memory mapped
    // at these addresses.
    // SAFETY: The kernel user that gave the addresses owns the memory there. A packet is never
    // part of an MR's memory.
    unsafe { payload.copy_bytes(row.addr as *mut u8, payload.at(row.at), row.len as usize) };
    Ok(())
}

impl Pages<'_> {
    /// Copies rows of an MR whose entries are not whole pages. `delta` is added to their addresses.
    #[inline(never)]
    fn copy_each(
        &mut self,
        rows: impl Iterator<Item = Row>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        for row in rows {
            let addr = row.addr.wrapping_add(delta);
            let row = Row { addr, ..row };
            match self.kept.source {
                PageSource::AllMemory if is_mapped(&row) => copy_mapped(&row, payload)?,
                _ => self.copy_other(row, payload)?,
            }
        }
        Ok(())
    }

    /// Copies as [`CopyPages::copy`] does, unless entries of the table
    /// are whole pages.
    #[inline(never)]
    fn copy_other(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        if self.kept.source == PageSource::OnDemand {
            // SAFETY: By the invariant of `kept`.
            return unsafe { OnDemand::new(self.kept.mr) }.copy(row, payload);
        }
        // SAFETY: By the invariant of `kept`; an MR of this kind keeps its pages until it is freed.
        let shift = PAGE_SHIFT.min(unsafe { (*self.kept.mr.as_ptr()).page_shift } as usize);
        let size = 1 << shift;
        let mut mapped = MappedPage::new();
        payload.check(&row)?;
        for row in Cut::new(row, size) {
            let in_entry = row.addr & size.wrapping_sub(1);
            let start = row.addr.wrapping_sub(in_entry);
            let (page, offset) = match self.kept.source {
                // As `ib_virt_dma_to_page()` does for a device without DMA.
                // SAFETY: The kernel user that gave the address owns the memory there.
                PageSource::AllMemory => (unsafe { virt_to_page(start as *const c_void) }, 0),
                _ => self.part(start, shift)?,
            };
            // SAFETY: The MR keeps the page, or the kernel user that owns the memory does. `size`
            // bytes from `offset` on are in the page and contain all pieces of the row. They are
            // pieces of the row that was checked. A packet is never part of an MR's memory.
            unsafe {
                let entry = NonNull::new(mapped.map(page))
                    .ok_or(EFAULT)?
                    .as_ptr()
                    .add(offset);
                payload.copy(entry.add(in_entry as usize), &row);
            }
        }
        Ok(())
    }

    /// Finds the entry that begins at address `start` and has `1 << shift` bytes: its page, and its
    /// place in the page.
    fn part(&self, start: u64, shift: usize) -> Result<(*mut page, usize)> {
        let mr = self.kept.mr.as_ptr();
        // SAFETY: By the invariant of `kept`; the MR keeps its pages until it is freed.
        let (first, entries) = unsafe { ((*mr).ibmr.iova & (*mr).page_mask, (*mr).nbuf) };
        let index = start.wrapping_sub(first) >> shift;
        if index >= entries.into() {
            return Err(EFAULT);
        }
        // SAFETY: `index` is less than the number of entries, and the MR is not freed.
        let (page, offset) = unsafe {
            let info = (*mr).page_info.add(index as usize);
            ((*info).page, (*info).offset)
        };
        // An entry that is smaller than a page may be anywhere in a page.
        let offset = offset as usize;
        if page.is_null() || offset > PAGE_SIZE.wrapping_sub(1 << shift) {
            return Err(EFAULT);
        }
        Ok((page, offset))
    }
}
