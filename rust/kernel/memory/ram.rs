// SPDX-License-Identifier: GPL-2.0

//! Memory of the page allocator.

use super::{block::RamBlock, SharedMemory, Source, MAX_LOG_ALIGN};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{alloc::allocator::KVmalloc, page::PAGE_SHIFT, prelude::*};

pub(crate) use super::block::Node;

/// Returns the bytes of RAM that the machine has.
pub(crate) fn total() -> u64 {
    // SAFETY: No preconditions.
    let pages = unsafe { bindings::ram_pages() };
    (pages as u64) << PAGE_SHIFT
}

/// Pages that will be mapped as one area.
///
/// # Invariants
///
/// Each is a single page that is allocated and that only this owns.
struct RamPages(Vec<*mut bindings::page, KVmalloc>);

impl RamPages {
    /// Adds `1 << order` pages that follow each other.
    fn add(&mut self, node: Node, order: u32) -> Result {
        self.0.reserve(1 << order, GFP_KERNEL)?;
        let page = node.allocate(order)?.as_ptr();
        for index in 0..1_usize << order {
            // SAFETY: `index` is less than the number of pages in the block.
            let page = unsafe { bindings::nth_page(page, index) };
            // INVARIANT: A page of the block, which was split.
            self.0.push(page, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Frees all pages after the first `count`.
    fn truncate(&mut self, count: usize) {
        while self.0.len() > count {
            if let Some(page) = self.0.pop() {
                // SAFETY: By the type invariant.
                unsafe { bindings::__free_pages(page, 0) };
            }
        }
    }

    /// Maps the pages as one area.
    fn map(mut self) -> Result<NonNull<u8>> {
        let count = u32::try_from(self.0.len())?;
        let pages = core::mem::take(&mut self.0);
        let (array, len, capacity) = pages.into_raw_parts();
        // SAFETY: The array is kvmalloc'ed. On success, the area owns the array and the pages.
        let start = unsafe { bindings::vmap_put_pages(array, count) };
        NonNull::new(start.cast()).ok_or_else(|| {
            // SAFETY: These are the parts of the vector. The area was not made, so it owns nothing.
            self.0 = unsafe { Vec::from_raw_parts(array, len, capacity) };
            ENOMEM
        })
    }
}

impl Drop for RamPages {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

impl SharedMemory {
    /// Allocates `len` bytes of RAM, at a physical address that is a multiple of `1 << log_align`.
    /// The caller's cgroup is charged.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes or an alignment above [`MAX_LOG_ALIGN`], `ENOMEM`.
    pub(crate) fn ram(len: usize, log_align: u32, node: Node) -> Result<Self> {
        if len == 0 || log_align > MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        let count = Self::pages_of(len);
        // The page allocator aligns a block to its size.
        let order = log_align.saturating_sub(PAGE_SHIFT as u32);
        if count <= 1 << order {
            let block = RamBlock::new(node, order, count)?;
            // INVARIANT: These are `count` pages of the kernel's linear mapping.
            return Ok(Self {
                start: block.start()?,
                pages: count,
                len,
                source: Source::Block { _block: block },
            });
        }
        let mut pages = RamPages(Vec::new());
        pages.0.reserve(count, GFP_KERNEL)?;
        pages.add(node, order)?;
        pages.truncate(count);
        while pages.0.len() < count {
            pages.add(node, 0)?;
        }
        // INVARIANT: `vmap()` made a vmalloc'ed area of `count` pages.
        Ok(Self {
            start: pages.map()?,
            pages: count,
            len,
            source: Source::Ram,
        })
    }
}
