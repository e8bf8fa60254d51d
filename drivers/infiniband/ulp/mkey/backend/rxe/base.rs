// SPDX-License-Identifier: GPL-2.0

//! A stock region that layouts end in: its pages, and its atomics.

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

/// A stock region: pinned pages, pages on demand, pages of a fast registration, or all memory.
///
/// # Invariants
///
/// A reference to the region is held, so that it is not freed. A pin of it, or the device memory
/// behind it, keeps it from being deregistered: rxe does not wait for references for ever.
pub(crate) struct Base {
    mr: NonNull<rxe_mr>,
    source: PageSource,
}

/// Bytes that stock rxe is asked to flush at once: it takes 32 bits, and does not pause.
const MAX_FLUSHED: u32 = 1 << 24;

/// How the pages of a [`Base`] are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSource {
    /// In a table.
    Pinned,
    /// The kernel's region of all memory: an address is that of the byte.
    AllMemory,
    /// They come when they are needed, and may go when they are not locked.
    OnDemand,
}

impl Clone for Base {
    /// Makes another, for another leaf that keeps the region.
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

// SAFETY: Everything done through the pointer may be done by any thread.
unsafe impl Send for Base {}
// SAFETY: As above.
unsafe impl Sync for Base {}

impl Base {
    /// # Safety
    ///
    /// `mr` must be a region of user memory, of a fast registration or of all memory, to which a
    /// reference is held; whoever keeps the result must keep it from being deregistered, and from
    /// being mapped to other pages.
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

    /// What rxe's responder is told of an access that is not allowed.
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
        // SAFETY: By the type invariant. The fields are read as a whole; a change that comes
        // later is a change after the access.
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
        // SAFETY: By the type invariant; a region of this kind keeps its pages while it lives.
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
        // rxe serialises it with others by its own lock.
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
/// Runs of a strided layout often share a page: it stays mapped until another is needed.
pub(crate) struct Pages<'a> {
    base: &'a Base,
    info: *const rxe_mr_page,
    /// Bytes of an entry of the table, as a power of two; at most a page.
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
            // SAFETY: `size` bytes are mapped, which all pieces of the row are in; a packet is never
            // part of a region's memory.
            unsafe { payload.copy(page.as_ptr().add(in_page as usize), &row) }
        };
        // A piece of a large block takes no cutting.
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
            // As `ib_virt_dma_to_page()` has it for a device without DMA of its own.
            let address = (index << PAGE_SHIFT) as *const c_void;
            // SAFETY: A kernel user gave the address as one of memory that it owns.
            (unsafe { crate::bindings::virt_to_page(address) }, 0)
        } else {
            self.pinned(index)?
        };
        // SAFETY: The page is kept by the region, or by the kernel user whose memory it is.
        // Mapped one at a time, in this thread. `offset` is in the page.
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
        // SAFETY: `index` is less than the number of entries, and the region is not freed.
        let (page, offset) = unsafe {
            let info = self.info.add(index as usize);
            ((*info).page, (*info).offset)
        };
        // An entry of less than a page may be anywhere in one.
        let offset = offset as usize;
        if page.is_null() || offset > PAGE_SIZE - (1 << self.shift) {
            return Err(EFAULT);
        }
        Ok((page, offset))
    }

    fn unmap(&mut self) {
        if let Some((_, page)) = self.mapped.take() {
            // SAFETY: `page` is in what `kmap_local_page()` mapped here last.
            unsafe { crate::bindings::kunmap_local(ptr::from_ref(page.as_ref()).cast()) };
        }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.unmap();
    }
}
