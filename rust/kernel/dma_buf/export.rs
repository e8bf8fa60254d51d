// SPDX-License-Identifier: GPL-2.0

//! Export of memory as a dma-buf. Processes map the dma-buf, devices use it, and its owner can
//! revoke it.
//!
//! C headers: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h),
//! [`include/linux/mm.h`](srctree/include/linux/mm.h)
//!
//! # Locking
//!
//! `Shared::memory` is taken under `mmap_lock` by page faults and under `dma_resv` by importers.
//! Nothing else is taken under it.
//!
//! # Revocation
//!
//! Nothing new is mapped once `Shared::memory` is empty. Then the pages are unmapped from all
//! processes, and importers are told. An importer that keeps its mapping, for a device or in the
//! kernel, keeps the memory from being freed; it delays nothing else. The dma-buf core shares a
//! mapping in the kernel without asking the exporter, and warns if the exporter refuses a new one.
//! So a caller of `dma_buf_vmap()` calls [`Export::is_revoked`] first, with the dma-buf's lock
//! held.
//!
//! # Views
//!
//! A view is a dma-buf that processes only map, to copy without a system call. Its mapping has one
//! page more than the memory, whose first byte is zero until revocation. Accesses to a revoked view
//! raise no signal: they go to a spare page. A process that finds the byte zero after a copy knows
//! that the copy did not use the spare page, because the byte changes before any page does.

use super::DmaBuf;
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
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{Arc, Mutex},
    types::ForeignOwnable,
};

/// The memory that a dma-buf exports.
pub(crate) trait Backing: Send + Sync + 'static {
    /// A charge for memory.
    type Charge: Send + Sync;

    /// Returns the memory.
    fn memory(&self) -> &SharedMemory;

    /// Charges `bytes` bytes more to the owner of the memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    fn charge(&self, bytes: usize) -> Result<Self::Charge>;
}

/// The private data of a dma-buf.
#[pin_data]
struct Shared<T: Backing> {
    /// [`None`] after revocation.
    #[pin]
    memory: Mutex<Option<Arc<T>>>,
    /// The memory that is mapped in the kernel. The reference keeps it.
    #[pin]
    mapped: Mutex<Option<Arc<T>>>,
    /// The further pages, if this is a view.
    view: Option<View<T::Charge>>,
}

/// The pages that a view has besides the memory. Mappings of the view hold the dma-buf, and thus
/// these pages.
struct View<C> {
    /// The number of pages of the memory.
    pages: usize,
    /// The charge for the two pages, which a mapping keeps after the memory was freed.
    _charge: C,
    /// The page after the memory. Its first byte is not zero after revocation.
    state: Page,
    /// Takes the place of each page of the memory after revocation.
    spare: Page,
}

impl<C> View<C> {
    fn new(backing: &impl Backing<Charge = C>) -> Result<Self> {
        Ok(Self {
            pages: backing.memory().num_pages(),
            _charge: backing.charge(2 * PAGE_SIZE)?,
            state: Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?,
            spare: Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?,
        })
    }

    fn set_revoked(&self) -> Result {
        let revoked = 1_u8;
        // SAFETY: `revoked` is one byte. There is no Rust reference to the page's bytes; processes
        // that mapped it may race with C code.
        unsafe { self.state.write_raw(&revoked, 0, 1) }
    }

    /// Returns page `index`, which is not one of `memory`.
    fn page(&self, index: usize) -> Option<*mut bindings::page> {
        match index {
            index if index < self.pages => Some(self.spare.as_ptr()),
            index if index == self.pages => Some(self.state.as_ptr()),
            _ => None,
        }
    }
}

impl<T: Backing> Shared<T> {
    /// Takes the memory away.
    fn take(&self) -> Option<Arc<T>> {
        let mut memory = self.memory.lock();
        if let Some(view) = &self.view {
            // The lock is held, so no page fault finds the spare page before this. `set_revoked()`
            // does not fail, because the byte is in the page.
            let _ = view.set_revoked();
        }
        memory.take()
    }

    /// Returns the page that is mapped as page `index` while `memory` is that of the export.
    fn page(&self, memory: Option<&Arc<T>>, index: usize) -> Option<*mut bindings::page> {
        memory
            .and_then(|backing| backing.memory().page(index))
            .or_else(|| self.view.as_ref()?.page(index))
    }
}

