// SPDX-License-Identifier: GPL-2.0

//! The memory of one of rxe's MRs, of each kind, block by block for the copy (`backend/copy.rs`).

use super::{
    bindings::{self, rxe_mr_page},
    claimed::{MrRange, RxeMr},
};
use crate::{
    backend::copy::{copy, copy_list, copy_rows, Block, Direction, Fault, Memory, Payload},
    bindings::{ib_mr_type_IB_MR_TYPE_USER as TYPE_USER, page},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{mr::NewMr, Access},
    },
    layout::{Row, Segment},
};
use core::{
    marker::PhantomData,
    mem::size_of,
    ptr::{self, NonNull},
};
use kernel::{
    error::from_err_ptr,
    ffi::c_void,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// The number of bytes of a page.
const PAGE: u64 = PAGE_SIZE as u64;

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Outside => EFAULT,
            Fault::Poisoned => EIO,
        }
    }
}

/// The kind of an MR's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The MR's list of pages.
    List,
    /// The same, of persistent memory.
    Persistent,
    /// The MR's list of parts of pages.
    Parts,
    /// All memory. An address of the MR is a kernel address.
    All,
    /// ODP pages, which an access faults in and locks.
    OnDemand,
}

/// Copies between `segment` and `payload`. `delta` is added to the addresses of the segment; the sums
/// are those of `mr`.
///
/// # Errors
///
/// The errors of [`BaseMr::copy`](super::BaseMr::copy).
///
/// # Safety
///
/// `mr` must be an MR of this kind that is neither freed nor mapped to other pages meanwhile.
#[inline(always)]
pub(super) unsafe fn copy_segment(
    (mr, kind): (&RxeMr, Kind),
    segment: Segment<'_, '_>,
    delta: u64,
    payload: &Payload<'_>,
) -> Result {
    match kind {
        Kind::List | Kind::Persistent => {
            // SAFETY: By the safety requirement.
            let mut pages = unsafe { PageList::<false>::new(mr, kind == Kind::Persistent) };
            copy_in(&mut pages, segment, delta, payload)
        }
        Kind::Parts => {
            // SAFETY: By the safety requirement.
            let mut parts = unsafe { PageList::<true>::new(mr, false) };
            copy_in(&mut parts, segment, delta, payload)
        }
        Kind::All => copy_in(&mut AllMemory, segment, delta, payload),
        Kind::OnDemand => {
            // INVARIANT: By the safety requirement. No page is locked.
            let mut memory = OnDemand {
                mr,
                locked: None,
                umem: ptr::null_mut(),
            };
            copy_in(&mut memory, segment, delta, payload)
        }
    }
}

/// Copies between `segment` and `payload`. `delta` is added to the addresses of the segment; the sums
/// are those of `memory`.
#[inline(always)]
fn copy_in<M: Memory<Error = Error>>(
    memory: &mut M,
    segment: Segment<'_, '_>,
    delta: u64,
    payload: &Payload<'_>,
) -> Result {
    let moved = |row: Row| Row {
        addr: row.addr.wrapping_add(delta),
        ..row
    };
    match segment {
        Segment::Row(row) => copy(memory, moved(row), payload),
        Segment::Rows(rows) => copy_rows(memory, rows, delta, payload),
        Segment::Records(mut rows) => rows.try_for_each(|row| copy(memory, moved(row), payload)),
        Segment::List(list) => copy_list(memory, list, delta, payload),
    }
}

/// `true` if all pages are mapped, one after another in the order of their `struct page`. The
/// address of a page is then computed, which takes less time than a call of `kmap_local_page()`.
const IS_LINEAR: bool = cfg!(CONFIG_SPARSEMEM_VMEMMAP)
    && !cfg!(CONFIG_HIGHMEM)
    && !cfg!(CONFIG_KASAN_SW_TAGS)
    && !cfg!(CONFIG_KASAN_HW_TAGS)
    && PAGE_SIZE % size_of::<page>() == 0;

/// A mapping of one page at a time.
struct MappedPage {
    /// The address of the page; NULL if no page is mapped, or if [`IS_LINEAR`].
    at: *mut c_void,
}

