// SPDX-License-Identifier: GPL-2.0

//! One of rxe's MRs as the memory of a leaf: its pages, and its atomics.

use super::{
    bindings::{
        self, resp_states_RESPST_ERR_RKEY_VIOLATION, rxe_mr, rxe_mr_page,
        rxe_mr_state_RXE_MR_STATE_VALID,
    },
    on_demand::OnDemand,
};
use crate::{
    backend::{
        cut::each_block,
        interface::{self, BaseMr},
        payload::Payload,
    },
    bindings::ib_mr_type_IB_MR_TYPE_DMA,
    kernel_ext::{
        rdma::{mr::Right, Access, Mr},
        sched,
    },
    layout::Row,
};
use core::ptr::{self, NonNull};
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
    pub(super) unsafe fn new(mr: NonNull<rxe_mr>) -> Self {
        let raw = mr.as_ptr();
        // SAFETY: By the safety requirement.
        unsafe { bindings::ib_mkey_rxe_ref_mr(raw) };
        // SAFETY: By the safety requirement.
        let source = unsafe {
            if (*raw).ibmr.type_ == ib_mr_type_IB_MR_TYPE_DMA {
                PageSource::AllMemory
            } else if bindings::ib_mkey_rxe_is_odp(raw) {
                PageSource::OnDemand
            } else {
                PageSource::Pinned
            }
        };
        // INVARIANT: The reference was taken above. The rest is by the safety requirement; the type
        // stays, and so do the pages.
        Self { mr, source }
    }

    /// The state that rxe's responder gets for an access that is not allowed.
    pub(crate) const DENIED: c_int = resp_states_RESPST_ERR_RKEY_VIOLATION as c_int;
}

impl BaseMr for Base {
    type Pages<'a> = Pages<'a>;

    #[inline]
    fn is_on_demand(&self) -> bool {
        self.source == PageSource::OnDemand
    }

    #[inline]
    fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result {
        let raw = self.mr.as_ptr();
        // SAFETY: By the type invariant. Each field is read as a whole. A later change counts as a
        // change after the access.
        let (state, owner, access, key, iova) = unsafe {
            (
                bindings::ib_mkey_rxe_state(raw),
                Mr::from_raw(&raw mut (*raw).ibmr).pd() as usize,
                Access::from_raw((&raw const (*raw).access).read_volatile() as u32),
                (&raw const (*raw).lkey).read_volatile(),
                (&raw const (*raw).ibmr.iova).read_volatile(),
            )
        };
        if state != rxe_mr_state_RXE_MR_STATE_VALID
            || owner != pd
            || key != lkey
            || iova != start
            || (write && !access.contains(Right::LocalWrite))
        {
            return Err(EACCES);
        }
        Ok(())
    }

    #[inline]
    fn pages(&self) -> Pages<'_> {
        let raw = self.mr.as_ptr();
        // SAFETY: By the type invariant; an MR of this kind keeps its pages until it is freed.
        unsafe {
            let shift = (*raw).page_shift.min(PAGE_SHIFT as u32);
            Pages {
                base: self,
                info: (*raw).page_info,
                shift,
                first: ((*raw).ibmr.iova & (*raw).page_mask) >> shift,
                count: u64::from((*raw).nbuf),
                mapped: None,
            }
        }
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
            bindings::ib_mkey_rxe_stock_atomic_op(
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

/// The pages of a [`Base`], one of them mapped.
///
/// Pieces of a strided layout often share a page, so a page stays mapped until another one is
/// needed.
pub(crate) struct Pages<'a> {
    base: &'a Base,
    info: *const rxe_mr_page,
    /// The size of an entry of the table as a power of two, at most a page.
    shift: u32,
    first: u64,
    count: u64,
    mapped: Option<(u64, NonNull<u8>)>,
}

impl interface::CopyPages for Pages<'_> {
    #[inline]
    fn copy(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        if self.base.is_on_demand() {
            // SAFETY: By the invariant of `base`.
            return unsafe { OnDemand::new(self.base.mr) }.copy(row, payload);
        }
        let size = 1u64 << self.shift;
        let mut copy = |row: Row| {
            let in_page = row.addr & (size - 1);
            let page = self.map((row.addr >> self.shift).wrapping_sub(self.first))?;
            // SAFETY: `size` bytes are mapped and contain all pieces of the row. A packet is never
            // part of an MR's memory.
            unsafe { payload.copy(page.as_ptr().add(in_page as usize), &row) }
        };
        // A single piece within one entry needs no cuts.
        if row.count == 1 && row.len <= size - (row.addr & (size - 1)) {
            return copy(row);
        }
        each_block(row, size, copy)
    }
}

impl Pages<'_> {
    #[inline]
    fn map(&mut self, index: u64) -> Result<NonNull<u8>> {
        match self.mapped {
            Some((mapped, page)) if mapped == index => Ok(page),
            _ => self.remap(index),
        }
    }

    fn remap(&mut self, index: u64) -> Result<NonNull<u8>> {
        self.unmap();
        let (page, offset) = if self.base.source == PageSource::AllMemory {
            // As `ib_virt_dma_to_page()` does for a device without DMA.
            let address = (index << PAGE_SHIFT) as *const c_void;
            // SAFETY: The kernel user that gave the address owns the memory there.
            (unsafe { crate::bindings::virt_to_page(address) }, 0)
        } else {
            self.pinned(index)?
        };
        // SAFETY: The MR keeps the page, or the kernel user that owns the memory does. This thread
        // maps one page at a time. `offset` is in the page.
        let mapped = unsafe {
            crate::bindings::kmap_local_page(page)
                .cast::<u8>()
                .add(offset)
        };
        let mapped = NonNull::new(mapped).ok_or(EFAULT)?;
        self.mapped = Some((index, mapped));
        Ok(mapped)
    }

    fn pinned(&self, index: u64) -> Result<(*mut crate::bindings::page, usize)> {
        if index >= self.count {
            return Err(EFAULT);
        }
        // SAFETY: `index` is less than the number of entries, and the MR is not freed.
        let (page, offset) = unsafe {
            let info = self.info.add(index as usize);
            ((*info).page, (*info).offset)
        };
        // An entry that is smaller than a page may be anywhere in a page.
        let offset = offset as usize;
        if page.is_null() || offset > PAGE_SIZE - (1 << self.shift) {
            return Err(EFAULT);
        }
        Ok((page, offset))
    }

    fn unmap(&mut self) {
        if let Some((_, page)) = self.mapped.take() {
            // SAFETY: `page` points into the page that `kmap_local_page()` mapped here last.
            unsafe { crate::bindings::kunmap_local(ptr::from_ref(page.as_ref()).cast()) };
        }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.unmap();
    }
}
