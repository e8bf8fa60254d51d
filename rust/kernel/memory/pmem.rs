// SPDX-License-Identifier: GPL-2.0

//! Persistent memory: pieces are allocated from a whole DAX device, which is held exclusively.
//!
//! C headers: [`include/linux/dax.h`](srctree/include/linux/dax.h),
//! [`include/linux/genalloc.h`](srctree/include/linux/genalloc.h)

use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr::{self, NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::{c_long, c_void},
    page::PAGE_SHIFT,
    prelude::*,
    str::CStr,
    sync::Arc,
};

/// A block device that is opened exclusively.
///
/// # Invariants
///
/// `file` is the file of an open block device.
struct BlockDevice {
    file: NonNull<bindings::file>,
    /// The address of this byte identifies the holder. Another device of this module is another
    /// holder.
    _holder: KBox<u8>,
}

impl BlockDevice {
    /// Opens the disk that the kernel calls `name`, independent of the calling process's /dev and
    /// permissions.
    ///
    /// # Errors
    ///
    /// The errors of opening: `ENOENT`, `EBUSY` if the disk has another exclusive holder, and
    /// others.
    fn open(name: &CStr) -> Result<Self> {
        let mut holder = KBox::new(0, GFP_KERNEL)?;
        let address = (&raw mut *holder).cast::<c_void>();
        // SAFETY: `name` is a C string, and `address` stays allocated while the device is open.
        let file = unsafe { bindings::bdev_file_open_disk(name.as_char_ptr(), address) };
        let file = from_err_ptr(file)?;
        // INVARIANT: Opened above.
        Ok(Self {
            file: NonNull::new(file).ok_or(ENODEV)?,
            _holder: holder,
        })
    }

    fn raw(&self) -> *mut bindings::block_device {
        // SAFETY: By the type invariant.
        unsafe { bindings::file_bdev(self.file.as_ptr()) }
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::bdev_fput(self.file.as_ptr()) };
    }
}

/// The DAX device of a block device.
///
/// # Invariants
///
/// The pointer is a DAX device. A reference to it is held.
struct DaxDevice(NonNull<bindings::dax_device>);

impl DaxDevice {
    /// Returns `true` if the driver is bound. This becomes false before the driver takes the pages
    /// away.
    fn is_alive(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::dax_is_alive(self.0.as_ptr()) }
    }
}

impl Drop for DaxDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the reference was taken without a holder.
        unsafe { bindings::fs_put_dax(self.0.as_ptr(), ptr::null_mut()) };
    }
}

/// A reference to a device's pages. While it is held, the driver cannot take the pages away.
///
/// # Invariants
///
/// A reference to the page map is held.
struct PmemPages(NonNull<bindings::dev_pagemap>);

impl PmemPages {
    /// Takes a reference to the pages at `address`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver has taken the pages away, or is about to.
    fn hold(address: *const u8) -> Result<Self> {
        // SAFETY: The function only looks up the address, which may have no pages.
        let raw = unsafe { bindings::hold_device_memory(address.cast()) };
        // INVARIANT: The reference was taken above.
        Ok(Self(NonNull::new(raw).ok_or_else(eopnotsupp)?))
    }
}

impl Drop for PmemPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_dev_pagemap(self.0.as_ptr()) };
    }
}

/// The whole memory of a DAX device.
///
/// # Invariants
///
/// `pool` allocates from the memory of `dax`. While its driver is bound, that memory is mapped and
/// has pages.
// Dropping destroys the pool; then the fields drop in declaration order.
pub(crate) struct PmemRegion {
    pool: NonNull<bindings::gen_pool>,
    size: u64,
    dax: DaxDevice,
    _block: BlockDevice,
}

// SAFETY: The pool has its own lock; the other fields are only kept.
unsafe impl Send for PmemRegion {}
// SAFETY: As above.
unsafe impl Sync for PmemRegion {}

