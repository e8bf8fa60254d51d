// SPDX-License-Identifier: GPL-2.0

//! Memory as a dma-buf: mapped by processes, used by devices, taken back when it is freed.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)
//!
//! # Locking
//!
//! `Shared::memory` is taken under `mmap_lock` by page faults and under `dma_resv` by importers.
//! Nothing else is taken under it.
//!
//! # Revocation
//!
//! From the moment at which `Shared::memory` is empty, nothing new is mapped; then the pages are
//! taken out of all processes and importers are told. An importer that keeps its mapping, for a
//! device or in the kernel, keeps the memory from being freed, and nothing else. A mapping in the
//! kernel that is there already is shared by the dma-buf's core, without a question, and one that is
//! refused is warned about: who takes one asks [`Export::is_revoked`], with the dma-buf's lock held.

use super::import::DmaBuf;
use crate::{
    bindings,
    kernel_ext::{error::eopnotsupp, memory::SharedMemory},
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};
use kernel::{
    error::{from_err_ptr, from_result, to_result},
    ffi::c_int,
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    types::ForeignOwnable,
};

/// What is behind a dma-buf.
pub(crate) trait Backing: Send + Sync + 'static {
    /// Returns the memory.
    fn memory(&self) -> &SharedMemory;
}

/// What the operations of a dma-buf find.
#[pin_data]
struct Shared<T: Backing> {
    /// [`None`] once it was revoked.
    #[pin]
    memory: Mutex<Option<Arc<T>>>,
    /// Keeps what is mapped in the kernel.
    #[pin]
    mapped: Mutex<Option<Arc<T>>>,
}

/// The memory of one importer.
#[repr(C)]
struct Mapping<T: Backing> {
    table: bindings::sg_table,
    device: *mut bindings::device,
    /// Keeps the pages of `table`.
    _memory: Arc<T>,
}

/// A dma-buf that its owner can revoke, which is done on drop.
///
/// # Invariants
///
/// The pointer is a dma-buf with `OPS` of this type, of which a reference is held.
pub(crate) struct Export<T: Backing> {
    raw: NonNull<bindings::dma_buf>,
    _backing: PhantomData<Arc<T>>,
}

// SAFETY: What is done with the dma-buf may be done by any thread.
unsafe impl<T: Backing> Send for Export<T> {}
// SAFETY: As above.
unsafe impl<T: Backing> Sync for Export<T> {}

