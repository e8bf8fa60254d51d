// SPDX-License-Identifier: GPL-2.0

//! The table of pages of one of rxe's MRs.
//!
//! An access looks up a page for each piece that is in another page than the piece before. If the
//! kernel has all memory mapped ([`IS_LINEAR`]), the address of a page is computed without a table.

use super::bindings::{self, rxe_mr, rxe_mr_page};
use crate::bindings::page;
use core::{
    marker::PhantomData,
    mem::{size_of, MaybeUninit},
    ptr::{self, NonNull},
};
use kernel::{ffi::c_void, page::PAGE_SIZE, prelude::*};

/// `true` if all pages are mapped, one after another in the order of their `struct page`.
const IS_LINEAR: bool = cfg!(CONFIG_SPARSEMEM_VMEMMAP)
    && !cfg!(CONFIG_HIGHMEM)
    && !cfg!(CONFIG_KASAN_SW_TAGS)
    && !cfg!(CONFIG_KASAN_HW_TAGS)
    && PAGE_SIZE % size_of::<page>() == 0;

/// Returns the address of `page`, if [`IS_LINEAR`].
///
/// # Safety
///
/// `page` must be a page.
#[inline(always)]
unsafe fn linear(page: *mut page) -> *mut u8 {
    // SAFETY: `attach()` wrote the variable before there was an MR.
    let base = unsafe { bindings::ib_mkey_rxe_page_base };
    let pages = (page as usize).wrapping_mul(PAGE_SIZE / size_of::<page>());
    pages.wrapping_add(base) as *mut u8
}

/// Returns the error for an address outside of an MR.
// Not inlined, so that the loops over pieces do not contain it.
#[cold]
#[inline(never)]
fn outside() -> Error {
    EFAULT
}

/// A mapping of one page at a time.
pub(super) struct MappedPage {
    /// The address of the page; NULL if no page is mapped, or if [`IS_LINEAR`].
    at: *mut c_void,
}

impl MappedPage {
    /// Maps no page.
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            at: ptr::null_mut(),
        }
    }

    /// Maps `page`. Unmaps the page that was mapped before. Returns the address of the page, which
    /// is valid until the next call and until this is dropped.
    ///
    /// # Safety
    ///
    /// `page` must be a page that is not freed while it is mapped. This thread maps no other page
    /// in between.
    #[inline(always)]
    pub(super) unsafe fn map(&mut self, page: *mut page) -> *mut u8 {
        if IS_LINEAR {
            // SAFETY: By the safety requirements.
            return unsafe { linear(page) };
        }
        self.unmap();
        // SAFETY: By the safety requirements.
        self.at = unsafe { crate::bindings::kmap_local_page(page) };
        self.at.cast()
    }

    #[inline(always)]
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
    #[inline(always)]
    fn drop(&mut self) {
        self.unmap();
    }
}

/// The pages of an MR whose entries are whole pages. One page at a time is mapped.
///
/// # Invariants
///
/// `entries` is valid for reads of `count` entries, each with a page, which they keep during `'a`.
pub(super) struct PageTable<'a> {
    entries: *const rxe_mr_page,
    count: u64,
    /// The address of the first byte of the first page.
    first: u64,
    mapped: MappedPage,
    _mr: PhantomData<&'a ()>,
}