impl PmemRegion {
    /// Opens a disk such as `pmem0` exclusively. Allocations overwrite its contents.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the disk is not a DAX device, or if its memory has no pages (a namespace in
    /// mode fsdax has pages); `ENOMEM`; the errors of [`BlockDevice::open`].
    pub(crate) fn open(name: &CStr) -> Result<Arc<Self>> {
        let block = BlockDevice::open(name)?;
        let mut offset = 0;
        // SAFETY: The block device is open.
        let dax = unsafe {
            bindings::fs_dax_get_by_bdev(block.raw(), &mut offset, ptr::null_mut(), ptr::null())
        };
        // INVARIANT: The reference was taken above.
        let dax = DaxDevice(NonNull::new(dax).ok_or_else(eopnotsupp)?);
        // SAFETY: The block device is open.
        let pages = unsafe { bindings::bdev_nr_bytes(block.raw()) } >> PAGE_SHIFT;
        let mut start = ptr::null_mut();
        // SAFETY: A reference to `dax` is held, and `start` is valid for writes.
        let found = unsafe {
            bindings::dax_direct_range(dax.0.as_ptr(), offset, c_long::try_from(pages)?, &mut start)
        };
        to_result(i32::try_from(found.min(0))?)?;
        // SAFETY: The function only looks up the address.
        if found == 0 || !unsafe { bindings::virt_is_device_memory(start) } {
            return Err(eopnotsupp());
        }
        let size = u64::try_from(found)? << PAGE_SHIFT;
        // SAFETY: No preconditions.
        let pool = unsafe { bindings::gen_pool_create(PAGE_SHIFT as i32, -1) };
        // INVARIANT: The pool is empty.
        let this = Self {
            pool: NonNull::new(pool).ok_or(ENOMEM)?,
            size,
            dax,
            _block: block,
        };
        // INVARIANT: `dax_direct_access()` returned the memory, which has pages.
        // SAFETY: The pool was made above.
        to_result(unsafe {
            bindings::gen_pool_add_owner(
                pool,
                start as usize,
                0,
                usize::try_from(size)?,
                -1,
                ptr::null_mut(),
            )
        })?;
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns `true` if the driver is bound. Then the memory is mapped.
    pub(crate) fn is_there(&self) -> bool {
        self.dax.is_alive()
    }

    /// Returns the bytes of the region.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for PmemRegion {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Each piece holds the region, so all pieces have been
        // freed.
        unsafe { bindings::gen_pool_destroy(self.pool.as_ptr()) };
    }
}

/// Bytes that are allocated from a region's pool. The driver may have taken the memory away since.
///
/// # Invariants
///
/// `start` is the first of `bytes` bytes that were allocated from the region's pool.
struct PmemRange {
    region: Arc<PmemRegion>,
    start: NonNull<u8>,
    bytes: usize,
}

/// An allocation from a region. While it exists, the driver stays bound to the device.
///
/// # Invariants
///
/// `_pages` keeps the pages of `range` mapped.
// Fields drop in declaration order: `_pages`, which keeps the driver bound, is the last one.
pub(super) struct PmemPiece {
    range: PmemRange,
    _pages: PmemPages,
}

impl PmemRange {
    fn new(region: &Arc<PmemRegion>, bytes: usize, log_align: u32) -> Result<Self> {
        let mut align = bindings::genpool_data_align {
            align: 1_i32.checked_shl(log_align).ok_or(EINVAL)?,
        };
        // SAFETY: By the invariant of `PmemRegion`; `align` is the data that the algorithm takes.
        let start = unsafe {
            bindings::gen_pool_alloc_algo_owner(
                region.pool.as_ptr(),
                bytes,
                Some(bindings::gen_pool_first_fit_align),
                (&raw mut align).cast(),
                ptr::null_mut(),
            )
        };
        // INVARIANT: Allocated above.
        Ok(Self {
            region: region.clone(),
            start: NonNull::new(start as *mut u8).ok_or(ENOMEM)?,
            bytes,
        })
    }
}

impl PmemPiece {
    /// Allocates `bytes` bytes at a multiple of `1 << log_align`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an alignment of 2^32 or more; `ENOMEM`; `EOPNOTSUPP` if the driver is unbound
    /// or is being unbound.
    pub(super) fn new(region: &Arc<PmemRegion>, bytes: usize, log_align: u32) -> Result<Self> {
        let range = PmemRange::new(region, bytes, log_align)?;
        let pages = PmemPages::hold(range.start.as_ptr())?;
        // The pages may belong to a driver that was bound later. The region's own DAX device stops
        // being alive before its driver takes the pages away, so it is checked after the reference
        // is taken.
        if !region.is_there() {
            return Err(eopnotsupp());
        }
        // INVARIANT: The driver was bound while the reference was held, so the pages are the
        // region's.
        Ok(Self {
            range,
            _pages: pages,
        })
    }
}

impl PmemPiece {
    /// Returns the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.range.start
    }
}

impl Drop for PmemRange {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe {
            bindings::gen_pool_free_owner(
                self.region.pool.as_ptr(),
                self.start.as_ptr() as usize,
                self.bytes,
                ptr::null_mut(),
            )
        };
    }
}
