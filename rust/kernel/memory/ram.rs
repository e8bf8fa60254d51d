// SPDX-License-Identifier: GPL-2.0

//! Memory of the page allocator.

use super::{SharedMemory, Source, MAX_LOG_ALIGN};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{alloc::allocator::KVmalloc, page::PAGE_SHIFT, prelude::*};

/// Returns the bytes of RAM that the machine has.
pub(crate) fn total() -> u64 {
    // SAFETY: No preconditions.
    let pages = unsafe { bindings::ram_pages() };
    (pages as u64) << PAGE_SHIFT
}

/// Which NUMA node the pages are of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// Of this one if it has any; negative for no preference.
    Near(i32),
    /// Of this one or none.
    Only(i32),
}

impl Node {
    /// Has the node memory?
    pub(crate) fn is_present(node: i32) -> bool {
        // SAFETY: No preconditions.
        unsafe { bindings::node_has_memory(node) }
    }
}

/// Pages on their way to be mapped.
///
/// # Invariants
///
/// Each is a page of its own, allocated and not given away.
struct Pages(Vec<*mut bindings::page, KVmalloc>);

impl Pages {
    /// Adds `1 << order` pages that follow each other.
    fn add(&mut self, node: Node, order: u32) -> Result {
        let (node, strict) = match node {
            Node::Near(node) => (node, false),
            Node::Only(node) => (node, true),
        };
        self.0.reserve(1 << order, GFP_KERNEL)?;
        // SAFETY: A node that is there or, negative, none.
        let page = unsafe { bindings::alloc_pages_mayfail(node, strict, order) };
        let page = NonNull::new(page).ok_or(ENOMEM)?.as_ptr();
        if order > 0 {
            // SAFETY: The block was just allocated, and is no compound page.
            unsafe { bindings::split_page(page, order) };
        }
        for index in 0..1_usize << order {
            // SAFETY: `index` is less than the number of pages in the block.
            let page = unsafe { bindings::nth_page(page, index) };
            // INVARIANT: A page of the block, which was split.
            self.0.push(page, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Frees those after the first `count`.
    fn truncate(&mut self, count: usize) {
        while self.0.len() > count {
            if let Some(page) = self.0.pop() {
                // SAFETY: By the type invariant.
                unsafe { bindings::__free_pages(page, 0) };
            }
        }
    }

    /// Maps them one after another.
    fn map(mut self) -> Result<NonNull<u8>> {
        let count = u32::try_from(self.0.len())?;
        let pages = core::mem::take(&mut self.0);
        let (array, len, capacity) = pages.into_raw_parts();
        // SAFETY: The array is kvmalloc'ed; from here on both belong to the area.
        let start = unsafe { bindings::vmap_put_pages(array, count) };
        NonNull::new(start.cast()).ok_or_else(|| {
            // SAFETY: As taken apart above: nothing was mapped, so nothing was given away.
            self.0 = unsafe { Vec::from_raw_parts(array, len, capacity) };
            ENOMEM
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

impl SharedMemory {
    /// Allocates `len` bytes of RAM, at a physical address that is a multiple of
    /// `1 << log_align`. Charged to the caller's cgroup.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes and for an alignment above [`MAX_LOG_ALIGN`], `ENOMEM`.
    pub(crate) fn ram(len: usize, log_align: u32, node: Node) -> Result<Self> {
        if len == 0 || log_align > MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        let count = Self::pages_of(len);
        // A block of that size is aligned to it.
        let order = log_align.saturating_sub(PAGE_SHIFT as u32);
        let mut pages = Pages(Vec::new());
        pages.0.reserve(count, GFP_KERNEL)?;
        pages.add(node, order)?;
        pages.truncate(count);
        while pages.0.len() < count {
            pages.add(node, 0)?;
        }
        // INVARIANT: The area has `count` pages, that of vmap() is a vmalloc'ed one.
        Ok(Self {
            start: pages.map()?,
            pages: count,
            len,
            source: Source::Ram,
        })
    }
}
