// SPDX-License-Identifier: GPL-2.0

//! Memory that remote peers and devices access, of one of several kinds.
//!
//! `p2p.rs` has memory of a PCI device, published for its peers, and `pmem.rs` persistent memory of
//! a DAX device.

mod p2p;
mod pmem;

pub(crate) use p2p::Provider;
pub(crate) use pmem::PmemRegion;

use crate::{bindings, kernel_ext::sync::racing::copy_racing};
use core::{mem::MaybeUninit, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_void,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::Arc,
};

/// Largest alignment, as a power of two. The page allocator has no larger block.
pub(crate) const MAX_LOG_ALIGN: u32 = PAGE_SHIFT as u32 + bindings::MAX_PAGE_ORDER;

/// Returns the bytes of RAM that the machine has.
pub(crate) fn total_ram() -> u64 {
    // SAFETY: No preconditions.
    let pages = unsafe { bindings::ram_pages() };
    (pages as u64) << PAGE_SHIFT
}

/// Returns `true` if the NUMA node has memory.
pub(crate) fn node_has_memory(node: i32) -> bool {
    // SAFETY: No preconditions.
    unsafe { bindings::node_has_memory(node) }
}

/// A source of [`SharedMemory`].
#[derive(Clone)]
pub(crate) enum Source {
    /// RAM of this node if it has free memory; negative for no preference.
    Near(i32),
    /// RAM of this node only.
    Node(i32),
    /// Memory of a PCI device.
    P2p(Provider),
    /// Persistent memory.
    Pmem(Arc<PmemRegion>),
}

impl Source {
    /// Returns `true` if the source can still give memory. A device that was removed and added
    /// again is another source.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Pmem(region) => region.is_there(),
            _ => true,
        }
    }

    /// Returns the number of bytes that memory takes for its alignment, besides its pages: the
    /// allocator of a PCI device aligns to pages only.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an alignment of 2^64 or more.
    pub(crate) fn slack(&self, log_align: u32) -> Result<usize> {
        match self {
            Self::P2p(_) => {
                let align = 1_usize.checked_shl(log_align).ok_or(EINVAL)?;
                Ok(align.max(PAGE_SIZE) - PAGE_SIZE)
            }
            _ => Ok(0),
        }
    }

    /// Allocates `len` zeroed bytes, at a physical address that is a multiple of `1 << log_align`.
    /// RAM is charged to the caller's cgroup.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes or an alignment above [`MAX_LOG_ALIGN`]; `ENOMEM`; `EOPNOTSUPP` if the
    /// driver of the persistent memory is unbound.
    pub(crate) fn allocate(&self, len: usize, log_align: u32) -> Result<SharedMemory> {
        if len == 0 || log_align > MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        let pages = SharedMemory::pages_of(len);
        let bytes = pages.checked_mul(PAGE_SIZE).ok_or(ENOMEM)?;
        let (start, owner) = match self {
            Self::Near(node) => (ram(*node, false, log_align, pages)?, Owner::Ram),
            Self::Node(node) => (ram(*node, true, log_align, pages)?, Owner::Ram),
            Self::P2p(provider) => {
                let slack = self.slack(log_align)?;
                let piece = provider.allocate(bytes.checked_add(slack).ok_or(ENOMEM)?)?;
                let start = piece.start();
                let skip = start.as_ptr().align_offset(slack + PAGE_SIZE).min(slack);
                // SAFETY: The piece has `slack` bytes more.
                (unsafe { start.add(skip) }, Owner::P2p(piece))
            }
            Self::Pmem(region) => {
                let piece = region.allocate(bytes, log_align.max(PAGE_SHIFT as u32))?;
                (piece.start(), Owner::Pmem { _piece: piece })
            }
        };
        if !matches!(owner, Owner::Ram) {
            // SAFETY: The piece has as many bytes, is mapped and has no other user.
            unsafe { start.as_ptr().write_bytes(0, bytes) };
        }
        // INVARIANT: RAM is in a vmalloc'ed area. All memory of `pci_alloc_p2pmem()` is mapped and
        // has pages, and so has that of a `PmemPiece`.
        Ok(SharedMemory {
            start,
            pages,
            len,
            owner,
        })
    }
}

/// Allocates zeroed pages in a vmalloc'ed area.
fn ram(node: i32, strict: bool, log_align: u32, pages: usize) -> Result<NonNull<u8>> {
    // The page allocator aligns a block to its size.
    let order = log_align.saturating_sub(PAGE_SHIFT as u32);
    let count = u32::try_from(pages)?;
    // SAFETY: `node` is a node that exists, or negative for none.
    let start = unsafe { bindings::valloc_aligned(node, strict, order, count) };
    NonNull::new(start.cast()).ok_or(ENOMEM)
}

/// The owner of memory.
enum Owner {
    /// A vmalloc'ed area.
    Ram,
    P2p(p2p::P2pPiece),
    Pmem {
        _piece: pmem::PmemPiece,
    },
}

/// Memory that others, such as the RDMA device, read and write at any time. It is zero at first.
///
/// There is never a reference to its bytes. Copies race with the other writers, as copies to a
/// device's own memory would.
///
/// # Invariants
///
/// `start` is the first of `pages * PAGE_SIZE` bytes that are mapped in the kernel, each page with
/// a `struct page`, until `owner` is dropped. For [`Owner::Ram`] it is a vmalloc'ed area.
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    pages: usize,
    len: usize,
    owner: Owner,
}

