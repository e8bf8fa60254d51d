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
    sync::{
        aref::{ARef, AlwaysRefCounted},
        Arc,
    },
    types::Opaque,
};

/// A dma-buf.
#[repr(transparent)]
pub(crate) struct DmaBuf(Opaque<bindings::dma_buf>);

// SAFETY: Any thread may use a dma-buf.
unsafe impl Send for DmaBuf {}
// SAFETY: Any thread may use a dma-buf, also several at once.
unsafe impl Sync for DmaBuf {}

// SAFETY: The file counts the references to a dma-buf.
unsafe impl AlwaysRefCounted for DmaBuf {
    fn inc_ref(&self) {
        // SAFETY: The dma-buf has a reference, and so has its file.
        unsafe { bindings::get_file((*self.as_raw()).file) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirement.
        unsafe { bindings::dma_buf_put(obj.as_ptr().cast()) };
    }
}

impl DmaBuf {
    /// Takes over the reference that a function returns.
    ///
    /// # Safety
    ///
    /// `raw` must be an error pointer, or a dma-buf with a reference that is given up.
    unsafe fn from_new(raw: *mut bindings::dma_buf) -> Result<ARef<Self>> {
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // SAFETY: By the safety requirement, and the type is transparent.
        Ok(unsafe { ARef::from_raw(raw.cast()) })
    }

    fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.get()
    }

    /// Locks the dma-buf. This thread must not hold the lock.
    fn lock(&self) -> Result<Locked<'_>> {
        // SAFETY: The dma-buf is valid.
        to_result(unsafe { bindings::dma_resv_lock((*self.as_raw()).resv, ptr::null_mut()) })?;
        Ok(Locked(self))
    }
}

/// A dma-buf whose lock this thread holds.
struct Locked<'a>(&'a DmaBuf);

impl Locked<'_> {
    /// Tells the importers that they must not use their mappings any more.
    fn invalidate_mappings(&self) {
        // SAFETY: The dma-buf is valid, and its lock is held.
        unsafe { bindings::dma_buf_invalidate_mappings(self.0.as_raw()) };
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: This thread took the lock.
        unsafe { bindings::dma_resv_unlock((*self.0.as_raw()).resv) };
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
    buffer: ARef<DmaBuf>,
}

// SAFETY: Any thread may use a dma-buf and its mapping.
unsafe impl Send for Mapped {}
// SAFETY: Any thread may use a dma-buf and its mapping, also several at once.
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
        // SAFETY: The function returns a dma-buf with a reference, or an error.
        let buffer = unsafe { DmaBuf::from_new(bindings::dma_buf_get(fd)) }?;
        let raw = buffer.as_raw();
        // SAFETY: The dma-buf is valid, and every dma-buf has operations.
        unsafe {
            if (*(*raw).ops).vmap.is_none() || (*(*raw).ops).pin.is_some() {
                return Err(eopnotsupp());
            }
            if writes && !bindings::dma_buf_is_writable(raw) {
                return Err(EACCES);
            }
        }
        let mut map = bindings::iosys_map::default();
        {
            let _locked = buffer.lock()?;
            check(&buffer)?;
            // SAFETY: The dma-buf is valid, and its lock is held.
            to_result(unsafe { bindings::dma_buf_vmap(raw, &mut map) })?;
        }
        let begun = if map.is_iomem {
            Err(eopnotsupp())
        } else {
            // SAFETY: The dma-buf is valid, and mapped.
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
