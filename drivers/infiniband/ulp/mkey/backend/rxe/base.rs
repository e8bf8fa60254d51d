// SPDX-License-Identifier: GPL-2.0

//! One of rxe's MRs as the memory of a leaf: its rights, its pages, and its atomics.

use super::{
    bindings::{
        self, resp_states_RESPST_ERR_RKEY_VIOLATION, rxe_mr,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    claimed::RxeMr,
    on_demand::OnDemand,
    page_table::{MappedPage, PageTable},
};
use crate::{
    backend::{
        cut::Cut,
        leaf::{BaseMr, CopyPages},
        payload::Payload,
    },
    bindings::{ib_mr_type_IB_MR_TYPE_DMA, page, virt_to_page},
    kernel_ext::{
        rdma::{mr::Right, Mr},
        sched,
    },
    layout::{Plane, Records, Row, Scattered},
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// One of rxe's MRs: pinned pages, ODP pages, pages of a fast registration, or all memory.
///
/// # Invariants
///
/// A reference to the MR is held, so it is not freed. A pin of the MR, or the device memory behind
/// it, keeps the MR from being deregistered, because rxe's wait for references has a time limit.
pub(crate) struct Base {
    mr: NonNull<rxe_mr>,
    source: PageSource,
}

/// The most bytes of one flush by stock rxe, which takes a length of 32 bits and does not
/// reschedule.
const MAX_FLUSHED: u32 = 1 << 24;

/// The place of the pages of a [`Base`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSource {
    /// The MR's table of pages.
    Pinned,
    /// The MR's table of pages, whose entries are parts of pages.
    PinnedParts,
    /// All memory. An address of the MR is a kernel address.
    AllMemory,
    /// ODP pages, which an access faults in and locks.
    OnDemand,
}

impl Clone for Base {
    /// Takes a further reference, for a leaf that keeps the MR.
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_ref_mr(self.mr.as_ptr()) };
        // INVARIANT: The reference was taken above.
        Self {
            mr: self.mr,
            source: self.source,
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
// SAFETY: As above.
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
    /// Those of [`Self::new`]. The caller must not drop its reference later.
    pub(super) unsafe fn with_reference(mr: NonNull<rxe_mr>) -> Self {
        let raw = mr.as_ptr();
        // SAFETY: By the safety requirement.
        let source = unsafe {
            if (*raw).ibmr.type_ == ib_mr_type_IB_MR_TYPE_DMA {
                PageSource::AllMemory
            } else if bindings::ib_mkey_rxe_is_odp(raw) {
                PageSource::OnDemand
            } else if (*raw).page_shift < PAGE_SHIFT as u32 {
                PageSource::PinnedParts
            } else {
                PageSource::Pinned
            }
        };
        // INVARIANT: By the safety requirement; the type stays, and so do the pages.
        Self { mr, source }
    }

    /// Copies a row of several pieces, or a row of an MR without pinned pages.
    // Not inlined, so that the payload of a row of one piece stays in registers.
    #[inline(never)]
    fn copy_many(&self, row: Row, mut payload: Payload<'_>) -> Result {
        self.pages().copy(row, &mut payload)
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
        self.source == PageSource::OnDemand
    }

    #[inline(always)]
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

    #[inline(always)]
    fn pages(&self) -> Pages<'_> {
        Pages {
            base: self,
            // SAFETY: By the type invariant; an MR of another kind has no use of its table.
            table: unsafe { PageTable::new(self.mr) },
        }
    }

    #[inline(always)]
    fn copy_row(&self, row: Row, payload: Payload<'_>) -> Result {
        match self.source {
            PageSource::Pinned if row.count == 1 => {
                // SAFETY: By the type invariant, and by the kind of pages.
                let mut table = unsafe { PageTable::new(self.mr) };
                copy_piece(&mut table, &row, &payload)
            }
            PageSource::AllMemory if is_mapped(&row) => copy_mapped(&row, &payload),
            _ => self.copy_many(row, payload),
        }
    }

    #[inline(always)]
    fn copy_mapped(&self, addr: u64, payload: &Payload<'_>) -> bool {
        let row = Row::of(0, addr, payload.len());
        self.source == PageSource::AllMemory
            && is_mapped(&row)
            && copy_mapped(&row, payload).is_ok()
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
        // SAFETY: By the type invariant; stock code checks range and alignment.
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
        // SAFETY: As for `atomic_op()`.
        unsafe { bindings::ib_mkey_rxe_stock_atomic_write(self.mr.as_ptr(), iova, value) }
    }

    fn flush(&self, mut iova: u64, mut len: u64) -> Result {
        while len > 0 {
            let bytes = len.min(u64::from(MAX_FLUSHED)) as u32;
            // SAFETY: As for `atomic_op()`.
            to_result(unsafe { bindings::ib_mkey_rxe_stock_flush(self.mr.as_ptr(), iova, bytes) })?;
            iova = iova.wrapping_add(u64::from(bytes));
            len -= u64::from(bytes);
            sched::cond_resched();
        }
        Ok(())
    }
}

/// Pieces of at least this size are copied one by one, because few of them are in one page.
const MANY: u64 = PAGE / 8;

