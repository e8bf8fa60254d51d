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
    kernel_ext::{
        error::eopnotsupp,
        export_c::{callbacks, FromC},
        memory::SharedMemory,
    },
};
use core::{marker::PhantomData, ptr};
use kernel::{
    error::to_result,
    ffi::c_int,
    new_mutex,
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{aref::ARef, Arc, Mutex},
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
pub(crate) struct Export<T: Backing> {
    buffer: ARef<DmaBuf>,
    _backing: PhantomData<Arc<T>>,
}

impl<T: Backing> Export<T> {
    const OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
        attach: Some(attach::<T>),
        detach: None,
        pin: None,
        unpin: None,
        map_dma_buf: Some(map::<T>),
        unmap_dma_buf: Some(unmap::<T>),
        release: Some(release::<T>),
        begin_cpu_access: None,
        end_cpu_access: None,
        mmap: Some(mmap::<T>),
        vmap: Some(vmap::<T>),
        vunmap: Some(vunmap::<T>),
    };

    const VM_OPS: bindings::vm_operations_struct = {
        let mut ops: bindings::vm_operations_struct = pin_init::zeroed();
        ops.fault = Some(fault::<T>);
        ops
    };

    /// The operations of a mapping of a view. With them, the kernel maps each page read-only first.
    const VIEW_VM_OPS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        pfn_mkwrite: Some(pfn_mkwrite::<T>),
        ..Self::VM_OPS
    };

    /// The operations of a view.
    const VIEW_OPS: bindings::dma_buf_ops = bindings::dma_buf_ops {
        vmap: None,
        vunmap: None,
        ..Self::OPS
    };

    /// Makes a dma-buf of `backing`, or a view of it. It holds a reference to `module`, which has
    /// its operations.
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
        // SAFETY: Operations and names are static. The function returns a dma-buf with a reference,
        // or an error.
        let made = unsafe { DmaBuf::from_new(bindings::dma_buf_export(&info)) };
        let buffer = made.inspect_err(|_| {
            // SAFETY: `priv_` was set above; no dma-buf was made that owns it.
            drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign(info.priv_) });
        })?;
        Ok(Self {
            buffer,
            _backing: PhantomData,
        })
    }

    /// Returns the dma-buf with a new reference for the caller.
    pub(crate) fn get(&self) -> *mut bindings::dma_buf {
        ARef::into_raw(self.buffer.clone()).as_ptr().cast()
    }

    /// Returns `buffer` as an export of this type; [`None`] for one of another exporter.
    fn exported(buffer: &DmaBuf) -> Option<&Exported<T>> {
        let release: unsafe extern "C" fn(*mut bindings::dma_buf) = release::<T>;
        // SAFETY: The operations of a dma-buf never change.
        let other = unsafe { (*(*buffer.as_raw()).ops).release }?;
        // SAFETY: `new()` made all dma-bufs that have this `release`.
        ptr::fn_addr_eq(other, release).then(|| unsafe { FromC::from_c(buffer.as_raw()) })
    }

    /// Returns `true` if `buffer` is an export of this type that was revoked.
    pub(crate) fn is_revoked(buffer: &DmaBuf) -> bool {
        Self::exported(buffer).is_some_and(|exported| exported.memory().is_err())
    }

    fn revoke(&self) -> Result {
        let locked = self.buffer.lock()?;
        // `vmap()` reads the memory under this lock.
        let memory = Self::exported(&self.buffer).and_then(|exported| exported.shared().take());
        drop(locked);
        let raw = self.buffer.as_raw();
        // SAFETY: The file's address space has all mappings by processes, and a page fault from now
        // on finds no memory.
        unsafe { bindings::unmap_mapping_range((*(*raw).file).f_mapping, 0, 0, 1) };
        self.buffer.lock()?.invalidate_mappings();
        drop(memory);
        Ok(())
    }
}

impl<T: Backing> Drop for Export<T> {
    fn drop(&mut self) {
        // Without an acquire context, the lock is always taken.
        let _ = self.revoke();
    }
}

/// A dma-buf that [`Export::new`] made.
///
/// # Invariants
///
/// The dma-buf has the operations of `Export<T>`.
#[repr(transparent)]
struct Exported<T: Backing>(DmaBuf, PhantomData<Arc<T>>);

/// A direction of DMA. The kernel crate has it as a number, or in Linux 7.3 as its own type.
#[repr(transparent)]
struct Direction(bindings::dma_data_direction);

// SAFETY: Any direction is valid.
unsafe impl FromC for Direction {
    type C = bindings::dma_data_direction;
}

// SAFETY: The pointer is to a dma-buf with the operations of `Export<T>`, which has references.
unsafe impl<T: Backing> FromC for &Exported<T> {
    type C = *mut bindings::dma_buf;
}

impl<T: Backing> Exported<T> {
    fn shared(&self) -> Pin<&Shared<T>> {
        // SAFETY: By the type invariant, `new()` has set `priv_`, which never changes.
        unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::borrow((*self.0.as_raw()).priv_) }
    }

    /// Returns the memory.
    ///
    /// # Errors
    ///
    /// `ENODEV` after revocation.
    fn memory(&self) -> Result<Arc<T>> {
        self.shared().memory.lock().clone().ok_or(ENODEV)
    }
}

/// A page fault in a mapping that `mmap()` made.
#[repr(transparent)]
struct Fault<T: Backing>(bindings::vm_fault, PhantomData<Arc<T>>);

// SAFETY: The pointer is to a page fault in a mapping that `mmap()` made.
unsafe impl<T: Backing> FromC for &Fault<T> {
    type C = *mut bindings::vm_fault;
}