impl<T: Backing> Export<T> {
    const OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
        attach: Some(Self::attach),
        detach: None,
        pin: None,
        unpin: None,
        map_dma_buf: Some(Self::map),
        unmap_dma_buf: Some(Self::unmap),
        release: Some(Self::release),
        begin_cpu_access: None,
        end_cpu_access: None,
        mmap: Some(Self::mmap),
        vmap: Some(Self::vmap),
        vunmap: Some(Self::vunmap),
    };

    const VM_OPS: bindings::vm_operations_struct = {
        // SAFETY: All-zero are absent operations.
        let mut ops: bindings::vm_operations_struct =
            unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
        ops.fault = Some(Self::fault);
        ops
    };

    /// Makes a dma-buf of `backing`. It keeps `module`, whose code it runs.
    pub(crate) fn new(backing: Arc<T>, name: &'static CStr, module: &ThisModule) -> Result<Self> {
        let size = backing.memory().num_pages() << bindings::PAGE_SHIFT;
        let shared = KBox::pin_init(
            pin_init!(Shared {
                memory <- new_mutex!(Some(backing), "dm export"),
                mapped <- new_mutex!(None, "dm export map"),
            }),
            GFP_KERNEL,
        )?;
        let info = bindings::dma_buf_export_info {
            exp_name: name.as_char_ptr(),
            owner: module.as_ptr(),
            ops: &Self::OPS,
            size,
            flags: bindings::O_RDWR as c_int,
            resv: ptr::null_mut(),
            priv_: shared.into_foreign(),
        };
        // SAFETY: Operations and names are static.
        let raw = from_err_ptr(unsafe { bindings::dma_buf_export(&info) }).inspect_err(|_| {
            // SAFETY: As given above; there is no dma-buf that has it.
            drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign(info.priv_) });
        })?;
        // INVARIANT: As just made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _backing: PhantomData,
        })
    }

    /// Returns the dma-buf with a reference for the caller.
    pub(crate) fn get(&self) -> *mut bindings::dma_buf {
        let raw = self.raw.as_ptr();
        // SAFETY: By the type invariant; a dma-buf's references are those of its file.
        unsafe { bindings::get_file((*raw).file) };
        raw
    }

    /// Is `buffer` one of these, and was it taken back?
    pub(crate) fn is_revoked(buffer: &DmaBuf) -> bool {
        let raw = buffer.as_raw();
        let release: unsafe extern "C" fn(*mut bindings::dma_buf) = Self::release;
        // SAFETY: `buffer` has a reference, and a dma-buf has the same operations for good.
        let other = unsafe { (*(*raw).ops).release };
        let is_ours = other.is_some_and(|other| ptr::fn_addr_eq(other, release));
        // SAFETY: What is released as one of these was made by `new()`.
        is_ours && unsafe { Self::memory(raw) }.is_err()
    }

    fn revoke(&self) {
        let raw = self.raw.as_ptr();
        let mut memory = None;
        // SAFETY: By the type invariant. Without a context that could be told to back off the lock
        // is always taken. Who maps in the kernel looks for the memory under it.
        unsafe {
            if bindings::dma_resv_lock((*raw).resv, ptr::null_mut()) == 0 {
                memory = Self::shared(raw).memory.lock().take();
                bindings::dma_resv_unlock((*raw).resv);
            }
        }
        // SAFETY: By the type invariant. Mappings of the file are in its address space, and
        // whoever maps now finds no memory.
        unsafe {
            bindings::unmap_mapping_range((*(*raw).file).f_mapping, 0, 0, 1);
            if bindings::dma_resv_lock((*raw).resv, ptr::null_mut()) == 0 {
                bindings::dma_buf_invalidate_mappings(raw);
                bindings::dma_resv_unlock((*raw).resv);
            }
        }
        drop(memory);
    }

    /// # Safety
    ///
    /// `raw` must be a dma-buf with `OPS` of this type, for `'a`.
    unsafe fn shared<'a>(raw: *mut bindings::dma_buf) -> Pin<&'a Shared<T>> {
        // SAFETY: By the safety requirement; `priv` is set when it is made, for good.
        unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::borrow((*raw).priv_) }
    }

    /// # Safety
    ///
    /// As for [`Self::shared`].
    unsafe fn memory(raw: *mut bindings::dma_buf) -> Result<Arc<T>> {
        // SAFETY: By the safety requirement.
        unsafe { Self::shared(raw) }
            .memory
            .lock()
            .clone()
            .ok_or(ENODEV)
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `attach`.
    unsafe extern "C" fn attach(
        raw: *mut bindings::dma_buf,
        attachment: *mut bindings::dma_buf_attachment,
    ) -> c_int {
        from_result(|| {
            // SAFETY: Called with a dma-buf of ours and a new attachment.
            let (memory, attachment) = unsafe { (Self::memory(raw)?, &*attachment) };
            let Some(provider) = memory.memory().provider() else {
                return Ok(0);
            };
            // SAFETY: The attachment has a device.
            if !attachment.peer2peer || !unsafe { provider.is_reached_by(attachment.dev) } {
                return Err(eopnotsupp());
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `map_dma_buf`.
    unsafe extern "C" fn map(
        attachment: *mut bindings::dma_buf_attachment,
        direction: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table {
        let map = || {
            // SAFETY: Called with an attachment to a dma-buf of ours.
            let (memory, device) = unsafe {
                let attachment = &*attachment;
                (Self::memory(attachment.dmabuf)?, attachment.dev)
            };
            // As the size of the dma-buf.
            let len = memory.memory().num_pages() << bindings::PAGE_SHIFT;
            let mut mapping = KBox::new(
                Mapping {
                    table: bindings::sg_table::default(),
                    device,
                    _memory: memory.clone(),
                },
                GFP_KERNEL,
            )?;
            // SAFETY: The table is freed in `unmap()`, or here, before the memory.
            unsafe {
                let table = &raw mut mapping.table;
                let max_segment = bindings::dma_get_max_seg_size(device);
                memory.memory().fill_sgt(table, 0, len, max_segment)?;
                if let Err(err) = to_result(bindings::dma_map_sgtable(device, table, direction, 0))
                {
                    bindings::sg_free_table(table);
                    return Err(err);
                }
            }
            Ok(KBox::into_raw(mapping).cast())
        };
        map().unwrap_or_else(|err: Error| err.to_ptr())
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `unmap_dma_buf`.
    unsafe extern "C" fn unmap(
        _attachment: *mut bindings::dma_buf_attachment,
        table: *mut bindings::sg_table,
        direction: bindings::dma_data_direction,
    ) {
        // SAFETY: Called once with what `map()` returned, whose first field the table is.
        unsafe {
            let mut mapping = KBox::from_raw(table.cast::<Mapping<T>>());
            bindings::dma_unmap_sgtable(mapping.device, &raw mut mapping.table, direction, 0);
            bindings::sg_free_table(&raw mut mapping.table);
        }
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `release`.
    unsafe extern "C" fn release(raw: *mut bindings::dma_buf) {
        // SAFETY: Called once, when nobody has the dma-buf any more.
        drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign((*raw).priv_) });
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `mmap`.
    unsafe extern "C" fn mmap(
        raw: *mut bindings::dma_buf,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: Called with a dma-buf of ours and a new mapping, within the dma-buf's size.
            // The mapping keeps the dma-buf's file, and with it `priv`.
            unsafe {
                let memory = Self::memory(raw)?;
                // A private copy of memory that others write to is no use to anybody.
                if !bindings::vma_is_shared(vma) {
                    return Err(EINVAL);
                }
                let uncached = memory.memory().provider().is_some();
                bindings::vma_set_device_memory(vma, uncached);
                (*vma).vm_private_data = raw.cast();
                (*vma).vm_ops = &Self::VM_OPS;
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `vmap`, which is called while there is no such mapping.
    unsafe extern "C" fn vmap(raw: *mut bindings::dma_buf, map: *mut bindings::iosys_map) -> c_int {
        from_result(|| {
            // SAFETY: Called with a dma-buf of ours and a place for the answer.
            unsafe {
                let memory = Self::memory(raw)?;
                (*map).__bindgen_anon_1.vaddr = memory.memory().as_ptr().cast();
                (*map).is_iomem = false;
                *Self::shared(raw).mapped.lock() = Some(memory);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for a dma-buf's `vunmap`, which is called when nobody has the mapping any more.
    unsafe extern "C" fn vunmap(raw: *mut bindings::dma_buf, _map: *mut bindings::iosys_map) {
        // SAFETY: Called with a dma-buf of ours.
        let memory = unsafe { Self::shared(raw) }.mapped.lock().take();
        // Perhaps the last reference to it.
        drop(memory);
    }

    /// # Safety
    ///
    /// Only for `vm_operations_struct.fault` of mappings that `mmap()` made.
    unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: Called with a fault of a mapping of ours.
        let (vma, page, address) = unsafe {
            let at = &(*vmf).__bindgen_anon_1;
            (at.vma, at.pgoff, at.address)
        };
        // SAFETY: As set in `mmap()`.
        let shared = unsafe { Self::shared((*vma).vm_private_data.cast()) };
        // Held until the page is in: what is revoked later takes it out again.
        let memory = shared.memory.lock();
        let page = memory
            .as_ref()
            .and_then(|backing| backing.memory().page(page));
        match page {
            // SAFETY: The mapping takes PFNs, and the page is kept as long as it is mapped.
            Some(page) => unsafe {
                bindings::vmf_insert_mixed(vma, address, bindings::page_to_pfn(page))
            },
            None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}

impl<T: Backing> Drop for Export<T> {
    fn drop(&mut self) {
        self.revoke();
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_buf_put(self.raw.as_ptr()) };
    }
}
