// SPDX-License-Identifier: GPL-2.0

//! Blocks of single pages of a NUMA node.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// The NUMA node of the pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// This node if it has free memory; negative for no preference.
    Near(i32),
    /// This node or none.
    Only(i32),
}

impl Node {
    /// Returns `true` if the node has memory.
    pub(crate) fn is_present(node: i32) -> bool {
        // SAFETY: No preconditions.
        unsafe { bindings::node_has_memory(node) }
    }

    /// Allocates a block of `1 << order` single pages and returns the first one.
    pub(super) fn allocate(self, order: u32) -> Result<NonNull<bindings::page>> {
        let (node, strict) = match self {
            Node::Near(node) => (node, false),
            Node::Only(node) => (node, true),
        };
        // SAFETY: `node` is a node that exists, or negative for none.
        let page = unsafe { bindings::alloc_pages_mayfail(node, strict, order) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        if order > 0 {
            // SAFETY: The block was allocated above, and is not a compound page.
            unsafe { bindings::split_page(page.as_ptr(), order) };
        }
        Ok(page)
    }
}

/// Pages that follow each other. The kernel has them mapped.
///
/// # Invariants
///
/// `first` is the first of `count` single pages that are allocated and that only this owns.
pub(super) struct RamBlock {
    first: NonNull<bindings::page>,
    count: usize,
}

impl RamBlock {
    /// Allocates `count` pages, at most `1 << order`, at a multiple of `1 << order` pages.
    pub(super) fn new(node: Node, order: u32, count: usize) -> Result<Self> {
        let first = node.allocate(order)?;
        // INVARIANT: The block was allocated and split.
        let mut this = Self {
            first,
            count: 1 << order,
        };
        this.truncate(count);
        Ok(this)
    }

    /// Frees all pages after the first `count`.
    fn truncate(&mut self, count: usize) {
        while self.count > count {
            // INVARIANT: The last page is freed below.
            self.count -= 1;
            // SAFETY: By the type invariant; there were more than `count` pages.
            unsafe {
                let last = bindings::nth_page(self.first.as_ptr(), self.count);
                bindings::__free_pages(last, 0);
            }
        }
    }

    /// Returns the address at which the pages are mapped.
    pub(super) fn start(&self) -> Result<NonNull<u8>> {
        // SAFETY: By the type invariant. Memory for the kernel's own use is always mapped.
        let start = unsafe { bindings::mapped_page_address(self.first.as_ptr()) };
        NonNull::new(start.cast()).ok_or(ENOMEM)
    }
}

impl Drop for RamBlock {
    fn drop(&mut self) {
        self.truncate(0);
    }
}