impl MappedPage {
    /// Maps `page`. Unmaps the page that was mapped before. Returns the address of the page, which
    /// is valid until the next call and until this is dropped.
    ///
    /// # Safety
    ///
    /// `page` must be a page that is not freed while it is mapped. This thread maps no other page
    /// in between.
    unsafe fn map(&mut self, page: *mut page) -> *mut u8 {
        if IS_LINEAR {
            // SAFETY: The module's initialisation wrote the variable before there was an MR.
            let base = unsafe { bindings::ib_mkey_rxe_page_base };
            let pages = (page as usize).wrapping_mul(PAGE_SIZE / size_of::<page>());
            return pages.wrapping_add(base) as *mut u8;
        }
        self.unmap();
        // SAFETY: By the safety requirements.
        self.at = unsafe { crate::bindings::kmap_local_page(page) };
        self.at.cast()
    }

    fn unmap(&mut self) {
        if !IS_LINEAR && !self.at.is_null() {
            // SAFETY: `kmap_local_page()` returned the address, and this thread mapped no page
            // since.
            unsafe { crate::bindings::kunmap_local(self.at) };
            self.at = ptr::null_mut();
        }
    }
}

impl Drop for MappedPage {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// The list of pages of an MR. An entry is a page, or a part of one if `PARTS`: the MR is then for
/// fast registration of such parts. One of them at a time is mapped.
///
/// # Invariants
///
/// `entries` is valid for reads of `count` entries, each with a page, which they keep during `'a`.
/// Unless `PARTS`, an entry is a whole page.
pub(crate) struct PageList<'a, const PARTS: bool> {
    entries: *const rxe_mr_page,
    count: u64,
    /// The address in the MR of the first byte of the first entry.
    first: u64,
    /// The size of an entry, as the power of two; at most that of a page.
    shift: u32,
    is_persistent: bool,
    mapped: MappedPage,
    _mr: PhantomData<&'a ()>,
}

impl<const PARTS: bool> PageList<'_, PARTS> {
    /// Returns the list of `mr`.
    ///
    /// # Safety
    ///
    /// `mr` must be an MR with a list, which is neither freed nor mapped to other pages during the
    /// lifetime of the result. The entries must be parts of pages if `PARTS`, and otherwise pages.
    #[inline]
    unsafe fn new(mr: &RxeMr, is_persistent: bool) -> Self {
        let mr = mr.private();
        // INVARIANT: By the safety requirement. rxe, and `fill()`, count an entry in `nbuf` when they
        // give it its page. rxe keeps `nbuf` if it cannot allocate another list.
        // SAFETY: By the safety requirement.
        unsafe {
            let entries = (*mr).page_info;
            Self {
                entries,
                count: if entries.is_null() {
                    0
                } else {
                    (*mr).nbuf.into()
                },
                first: (*mr).ibmr.iova & (*mr).page_mask,
                shift: if PARTS {
                    (*mr).page_shift.min(PAGE_SHIFT as u32)
                } else {
                    PAGE_SHIFT as u32
                },
                is_persistent,
                mapped: MappedPage {
                    at: ptr::null_mut(),
                },
                _mr: PhantomData,
            }
        }
    }
}

impl<const PARTS: bool> Memory for PageList<'_, PARTS> {
    type Error = Error;

    const HAS_SIZES: bool = !PARTS;

    #[inline]
    fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    #[inline]
    fn map(&mut self, addr: u64, _direction: Direction) -> Result<Block<'_>> {
        let shift = if PARTS { self.shift } else { PAGE_SHIFT as u32 };
        let size = 1_usize.wrapping_shl(shift);
        let index = addr.wrapping_sub(self.first).wrapping_shr(shift);
        if index >= self.count {
            return Err(EFAULT);
        }
        // SAFETY: By the type invariant: `index` is less than the number of entries.
        let entry = unsafe { self.entries.add(index as usize).read() };
        // A part may be anywhere in a page.
        let offset = if PARTS { entry.offset as usize } else { 0 };
        if offset > PAGE_SIZE.wrapping_sub(size) {
            return Err(EFAULT);
        }
        let before = addr as usize & size.wrapping_sub(1);
        let room = size.wrapping_sub(before);
        // SAFETY: By the type invariant, the entry keeps its page. `size` bytes from `offset` on are
        // in the page, and the first one is at a multiple of `size` in the MR. A copy maps one page
        // at a time. There is no reference to memory of an MR.
        Ok(unsafe {
            let at = self.mapped.map(entry.page).add(offset).add(before);
            Block::new(at, before as u64, room as u64)
        })
    }
}

