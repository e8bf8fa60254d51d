// SPDX-License-Identifier: GPL-2.0

//! dma-bufs: memory as a dma-buf (`export.rs`), and dma-bufs of other exporters, as pages that the
//! kernel can reach.
//!
//! A device that copies with the processor needs no DMA address. It uses the exporter's own kernel
//! mapping, which stays in place as long as the import holds it. Exporters that move their memory
//! (`pin`) are refused, because they can be pinned only for a device that does DMA.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)

mod export;

pub(crate) use export::{Backing, Export};

use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr::{self, NonNull};
use kernel::{
    dma::DataDirection,
    error::{from_err_ptr, to_result},
    ffi::{c_int, c_void},
    page::PAGE_SHIFT,
    prelude::*,
    sync::Arc,
};

/// A reference to a dma-buf.
///
/// # Invariants
///
/// The pointer is a dma-buf. A reference to it is held.
pub(crate) struct DmaBuf(NonNull<bindings::dma_buf>);

impl DmaBuf {
    pub(crate) fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.as_ptr()
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_buf_put(self.0.as_ptr()) };
    }
}

/// A dma-buf that is mapped in the kernel. Clones share the mapping. Dropping the last one sleeps,
/// and the exporter may delay that.
#[derive(Clone)]
pub(crate) struct Import(Arc<Mapped>);

/// # Invariants
///
/// `map` is the mapping that `dma_buf_vmap()` made of the dma-buf. It is memory, not registers of a
/// device, and access by the processor has begun.
struct Mapped {
    map: bindings::iosys_map,
    buffer: DmaBuf,
}

// SAFETY: Any thread may use a dma-buf and its mapping.
unsafe impl Send for Mapped {}
// SAFETY: As above.
unsafe impl Sync for Mapped {}

impl Import {
    /// Maps the dma-buf that `fd` refers to. Sleeps, and the exporter may delay that. `check` runs
    /// first, with the dma-buf's lock held: the core warns about an exporter whose `vmap` fails.
    ///
    /// # Errors
    ///
    /// `EBADF` if `fd` is not open, `EINVAL` if it is not a dma-buf, `EACCES` if `writes` is set
    /// and it is not writable, `EOPNOTSUPP` if the exporter has no kernel mapping that stays in
    /// place, `ENOMEM`; the errors of `check` and of the exporter.
    pub(crate) fn new(
        fd: c_int,
        writes: bool,
        check: impl FnOnce(&DmaBuf) -> Result,
    ) -> Result<Self> {
        // SAFETY: No preconditions.
        let raw = from_err_ptr(unsafe { bindings::dma_buf_get(fd) })?;
        // INVARIANT: `dma_buf_get()` took the reference.
        let buffer = DmaBuf(NonNull::new(raw).ok_or(EBADF)?);
        // SAFETY: A reference to the dma-buf is held, and every dma-buf has operations.
        unsafe {
            if (*(*raw).ops).vmap.is_none() || (*(*raw).ops).pin.is_some() {
                return Err(eopnotsupp());
            }
            if writes && !bindings::dma_buf_is_writable(raw) {
                return Err(EACCES);
            }
        }
        let mut map = bindings::iosys_map::default();
        // SAFETY: As above; this thread does not hold the dma-buf's lock. Without an acquire
        // context, the lock is always taken.
        to_result(unsafe { bindings::dma_resv_lock((*raw).resv, ptr::null_mut()) })?;
        let mapped = check(&buffer).and_then(|()| {
            // SAFETY: As above; the lock is held.
            to_result(unsafe { bindings::dma_buf_vmap(raw, &mut map) })
        });
        // SAFETY: The lock was taken above.
        unsafe { bindings::dma_resv_unlock((*raw).resv) };
        mapped?;
        let begun = if map.is_iomem {
            Err(eopnotsupp())
        } else {
            // SAFETY: As above.
            to_result(unsafe {
                bindings::dma_buf_begin_cpu_access(raw, DataDirection::Bidirectional.into())
            })
        };
        if let Err(err) = begun {
            // SAFETY: The dma-buf was mapped above.
            unsafe { bindings::dma_buf_vunmap_unlocked(raw, &mut map) };
            return Err(err);
        }
        // INVARIANT: Mapped, checked and begun above.
        Ok(Self(Arc::new(Mapped { map, buffer }, GFP_KERNEL_ACCOUNT)?))
    }

    fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.buffer.as_raw()
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        // SAFETY: By the type invariant; the size is set when a dma-buf is made.
        unsafe { (*self.as_raw()).size as u64 }
    }

    /// Returns page `index`, or [`None`] if the kernel has no `struct page` for it.
    fn page(&self, index: u64) -> Option<*mut bindings::page> {
        if index >= self.len() >> PAGE_SHIFT {
            return None;
        }
        // SAFETY: By the type invariant, the union holds an address and the mapping has that many
        // pages.
        let page = unsafe {
            let start = self.0.map.__bindgen_anon_1.vaddr.cast::<u8>();
            let at: *const c_void = start.add((index as usize) << PAGE_SHIFT).cast();
            bindings::page_of_mapping(at)
        };
        (!page.is_null()).then_some(page)
    }

    /// Returns the pages of `length` bytes from `offset` on. A page is [`None`] if the kernel has
    /// no `struct page` for it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `length` is zero or the range is outside the dma-buf, `ENOMEM` for 2^32 pages or
    /// more.
    pub(crate) fn pages(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<impl ExactSizeIterator<Item = Option<*mut bindings::page>> + '_> {
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if length == 0 || end > self.len() {
            return Err(EINVAL);
        }
        let first = offset >> PAGE_SHIFT;
        let count = u32::try_from(((end - 1) >> PAGE_SHIFT) - first + 1).map_err(|_| ENOMEM)?;
        Ok((0..count).map(move |index| self.page(first + u64::from(index))))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let raw = self.buffer.as_raw();
        // SAFETY: By the type invariant.
        unsafe {
            bindings::dma_buf_end_cpu_access(raw, DataDirection::Bidirectional.into());
            bindings::dma_buf_vunmap_unlocked(raw, &mut self.map);
        }
    }
}