impl PageTable<'_> {
    /// Returns the table of `mr`.
    ///
    /// # Safety
    ///
    /// `mr` must be an MR that is neither freed nor mapped to other pages during the lifetime of
    /// the result. [`Self::map`] may be called only if its entries are whole pages.
    #[inline(always)]
    pub(super) unsafe fn new(mr: NonNull<rxe_mr>) -> Self {
        // INVARIANT: By the safety requirement. rxe, and `fill.rs`, count an entry in `nbuf` when
        // they give it its page. SAFETY: By the safety requirement.
        unsafe {
            let mr = mr.as_ptr();
            let entries = (*mr).page_info;
            Self {
                entries,
                // rxe keeps `nbuf` if it cannot allocate another table.
                count: if entries.is_null() {
                    0
                } else {
                    (*mr).nbuf.into()
                },
                first: (*mr).ibmr.iova & (*mr).page_mask,
                mapped: MappedPage::new(),
                _mr: PhantomData,
            }
        }
    }

    /// Returns the address of the first byte of the first page. All pages of the MR follow it.
    #[inline(always)]
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Maps the page of the byte at `offset`, counted from [`Self::first`]. Returns its address,
    /// which is valid until another page is mapped.
    ///
    /// # Errors
    ///
    /// `EFAULT` for a byte outside of the MR.
    #[inline(always)]
    pub(super) fn map(&mut self, offset: u64) -> Result<*mut u8> {
        let index = offset / PAGE_SIZE as u64;
        if index >= self.count {
            return Err(outside());
        }
        // SAFETY: By the type invariant: `index` is less than the number of entries, and each entry
        // keeps its page. A copy maps one page at a time.
        Ok(unsafe {
            let page = (*self.entries.add(index as usize)).page;
            self.mapped.map(page)
        })
    }

    /// Returns `true` if few of the bytes from `first` to `last` are likely to be in the cache, and
    /// if a page of the MR stays mapped while others are mapped.
    #[inline(always)]
    pub(super) fn is_wide(first: u64, last: u64) -> bool {
        IS_LINEAR && last.wrapping_sub(first) >= WIDE
    }

    /// Returns the pages of the bytes from `first` to `last`, counted from [`Self::first`]. Returns
    /// [`None`] if there are more than `most` pages or more than fit into [`NearPages`], if the
    /// bytes are not in the MR, and unless [`IS_LINEAR`].
    #[inline(always)]
    pub(super) fn near(&self, first: u64, last: u64, most: usize) -> Option<NearPages<'_>> {
        let (first, last) = (first / PAGE_SIZE as u64, last / PAGE_SIZE as u64);
        let more = last.checked_sub(first)?;
        if !IS_LINEAR || more >= most.min(NEAR) as u64 || last >= self.count {
            return None;
        }
        let slots = (more as usize + 1).next_power_of_two();
        let mut near = NearPages {
            pages: [MaybeUninit::uninit(); NEAR],
            mask: (slots.wrapping_mul(PAGE_SIZE) - 1) as u64,
            _table: PhantomData,
        };
        for number in 0..slots as u64 {
            let index = first.wrapping_add(if number <= more { number } else { 0 });
            // SAFETY: By the type invariant: `index` is at most `last`, which is less than the
            // number of entries.
            let at = unsafe { linear((*self.entries.add(index as usize)).page) };
            // The slot is given by the low bits of the page's number.
            let slot = first.wrapping_add(number) as usize & (slots - 1) & (NEAR - 1);
            near.pages[slot] = MaybeUninit::new(at.wrapping_sub(slot.wrapping_mul(PAGE_SIZE)));
        }
        // INVARIANT: As many slots as `mask` says have a page of the table, which the MR keeps.
        Some(near)
    }
}

/// The fewest bytes for [`PageTable::is_wide`]. Pieces within 128 KiB are copied faster without a
/// prefetch, and pieces within 1 MiB faster with a prefetch.
const WIDE: u64 = (1 << 20) - PAGE_SIZE as u64;

/// The largest number of pages of [`NearPages`].
const NEAR: usize = 64;

/// Successive pages of an MR. The low bits of a page's number are its slot.
///
/// # Invariants
///
/// - `mask` is one less than the bytes of a power of two of pages, at most [`NEAR`].
/// - For each slot that `mask` covers, the address in `pages` plus `slot` pages is that of a page
///   of the MR, which is valid for reads and writes during `'a`. A slot that no page of the range
///   has is given the first page.
pub(super) struct NearPages<'a> {
    pages: [MaybeUninit<*mut u8>; NEAR],
    mask: u64,
    _table: PhantomData<&'a ()>,
}

impl NearPages<'_> {
    /// Returns the place of the byte at `offset`, counted from [`PageTable::first`]: an address,
    /// and the number of bytes to add to it. For a byte outside of these pages, the place is in one
    /// of them, too.
    #[inline(always)]
    pub(super) fn place(&self, offset: u64) -> (*mut u8, usize) {
        let place = (offset & self.mask) as usize;
        // SAFETY: By the type invariant: `mask` covers slots with a page only.
        let page = unsafe { self.pages.get_unchecked(place / PAGE_SIZE).assume_init() };
        (page, place)
    }
}
