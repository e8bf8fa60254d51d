// SPDX-License-Identifier: GPL-2.0

//! A stock region that layouts end in: its pages, and its atomics.

use super::bindings::{
    self, resp_states_RESPST_ERR_RKEY_VIOLATION, rxe_mr, rxe_mr_page,
    rxe_mr_state_RXE_MR_STATE_VALID,
};
use crate::{
    backend::Window,
    bindings::ib_mr_type_IB_MR_TYPE_DMA,
    rdma::{
        mr::Right,
        Access,
        Mr, //
    },
};
use core::ptr::{self, NonNull};
use kernel::{
    error::to_result,
    ffi::{c_int, c_void},
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// A stock region with pinned pages of `PAGE_SIZE`.
///
/// # Invariants
///
/// The region is not freed while this exists: a pin of it, or the device memory behind it, is
/// held by the leaf that this is part of.
#[derive(Clone, Copy)]
pub(crate) struct Base(NonNull<rxe_mr>);

// SAFETY: Everything done through the pointer may be done by any thread.
unsafe impl Send for Base {}
// SAFETY: As above.
unsafe impl Sync for Base {}

impl Base {
    /// # Safety
    ///
    /// `mr` must be a region of pinned pages of `PAGE_SIZE`, or of all memory, and whoever keeps the
    /// result must keep it from being freed.
    pub(super) unsafe fn new(mr: NonNull<rxe_mr>) -> Self {
        // INVARIANT: By the safety requirement.
        Self(mr)
    }

    /// Looks again at what rereg_mr may have changed since the bind.
    #[inline]
    pub(crate) fn allows(&self, pd: usize, write: bool) -> Result {
        let raw = self.0.as_ptr();
        // SAFETY: By the type invariant. The fields are read as a whole; a change that comes
        // later is a change after the access.
        let (state, owner, access) = unsafe {
            (
                bindings::ib_mkey_rxe_state(raw),
                Mr::from_raw(&raw mut (*raw).ibmr).pd() as usize,
                Access::from_raw((&raw const (*raw).access).read_volatile() as u32),
            )
        };
        if state != rxe_mr_state_RXE_MR_STATE_VALID
            || owner != pd
            || (write && !access.contains(Right::LocalWrite))
        {
            return Err(EACCES);
        }
        Ok(())
    }

    /// Prepares copies from and to the region's pages.
    #[inline]
    pub(crate) fn pages(&self) -> Pages {
        let raw = self.0.as_ptr();
        // SAFETY: By the type invariant; a region of this kind keeps its pages while it lives.
        unsafe {
            Pages {
                info: (*raw).page_info,
                first: (*raw).ibmr.iova >> PAGE_SHIFT,
                count: u64::from((*raw).nbuf),
                direct: (*raw).ibmr.type_ == ib_mr_type_IB_MR_TYPE_DMA,
                mapped: None,
            }
        }
    }

    /// Does an atomic operation as stock rxe does, under its lock.
    pub(crate) fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> c_int {
        // SAFETY: By the type invariant; stock code checks range and alignment.
        unsafe {
            bindings::ib_mkey_rxe_stock_atomic_op(
                self.0.as_ptr(),
                iova,
                opcode,
                compare,
                swap_add,
                original,
            )
        }
    }

    /// Does an atomic write as stock rxe does.
    pub(crate) fn atomic_write(&self, iova: u64, value: u64) -> c_int {
        // SAFETY: As for `atomic_op()`.
        unsafe { bindings::ib_mkey_rxe_stock_atomic_write(self.0.as_ptr(), iova, value) }
    }

    /// Makes bytes persistent as stock rxe does.
    pub(crate) fn flush(&self, iova: u64, len: u64) -> Result {
        let len = u32::try_from(len)?;
        // SAFETY: As for `atomic_op()`.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_flush(self.0.as_ptr(), iova, len) })
    }

    /// What rxe's responder is told of an access that is not allowed.
    pub(crate) const DENIED: c_int = resp_states_RESPST_ERR_RKEY_VIOLATION as c_int;
}

/// The pages of a [`Base`], one of them mapped.
///
/// Runs of a strided layout often share a page: it stays mapped until another is needed.
pub(crate) struct Pages {
    info: *const rxe_mr_page,
    first: u64,
    count: u64,
    /// The kernel's region of all memory: an address is that of the byte.
    direct: bool,
    mapped: Option<(u64, NonNull<u8>)>,
}

impl Pages {
    /// Copies `len` bytes between address `iova` of the region and `window`.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address that the region does not have.
    #[inline]
    pub(crate) fn copy(&mut self, mut iova: u64, mut len: u64, window: &mut Window<'_>) -> Result {
        while len > 0 {
            let in_page = (iova & (PAGE_SIZE as u64 - 1)) as usize;
            let bytes = len.min((PAGE_SIZE - in_page) as u64);
            let page = self.map((iova >> PAGE_SHIFT).wrapping_sub(self.first))?;
            // SAFETY: The page is mapped and `in_page + bytes` is at most its size; a packet is
            // never part of a region's memory.
            unsafe { window.copy(page.as_ptr().add(in_page), bytes as usize) };
            iova = iova.wrapping_add(bytes);
            len -= bytes;
        }
        Ok(())
    }

    #[inline]
    fn map(&mut self, index: u64) -> Result<NonNull<u8>> {
        match self.mapped {
            Some((mapped, page)) if mapped == index => Ok(page),
            _ => self.remap(index),
        }
    }

    fn remap(&mut self, index: u64) -> Result<NonNull<u8>> {
        self.unmap();
        let page = if self.direct {
            // As `ib_virt_dma_to_page()` has it for a device without DMA of its own.
            let address = (index << PAGE_SHIFT) as *const c_void;
            // SAFETY: A kernel user gave the address as one of memory that it owns.
            unsafe { crate::bindings::virt_to_page(address) }
        } else {
            self.pinned(index)?
        };
        // SAFETY: The page is kept by the region, or by the kernel user whose memory it is.
        // Mapped one at a time, in this thread.
        let mapped = unsafe { crate::bindings::kmap_local_page(page) };
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(EFAULT)?;
        self.mapped = Some((index, mapped));
        Ok(mapped)
    }

    fn pinned(&self, index: u64) -> Result<*mut crate::bindings::page> {
        if index >= self.count {
            return Err(EFAULT);
        }
        // SAFETY: `index` is less than the number of pages, and the region is not freed.
        let (page, offset) = unsafe {
            let info = self.info.add(index as usize);
            ((*info).page, (*info).offset)
        };
        // Only regions of whole pages are bound; anything else is not served.
        if page.is_null() || offset != 0 {
            return Err(EFAULT);
        }
        Ok(page)
    }

    fn unmap(&mut self) {
        if let Some((_, page)) = self.mapped.take() {
            // SAFETY: `page` came from `kmap_local_page()` and is the last one mapped here.
            unsafe { crate::bindings::kunmap_local(ptr::from_ref(page.as_ref()).cast()) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.unmap();
    }
}