/// A dma-buf that its owner revokes by dropping this.
///
/// # Invariants
///
/// The pointer is a dma-buf with `OPS` of this type. A reference to it is held.
pub(crate) struct Export<T: Backing> {
    raw: NonNull<bindings::dma_buf>,
    _backing: PhantomData<Arc<T>>,
}

// SAFETY: Any thread may use a dma-buf.
unsafe impl<T: Backing> Send for Export<T> {}
// SAFETY: As above.
unsafe impl<T: Backing> Sync for Export<T> {}

impl<T: Backing> Export<T> {
    /// Makes a dma-buf of `backing`, or a view of it. It holds a reference to `module`, which has its
    /// operations.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a view of memory of a PCI device, which an ordinary copy may not access;
    /// `ENOMEM`.
    pub(crate) fn new(
        backing: Arc<T>,
        is_view: bool,
        name: &'static CStr,
        module: &ThisModule,
    ) -> Result<Self> {
        let mut pages = backing.memory().num_pages();
        let mut view = None;
        let mut ops = &Self::OPS;
        if is_view {
            if backing.memory().provider().is_some() {
                return Err(eopnotsupp());
            }
            view = Some(View::new(&*backing)?);
            pages += 1;
            ops = &Self::VIEW_OPS;
        }
        let size = pages << bindings::PAGE_SHIFT;
        let shared = KBox::pin_init(
            pin_init!(Shared {
                memory <- new_mutex!(Some(backing), "dm export"),
                mapped <- new_mutex!(None, "dm export map"),
                view,
            }),
            GFP_KERNEL,
        )?;
        let info = bindings::dma_buf_export_info {
            exp_name: name.as_char_ptr(),
            owner: module.as_ptr(),
            ops,
            size,
            flags: bindings::O_RDWR as c_int,
            resv: ptr::null_mut(),
            priv_: shared.into_foreign(),
        };
        // SAFETY: Operations and names are static.
        let raw = from_err_ptr(unsafe { bindings::dma_buf_export(&info) }).inspect_err(|_| {
            // SAFETY: `priv_` was set above; no dma-buf was made that owns it.
            drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign(info.priv_) });
        })?;
        // INVARIANT: `raw` was made above, with a reference.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _backing: PhantomData,
        })
    }

    /// Returns the dma-buf with a new reference for the caller.
    pub(crate) fn get(&self) -> *mut bindings::dma_buf {
        let raw = self.raw.as_ptr();
        // SAFETY: By the type invariant; the file counts the references to a dma-buf.
        unsafe { bindings::get_file((*raw).file) };
        raw
    }

    /// Returns `true` if `buffer` is an export of this type that was revoked.
    pub(crate) fn is_revoked(buffer: &DmaBuf) -> bool {
        let raw = buffer.as_raw();
        let release: unsafe extern "C" fn(*mut bindings::dma_buf) = Self::release;
        // SAFETY: `buffer` holds a reference, and the operations of a dma-buf never change.
        let other = unsafe { (*(*raw).ops).release };
        let is_ours = other.is_some_and(|other| ptr::fn_addr_eq(other, release));
        // SAFETY: `new()` made all dma-bufs that have this `release`.
        is_ours && unsafe { Self::memory(raw) }.is_err()
    }

    fn revoke(&self) {
        let raw = self.raw.as_ptr();
        let mut memory = None;
        // SAFETY: By the type invariant. Without an acquire context, the lock is always taken.
        // `vmap()` reads `memory` under this lock.
        unsafe {
            if bindings::dma_resv_lock((*raw).resv, ptr::null_mut()) == 0 {
                memory = Self::shared(raw).take();
                bindings::dma_resv_unlock((*raw).resv);
            }
        }
        // SAFETY: By the type invariant. The file's address space has all mappings by processes,
        // and a page fault from now on finds no memory.
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
        // SAFETY: By the safety requirement; `priv_` is set when the dma-buf is made and never
        // changes.
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
}

impl<T: Backing> Drop for Export<T> {
    fn drop(&mut self) {
        self.revoke();
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_buf_put(self.raw.as_ptr()) };
    }
}

/// A mapping for one importer.
#[repr(C)]
struct Mapping<T: Backing> {
    table: bindings::sg_table,
    device: *mut bindings::device,
    /// Keeps the pages of `table` allocated.
    _memory: Arc<T>,
}

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
    const VIEW_OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
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
    unsafe extern "C" fn release(raw: *mut bindings::dma_buf) {
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
