// SPDX-License-Identifier: GPL-2.0

//! Persistent memory: pieces are allocated from a whole DAX device, which is held exclusively.
//!
//! C headers: [`include/linux/dax.h`](srctree/include/linux/dax.h),
//! [`include/linux/genalloc.h`](srctree/include/linux/genalloc.h)

use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr::{self, NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_void,
    page::PAGE_SHIFT,
    prelude::*,
    str::CStr,
    sync::Arc,
};

/// A disk that is opened exclusively, and its DAX device.
///
/// # Invariants
///
/// `file` and `dax` are what `dax_open_disk()` returned.
struct DaxDisk {
    file: NonNull<bindings::file>,
    dax: NonNull<bindings::dax_device>,
    /// The address of this byte identifies the holder. Another device of this module is another
    /// holder.
    _holder: KBox<u8>,
}

impl Drop for DaxDisk {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the reference to the DAX device has no holder.
        unsafe {
            bindings::fs_put_dax(self.dax.as_ptr(), ptr::null_mut());
            bindings::bdev_fput(self.file.as_ptr());
        }
    }
}

/// The whole memory of a DAX device.
///
/// # Invariants
///
/// `pool` allocates from the memory of `disk`. While its driver is bound, that memory is mapped and
/// has pages.
// Dropping destroys the pool; then the disk drops.
pub(crate) struct PmemRegion {
    pool: NonNull<bindings::gen_pool>,
    size: u64,
    disk: DaxDisk,
}

// SAFETY: The pool has its own lock; the other fields are only kept.
unsafe impl Send for PmemRegion {}
// SAFETY: The pool locks itself, and nothing changes the other fields.
unsafe impl Sync for PmemRegion {}

impl PmemRegion {
    /// Opens a disk such as `pmem0` exclusively, independent of the calling process's /dev and
    /// permissions. Allocations overwrite its contents.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such disk; `EBUSY` if it has another exclusive holder; `EOPNOTSUPP`
    /// if it is not a DAX device, or if its memory has no pages (a namespace in mode fsdax has
    /// pages); `ENOMEM`; other errors of opening.
    pub(crate) fn open(name: &CStr) -> Result<Arc<Self>> {
        let mut holder = KBox::new(0, GFP_KERNEL)?;
        let address = (&raw mut *holder).cast::<c_void>();
        let (mut dax, mut start, mut pages) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: `name` is a C string, and `address` stays allocated while the disk is open.
        let file = from_err_ptr(unsafe {
            bindings::dax_open_disk(
                name.as_char_ptr(),
                address,
                &mut dax,
                &mut start,
                &mut pages,
            )
        })?;
        // INVARIANT: Opened above.
        let disk = DaxDisk {
            file: NonNull::new(file).ok_or(ENODEV)?,
            dax: NonNull::new(dax).ok_or(ENODEV)?,
            _holder: holder,
        };
        let size = u64::from(pages) << PAGE_SHIFT;
        // SAFETY: No preconditions.
        let pool = unsafe { bindings::gen_pool_create(PAGE_SHIFT as i32, -1) };
        // INVARIANT: The pool is empty.
        let this = Self {
            pool: NonNull::new(pool).ok_or(ENOMEM)?,
            size,
            disk,
        };
        let (at, bytes) = (start as usize, usize::try_from(size)?);
        // INVARIANT: `dax_open_disk()` returned the memory, which has pages.
        // SAFETY: The pool was made above.
        to_result(unsafe {
            bindings::gen_pool_add_owner(pool, at, 0, bytes, -1, ptr::null_mut())
        })?;
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns `true` if the driver is bound. Then the memory is mapped. This becomes false before
    /// the driver takes the pages away.
    pub(crate) fn is_there(&self) -> bool {
        // SAFETY: By the type invariant of `DaxDisk`.
        unsafe { bindings::dax_is_alive(self.disk.dax.as_ptr()) }
    }

    /// Returns the bytes of the region.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Allocates `bytes` bytes at a multiple of `1 << log_align`, which are not cleared.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an alignment of 2^32 or more; `ENOMEM`; `EOPNOTSUPP` if the driver is unbound
    /// or is being unbound.
    pub(super) fn allocate(self: &Arc<Self>, bytes: usize, log_align: u32) -> Result<PmemPiece> {
        let mut align = bindings::genpool_data_align {
            align: 1_i32.checked_shl(log_align).ok_or(EINVAL)?,
        };
        // SAFETY: By the type invariant; `align` is the data that the algorithm takes.
        let start = unsafe {
            bindings::gen_pool_alloc_algo_owner(
                self.pool.as_ptr(),
                bytes,
                Some(bindings::gen_pool_first_fit_align),
                (&raw mut align).cast(),
                ptr::null_mut(),
            )
        };
        // INVARIANT: Allocated above.
        let mut piece = PmemPiece {
            start: NonNull::new(start as *mut u8).ok_or(ENOMEM)?,
            bytes,
            pages: None,
            region: self.clone(),
        };
        // SAFETY: The function only looks up the address, which may have no pages.
        piece.pages = NonNull::new(unsafe { bindings::hold_device_memory(start as *const c_void) });
        // The pages may belong to a driver that was bound later. The region's own DAX device stops
        // being alive before its driver takes the pages away, so it is checked after the reference
        // is taken.
        if piece.pages.is_none() || !self.is_there() {
            return Err(eopnotsupp());
        }
        Ok(piece)
    }
}

impl Drop for PmemRegion {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Each piece holds the region, so all pieces have been
        // freed.
        unsafe { bindings::gen_pool_destroy(self.pool.as_ptr()) };
    }
}

/// An allocation from a region. While it exists, the driver stays bound to the device.
///
/// # Invariants
///
/// `start` is the first of `bytes` bytes that were allocated from the region's pool. `pages` is the
/// page map of these bytes, with a reference, or [`None`] while the piece is made.
pub(super) struct PmemPiece {
    start: NonNull<u8>,
    bytes: usize,
    pages: Option<NonNull<bindings::dev_pagemap>>,
    region: Arc<PmemRegion>,
}

impl PmemPiece {
    /// Returns the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for PmemPiece {
    fn drop(&mut self) {
        let (pool, start) = (self.region.pool.as_ptr(), self.start.as_ptr() as usize);
        // SAFETY: By the type invariant. The pages are released last, because they keep the driver
        // bound.
        unsafe {
            bindings::gen_pool_free_owner(pool, start, self.bytes, ptr::null_mut());
            if let Some(pages) = self.pages {
                bindings::put_dev_pagemap(pages.as_ptr());
            }
        }
    }
}
