// SPDX-License-Identifier: GPL-2.0

//! The operations of an exported dma-buf, which the dma-buf core calls, and those of mappings by
//! processes, which the kernel calls for page faults.
//!
//! C headers: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h),
//! [`include/linux/mm.h`](srctree/include/linux/mm.h)

use super::{Backing, Export, Shared};
use crate::{bindings, kernel_ext::error::eopnotsupp};
use kernel::{
    error::{from_result, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable,
};

/// A mapping for one importer.
#[repr(C)]
struct Mapping<T: Backing> {
    table: bindings::sg_table,
    device: *mut bindings::device,
    /// Keeps the pages of `table` allocated.
    _memory: Arc<T>,
}

impl<T: Backing> Export<T> {
    pub(super) const OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
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
        let mut ops: bindings::vm_operations_struct = pin_init::zeroed();
        ops.fault = Some(Self::fault);
        ops
    };

    /// The operations of a mapping of a view. With them, the kernel maps each page read-only first.
    const VIEW_VM_OPS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        pfn_mkwrite: Some(Self::pfn_mkwrite),
        ..Self::VM_OPS
    };

    /// The operations of a view.
    pub(super) const VIEW_OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
        vmap: None,
        vunmap: None,
        ..Self::OPS
    };

    /// # Safety
    ///
    /// Only the dma-buf core may call this, as `dma_buf_ops.attach`.
    unsafe extern "C" fn attach(
        raw: *mut bindings::dma_buf,
        attachment: *mut bindings::dma_buf_attachment,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core calls with a dma-buf of this type and a new attachment.
            let (memory, attachment) = unsafe { (Self::memory(raw)?, &*attachment) };
            // SAFETY: As above.
            if unsafe { Self::shared(raw) }.view.is_some() {
                return Err(eopnotsupp());
            }
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
    /// Only the dma-buf core may call this, as `dma_buf_ops.map_dma_buf`.
    unsafe extern "C" fn map(
        attachment: *mut bindings::dma_buf_attachment,
        direction: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table {
        let map = || {
            // SAFETY: The core calls with an attachment to a dma-buf of this type.
            let (memory, device) = unsafe {
                let attachment = &*attachment;
                (Self::memory(attachment.dmabuf)?, attachment.dev)
            };
            // This is the size of the dma-buf.
            let len = memory.memory().num_pages() << bindings::PAGE_SHIFT;
            let room = KBox::new_uninit(GFP_KERNEL)?;
            // SAFETY: The attachment has a device.
            let max_segment = unsafe { bindings::dma_get_max_seg_size(device) };
            let mut table = memory.memory().sgt(0, len, max_segment)?;
            // SAFETY: The table has been made above.
            unsafe {
                let mapped = bindings::dma_map_sgtable(device, &mut table, direction, 0);
                to_result(mapped).inspect_err(|_| bindings::sg_free_table(&mut table))?;
            }
            let mapping = room.write(Mapping {
                table,
                device,
                _memory: memory,
            });
            Ok(KBox::into_raw(mapping).cast())
        };
        map().unwrap_or_else(|err: Error| err.to_ptr())
    }

    /// # Safety
    ///
    /// Only the dma-buf core may call this, as `dma_buf_ops.unmap_dma_buf`.
    unsafe extern "C" fn unmap(
        _attachment: *mut bindings::dma_buf_attachment,
        table: *mut bindings::sg_table,
        direction: bindings::dma_data_direction,
    ) {
        // SAFETY: Called once with the pointer that `map()` returned: `table` is the first field.
        unsafe {
            let mut mapping = KBox::from_raw(table.cast::<Mapping<T>>());
            bindings::dma_unmap_sgtable(mapping.device, &raw mut mapping.table, direction, 0);
            bindings::sg_free_table(&raw mut mapping.table);
        }
    }

    /// # Safety
    ///
    /// Only the dma-buf core may call this, as `dma_buf_ops.release`.
    pub(super) unsafe extern "C" fn release(raw: *mut bindings::dma_buf) {
        // SAFETY: Called once, after the last reference to the dma-buf was dropped.
        drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign((*raw).priv_) });
    }

    /// # Safety
    ///
    /// Only the dma-buf core may call this, as `dma_buf_ops.mmap`.
    unsafe extern "C" fn mmap(
        raw: *mut bindings::dma_buf,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core calls with a dma-buf of this type and a new mapping of at most the
            // dma-buf's size. The mapping holds the dma-buf's file, and with it `priv_`.
            unsafe {
                let memory = Self::memory(raw)?;
                // A private mapping would not see what others write.
                if !bindings::vma_is_shared(vma) {
                    return Err(EINVAL);
                }
                let uncached = memory.memory().provider().is_some();
                bindings::vma_set_device_memory(vma, uncached);
                (*vma).vm_private_data = raw.cast();
                (*vma).vm_ops = match Self::shared(raw).view {
                    Some(_) => &Self::VIEW_VM_OPS,
                    None => &Self::VM_OPS,
                };
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only the dma-buf core may call this, as `dma_buf_ops.vmap`, while there is no such mapping.
    unsafe extern "C" fn vmap(raw: *mut bindings::dma_buf, map: *mut bindings::iosys_map) -> c_int {
        from_result(|| {
            // SAFETY: The core calls with a dma-buf of this type and a valid `map`.
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
    /// Only the dma-buf core may call this, as `dma_buf_ops.vunmap`, after the last user has
    /// released the mapping.
    unsafe extern "C" fn vunmap(raw: *mut bindings::dma_buf, _map: *mut bindings::iosys_map) {
        // SAFETY: The core calls with a dma-buf of this type.
        let memory = unsafe { Self::shared(raw) }.mapped.lock().take();
        // This may be the last reference to the memory.
        drop(memory);
    }

    /// # Safety
    ///
    /// Only the kernel may call this, as `vm_operations_struct.fault` of mappings that `mmap()`
    /// made.
    unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: The kernel calls with a fault of a mapping that `mmap()` made.
        let (vma, page, address) = unsafe {
            let at = &(*vmf).__bindgen_anon_1;
            (at.vma, at.pgoff, at.address)
        };
        // SAFETY: `mmap()` set `vm_private_data`, and the mapping holds the dma-buf.
        let shared = unsafe { Self::shared((*vma).vm_private_data.cast()) };
        // The lock is held until the page is mapped, so that a revocation after that unmaps it.
        let memory = shared.memory.lock();
        match shared.page(memory.as_ref(), page) {
            // SAFETY: The mapping is VM_MIXEDMAP; the page stays allocated while it is mapped.
            Some(page) => unsafe {
                bindings::vmf_insert_mixed(vma, address, bindings::page_to_pfn(page))
            },
            None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}

impl<T: Backing> Export<T> {
    /// Refuses writes to the page that says whether a view is revoked.
    ///
    /// # Safety
    ///
    /// Only the kernel may call this, as `vm_operations_struct.pfn_mkwrite` of mappings that
    /// `mmap()` made.
    unsafe extern "C" fn pfn_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: The kernel calls with a fault of a mapping that `mmap()` made. That set
        // `vm_private_data`, and the mapping holds the dma-buf.
        let (page, shared) = unsafe {
            let at = &(*vmf).__bindgen_anon_1;
            (at.pgoff, Self::shared((*at.vma).vm_private_data.cast()))
        };
        match &shared.view {
            Some(view) if page < view.pages => 0,
            _ => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}