// SAFETY: The memory is plain bytes. Any thread may copy them.
unsafe impl Send for SharedMemory {}
// SAFETY: Any thread may copy the bytes, also several at once.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Returns the number of pages that `len` bytes take.
    pub(crate) fn pages_of(len: usize) -> usize {
        len.div_ceil(PAGE_SIZE)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address at which the memory is mapped in the kernel.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the length in pages.
    pub(crate) fn num_pages(&self) -> usize {
        self.pages
    }

    /// Returns `true` if flushed bytes outlast a loss of power.
    pub(crate) fn is_persistent(&self) -> bool {
        matches!(self.owner, Owner::Pmem { .. })
    }

    /// Returns the PCI device that has the memory, or [`None`] for memory that is not a PCI
    /// device's.
    pub(crate) fn provider(&self) -> Option<&Provider> {
        match &self.owner {
            Owner::P2p(piece) => Some(piece.provider()),
            _ => None,
        }
    }

    /// Returns page `index`.
    pub(crate) fn page(&self, index: usize) -> Option<*mut bindings::page> {
        if index >= self.pages {
            return None;
        }
        // SAFETY: By the type invariant, the address is mapped and has a page. Memory of
        // [`Owner::Ram`] is in a vmalloc'ed area, other memory is in the kernel's linear mapping.
        Some(unsafe {
            let address = self.start.as_ptr().add(index << PAGE_SHIFT).cast();
            match self.owner {
                Owner::Ram => bindings::vmalloc_to_page(address),
                Owner::P2p(_) | Owner::Pmem { .. } => bindings::virt_to_page(address),
            }
        })
    }

    /// Returns the pages, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = *mut bindings::page> + '_ {
        (0..self.pages).map_while(|index| self.page(index))
    }

    /// Makes a table of the pages of `len` bytes from `offset` on, in segments of at most
    /// `max_segment` bytes. The range may extend to the end of the last page. The caller frees the
    /// table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is zero or the range is outside the memory, `ENOMEM`.
    pub(crate) fn sgt(
        &self,
        offset: usize,
        len: usize,
        max_segment: u32,
    ) -> Result<bindings::sg_table> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end > self.pages << PAGE_SHIFT {
            return Err(EINVAL);
        }
        let range = offset >> PAGE_SHIFT..end.div_ceil(PAGE_SIZE);
        let mut pages = KVVec::with_capacity(range.len(), GFP_KERNEL)?;
        for page in range.map_while(|index| self.page(index)) {
            pages.push(page, GFP_KERNEL)?;
        }
        let mut table = bindings::sg_table::default();
        // SAFETY: The array has that many pages.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                &mut table,
                pages.as_mut_ptr(),
                u32::try_from(pages.len())?,
                (offset & (PAGE_SIZE - 1)) as u32,
                len,
                max_segment,
                bindings::GFP_KERNEL,
            )
        })?;
        Ok(table)
    }

    /// Returns the address of `len` bytes at `offset`, and `len` as a `usize`. Checks the range.
    fn at(&self, offset: u64, len: u64) -> Result<(NonNull<u8>, usize)> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len as u64 {
            return Err(EINVAL);
        }
        let len = usize::try_from(len)?;
        // SAFETY: `offset` is at most the length of the allocation.
        let at = unsafe { self.start.add(usize::try_from(offset)?) };
        Ok((at, len))
    }

    /// Copies all of `from` to `offset`. May be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory.
    pub(crate) fn write(&self, offset: u64, from: &[MaybeUninit<u8>]) -> Result {
        let (to, len) = self.at(offset, from.len() as u64)?;
        // SAFETY: `at()` checked the range. `from` does not overlap it, because there is no
        // reference to the bytes of the memory.
        unsafe { copy_racing(to.as_ptr(), from.as_ptr().cast(), len) };
        Ok(())
    }

    /// Copies from `offset` to all of `to`. May be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory.
    pub(crate) fn read(&self, offset: u64, to: &mut [MaybeUninit<u8>]) -> Result {
        let (from, len) = self.at(offset, to.len() as u64)?;
        // SAFETY: `at()` checked the range. `to` does not overlap it, because there is no reference
        // to the bytes of the memory.
        unsafe { copy_racing(to.as_mut_ptr().cast(), from.as_ptr(), len) };
        Ok(())
    }

    /// Copies `len` bytes between `offset` and user address `addr`: from the user address if
    /// `from_user`, else to it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory; `EFAULT` for user memory that cannot be accessed.
    /// The bytes before that user memory are copied then.
    pub(crate) fn copy_user(&self, offset: u64, addr: u64, len: u64, from_user: bool) -> Result {
        let (at, len) = self.at(offset, len)?;
        let (memory, user) = (at.as_ptr().cast(), usize::try_from(addr)? as *mut c_void);
        // SAFETY: `at()` checked the range; the functions check the user address.
        let left = unsafe {
            if from_user {
                bindings::copy_from_user(memory, user, len)
            } else {
                bindings::copy_to_user(user, memory, len)
            }
        };
        (left == 0).then_some(()).ok_or(EFAULT)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Owner::Ram = self.owner {
            // SAFETY: By the type invariant; only this frees the area.
            unsafe { bindings::vfree(self.start.as_ptr().cast()) };
        }
    }
}