/// Returns `true` if `scattered.rs` has a loop for pieces of `len` bytes.
#[inline(always)]
fn has_loop(len: u64) -> bool {
    matches!(len, 8 | 16 | 64) || len >= MANY
}

/// Returns `true` if `row`, of the MR of all memory, is one piece outside of the page of the null
/// pointer. A kernel user that gives no address thus gets an error.
#[inline(always)]
fn is_mapped(row: &Row) -> bool {
    row.count == 1 && row.addr >= PAGE_SIZE as u64
}

/// Copies between `row`, which [`is_mapped`] in the MR of all memory, and `payload`.
#[inline(always)]
fn copy_mapped(row: &Row, payload: &Payload<'_>) -> Result {
    payload.check_piece(row)?;
    // As `ib_virt_dma_to_ptr()` does for a device without DMA: the kernel has all memory mapped
    // at these addresses.
    // SAFETY: The kernel user that gave the addresses owns the memory there. A packet is never
    // part of an MR's memory.
    unsafe { payload.copy_bytes(row.addr as *mut u8, payload.at(row.at), row.len as usize) };
    Ok(())
}

/// The number of bytes of a page.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;

/// The pages of a [`Base`].
pub(crate) struct Pages<'a> {
    base: &'a Base,
    /// The pages, if entries of the table are whole pages.
    pub(super) table: PageTable<'a>,
}

impl CopyPages for Pages<'_> {
    #[inline(always)]
    fn copy(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        match self.base.source {
            PageSource::Pinned => self.copy_pages(row, payload),
            PageSource::AllMemory if is_mapped(&row) => copy_mapped(&row, payload),
            _ => self.copy_other(Row { ..row }, payload),
        }
    }

    #[inline(always)]
    fn copy_plane(&mut self, plane: &Plane, delta: u64, payload: &mut Payload<'_>) -> Result {
        if self.base.source == PageSource::Pinned {
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
        if self.base.source == PageSource::Pinned {
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
        if self.base.source == PageSource::Pinned {
            return self.copy_places(pieces, delta, payload);
        }
        self.copy_each(pieces.rows(), delta, payload)
    }
}

/// Copies one piece, `row`, page by page.
///
/// # Errors
///
/// As for [`CopyPages::copy`].
#[inline(always)]
pub(super) fn copy_piece(table: &mut PageTable<'_>, row: &Row, payload: &Payload<'_>) -> Result {
    payload.check_piece(row)?;
    let mut offset = row.addr.wrapping_sub(table.first());
    let (mut packet, mut left) = (payload.at(row.at), row.len);
    loop {
        let in_page = offset % PAGE;
        let bytes = left.min(PAGE.wrapping_sub(in_page));
        let page = table.map(offset)?;
        // SAFETY: The page is mapped, and the bytes are in it. The payload was checked. A packet is
        // never part of an MR's memory.
        unsafe { payload.copy_bytes(page.add(in_page as usize), packet, bytes as usize) };
        left = left.wrapping_sub(bytes);
        if left == 0 {
            return Ok(());
        }
        offset = offset.wrapping_add(bytes);
        packet = packet.wrapping_add(bytes as usize);
    }
}

/// The smallest distance of pieces that are copied one by one. Few of them are in one page, so
/// finding the number of pieces in each page would take longer.
const FAR: u64 = PAGE / 16;

impl Pages<'_> {
    /// Copies as [`CopyPages::copy`] does, if entries of the table are
    /// whole pages.
    #[inline(always)]
    fn copy_pages(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        if row.count == 1 {
            return copy_piece(&mut self.table, &row, payload);
        }
        if row.stride.unsigned_abs() >= FAR && has_loop(row.len) {
            return self.copy_far(&Row { ..row }, payload);
        }
        self.copy_near(Row { ..row }, payload)
    }

    /// Copies as [`Self::copy_pages`] does, page by page.
    #[inline(never)]
    pub(super) fn copy_near(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        payload.check(&row)?;
        let offset = row.addr.wrapping_sub(self.table.first());
        for row in Cut::new(
            Row {
                addr: offset,
                ..row
            },
            PAGE,
        ) {
            let page = self.table.map(row.addr)?;
            // SAFETY: The page is mapped and contains all pieces of the row. They are pieces of the
            // row that was checked. A packet is never part of an MR's memory.
            unsafe { payload.copy(page.add((row.addr % PAGE) as usize), &row) };
        }
        Ok(())
    }

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
            match self.base.source {
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
        if self.base.is_on_demand() {
            // SAFETY: By the invariant of `base`.
            return unsafe { OnDemand::new(self.base.mr) }.copy(row, payload);
        }
        // SAFETY: By the invariant of `base`; an MR of this kind keeps its pages until it is freed.
        let shift = PAGE_SHIFT.min(unsafe { (*self.base.mr.as_ptr()).page_shift } as usize);
        let size = 1 << shift;
        let mut mapped = MappedPage::new();
        payload.check(&row)?;
        for row in Cut::new(row, size) {
            let in_entry = row.addr & size.wrapping_sub(1);
            let start = row.addr.wrapping_sub(in_entry);
            let (page, offset) = match self.base.source {
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
        let mr = self.base.mr.as_ptr();
        // SAFETY: By the invariant of `base`; the MR keeps its pages until it is freed.
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