/// The memory of the MR of all memory, which is one block.
struct AllMemory;

impl Memory for AllMemory {
    type Error = Error;

    fn map(&mut self, addr: u64, _direction: Direction) -> Result<Block<'_>> {
        // A kernel user that gives no address thus gets an error.
        if addr < PAGE {
            return Err(EFAULT);
        }
        // As `ib_virt_dma_to_ptr()` does for a device without DMA: the kernel has all memory mapped
        // at these addresses.
        // SAFETY: The kernel user that gave the addresses of the access owns the memory there, which
        // is all of the block that is accessed.
        Ok(unsafe { Block::new(addr as *mut u8, addr - PAGE, u64::MAX - addr) })
    }
}

/// The memory of one of rxe's ODP MRs.
///
/// The copy is made under the mutex that invalidations take. An absent page is faulted in without
/// that mutex.
///
/// # Invariants
///
/// The MR is not freed during `'a`, and has an `ib_umem_odp`. If there is a page in `locked`, it is
/// mapped, `ib_mkey_rxe_odp_lock()` has set `umem` for it, and the `umem_mutex` of `umem` is held.
pub(crate) struct OnDemand<'a> {
    mr: &'a RxeMr,
    locked: Option<NonNull<u8>>,
    umem: *mut c_void,
}

impl OnDemand<'_> {
    /// Allows invalidations of the locked page, if there is one.
    fn unlock(&mut self) {
        if let Some(page) = self.locked.take() {
            let (mr, page) = (self.mr.private(), page.as_ptr().cast());
            // SAFETY: By the type invariants.
            unsafe { bindings::ib_mkey_rxe_odp_unlock(mr, page, self.umem) };
        }
    }
}

impl Memory for OnDemand<'_> {
    type Error = Error;

    /// Maps a page as described in [`Memory::map`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for one that the process has not mapped;
    /// those of faulting pages in.
    fn map(&mut self, addr: u64, direction: Direction) -> Result<Block<'_>> {
        self.unlock();
        let writes = direction == Direction::ToMemory;
        // SAFETY: By the type invariant. The mutex is not held.
        let page = unsafe {
            bindings::ib_mkey_rxe_odp_lock(self.mr.private(), addr, writes, &mut self.umem)
        };
        let page = NonNull::new(from_err_ptr(page)?.cast()).ok_or(EFAULT)?;
        // INVARIANT: `ib_mkey_rxe_odp_lock()` mapped the page and took the mutex.
        self.locked = Some(page);
        // SAFETY: The page stays mapped until `unlock()`, for which `self` is borrowed mutably.
        // There is no reference to memory of an MR.
        Ok(unsafe {
            let before = addr % PAGE;
            Block::new(page.as_ptr().add(before as usize), before, PAGE - before)
        })
    }
}

impl Drop for OnDemand<'_> {
    fn drop(&mut self) {
        self.unlock();
    }
}

/// Fills a new MR with `pages`: `length` bytes from address `addr` on. The first byte is in the
/// first page. The state does not change.
///
/// # Safety
///
/// If the caller makes the MR valid, the pages must stay until rxe has deregistered it.
pub(super) unsafe fn fill<'a>(
    new: NewMr<'a>,
    pages: impl Iterator<Item = Option<*mut page>>,
    addr: u64,
    length: u64,
    access: Access,
) -> Result<&'a RxeMr> {
    let mr = RxeMr::of(new.into_mr()).ok_or(EINVAL)?;
    let private = mr.private();
    for (index, page) in pages.enumerate() {
        let page = page.ok_or_else(eopnotsupp)?;
        // SAFETY: The MR is new, so rxe does not use its page table. The index is checked against
        // the number of pages that the MR was allocated for.
        unsafe {
            if index >= (*private).num_buf as usize {
                return Err(EINVAL);
            }
            let info = (*private).page_info.add(index);
            (*info).page = page;
            (*info).offset = 0;
            (*private).nbuf = index as u32 + 1;
        }
    }
    // The MR gets the type of user memory. rxe allows LOCAL_INV on MRs of any protection
    // domain, but refuses it for this type.
    mr.set_kind(TYPE_USER);
    mr.set_access(access);
    mr.set_range(MrRange {
        start: addr,
        len: length,
    });
    Ok(mr)
}