impl<T: Backing> Fault<T> {
    fn at(&self) -> &bindings::vm_fault__bindgen_ty_1 {
        &self.0.__bindgen_anon_1
    }

    /// Returns the number of the page in the dma-buf.
    fn page(&self) -> usize {
        self.at().pgoff
    }

    fn buffer(&self) -> &Exported<T> {
        // SAFETY: `mmap()` set `vm_private_data`, and the mapping holds the dma-buf.
        unsafe { FromC::from_c((*self.at().vma).vm_private_data.cast()) }
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

callbacks! {
    for T: Backing;

    /// Attaches a device.
    fn attach(
        buffer: &Exported<T>,
        attachment: &mut bindings::dma_buf_attachment,
    ) -> Result {
        let memory = buffer.memory()?;
        if buffer.shared().view.is_some() {
            return Err(eopnotsupp());
        }
        let Some(provider) = memory.memory().provider() else {
            return Ok(());
        };
        // SAFETY: The attachment has a device.
        if !attachment.peer2peer || !unsafe { provider.is_reached_by(attachment.dev) } {
            return Err(eopnotsupp());
        }
        Ok(())
    }

    /// Maps the memory for a device.
    fn map(
        attachment: *mut bindings::dma_buf_attachment,
        direction: Direction,
    ) -> Result<*mut bindings::sg_table> {
        // SAFETY: The core calls with an attachment to a dma-buf of this type.
        let (buffer, device) = unsafe {
            let buffer: &Exported<T> = FromC::from_c((*attachment).dmabuf);
            (buffer, (*attachment).dev)
        };
        let memory = buffer.memory()?;
        // This is the size of the dma-buf.
        let len = memory.memory().num_pages() << bindings::PAGE_SHIFT;
        let room = KBox::new_uninit(GFP_KERNEL)?;
        // SAFETY: The attachment has a device.
        let max_segment = unsafe { bindings::dma_get_max_seg_size(device) };
        let mut table = memory.memory().sgt(0, len, max_segment)?;
        // SAFETY: The table has been made above.
        unsafe {
            let mapped = bindings::dma_map_sgtable(device, &mut table, direction.0, 0);
            to_result(mapped).inspect_err(|_| bindings::sg_free_table(&mut table))?;
        }
        let mapping = room.write(Mapping {
            table,
            device,
            _memory: memory,
        });
        Ok(KBox::into_raw(mapping).cast())
    }

    /// Ends a mapping for a device.
    fn unmap(
        _attachment: *mut bindings::dma_buf_attachment,
        table: *mut bindings::sg_table,
        direction: Direction,
    ) -> () {
        // SAFETY: Called once with the pointer that `map()` returned: `table` is the first field.
        unsafe {
            let mut mapping = KBox::from_raw(table.cast::<Mapping<T>>());
            bindings::dma_unmap_sgtable(mapping.device, &raw mut mapping.table, direction.0, 0);
            bindings::sg_free_table(&raw mut mapping.table);
        }
    }

    /// Frees the private data.
    fn release(raw: *mut bindings::dma_buf) -> () {
        // SAFETY: Called once, after the last reference to the dma-buf was dropped.
        drop(unsafe { <Pin<KBox<Shared<T>>> as ForeignOwnable>::from_foreign((*raw).priv_) });
    }

    /// Begins a mapping by a process, of at most the dma-buf's size.
    fn mmap(buffer: &Exported<T>, vma: *mut bindings::vm_area_struct) -> Result {
        let uncached = buffer.memory()?.memory().provider().is_some();
        // SAFETY: The core calls with a new mapping. It holds the dma-buf's file, and with it
        // `priv_`.
        unsafe {
            // A private mapping would not see what others write.
            if !bindings::vma_is_shared(vma) {
                return Err(EINVAL);
            }
            bindings::vma_set_device_memory(vma, uncached);
            (*vma).vm_private_data = buffer.0.as_raw().cast();
            (*vma).vm_ops = match buffer.shared().view {
                Some(_) => &Export::<T>::VIEW_VM_OPS,
                None => &Export::<T>::VM_OPS,
            };
        }
        Ok(())
    }

    /// Maps the memory in the kernel, while there is no such mapping.
    fn vmap(buffer: &Exported<T>, map: &mut bindings::iosys_map) -> Result {
        let memory = buffer.memory()?;
        map.__bindgen_anon_1.vaddr = memory.memory().as_ptr().cast();
        map.is_iomem = false;
        *buffer.shared().mapped.lock() = Some(memory);
        Ok(())
    }

    /// Ends the mapping in the kernel, after its last user has released it.
    fn vunmap(buffer: &Exported<T>, _map: *mut bindings::iosys_map) -> () {
        // This may be the last reference to the memory.
        let memory = buffer.shared().mapped.lock().take();
        drop(memory);
    }

    /// Maps a page for a process, in a mapping that `mmap()` made.
    fn fault(fault: &Fault<T>) -> u32 {
        let shared = fault.buffer().shared();
        // The lock is held until the page is mapped, so that a revocation after that unmaps it.
        let memory = shared.memory.lock();
        match shared.page(memory.as_ref(), fault.page()) {
            // SAFETY: The mapping is VM_MIXEDMAP; the page stays allocated while it is mapped.
            Some(page) => unsafe {
                let (at, pfn) = (fault.at(), bindings::page_to_pfn(page));
                bindings::vmf_insert_mixed(at.vma, at.address, pfn)
            },
            None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }

    /// Refuses writes to the page that says whether a view is revoked.
    fn pfn_mkwrite(fault: &Fault<T>) -> u32 {
        match &fault.buffer().shared().view {
            Some(view) if fault.page() < view.pages => 0,
            _ => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}
