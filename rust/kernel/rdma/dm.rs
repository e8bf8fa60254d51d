// SPDX-License-Identifier: GPL-2.0

//! Device memory objects, and memory that remote peers write to.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{Device, Mr};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{ordering, Atomic},
    types::Opaque,
};

/// An `ib_dm` and what the driver keeps with it.
#[repr(C)]
pub(crate) struct Dm<T> {
    raw: Opaque<bindings::ib_dm>,
    pub(crate) data: T,
}

impl<T> Dm<T> {
    /// Makes an object whose `ib_dm` is zero, for the core to fill in.
    pub(crate) fn new(data: T) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                raw: Opaque::zeroed(),
                data,
            },
            GFP_KERNEL,
        )?)
    }

    /// Fills in what the core fills in for memory of a program's.
    pub(crate) fn init(&mut self, device: &Device, length: u32) {
        let raw = self.raw.get();
        // SAFETY: Nobody else has the object yet.
        unsafe {
            (*raw).device = device.as_raw();
            (*raw).length = length;
        }
    }

    /// Is it memory of `device`?
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        // SAFETY: The field is written when the object is made.
        unsafe { (*self.raw.get()).device == device.as_raw() }
    }

    fn users(&self) -> &Atomic<i32> {
        // SAFETY: The field is an `atomic_t` that is only used as such.
        unsafe { Atomic::from_ptr(&raw mut (*self.raw.get()).usecnt.counter) }
    }

    /// Is a region registered over it?
    pub(crate) fn in_use(&self) -> bool {
        self.users().load(ordering::Relaxed) != 0
    }

    /// Makes `mr` count as a region over it, until it is deregistered.
    pub(crate) fn attach(&self, mr: &Mr) {
        self.users().add(1, ordering::Relaxed);
        // SAFETY: The region is new, nobody else has it.
        unsafe {
            (*mr.as_raw()).dm = self.raw.get();
            (*mr.as_raw()).type_ = bindings::ib_mr_type_IB_MR_TYPE_DM;
        }
    }

    /// Gives it to the core.
    pub(crate) fn into_raw(this: KBox<Self>) -> *mut bindings::ib_dm {
        KBox::into_raw(this).cast()
    }

    /// # Safety
    ///
    /// `raw` came from [`Self::into_raw`] and is valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_dm) -> &'a Self {
        // SAFETY: By the safety requirement; `raw` is the first field of a `repr(C)` structure.
        unsafe { &*raw.cast::<Self>() }
    }

    /// # Safety
    ///
    /// `raw` came from [`Self::into_raw`] and nobody else uses it any more.
    pub(crate) unsafe fn take(raw: *mut bindings::ib_dm) -> KBox<Self> {
        // SAFETY: By the safety requirement.
        unsafe { KBox::from_raw(raw.cast::<Self>()) }
    }
}

/// Zeroed memory that others, such as the RDMA device, read and write at any time.
///
/// No reference to its bytes is ever made; copies race with the other writers as they would on a
/// device's own memory.
///
/// # Invariants
///
/// `start` is a vmalloc'ed area of `pages * PAGE_SIZE` bytes.
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    pages: usize,
    len: usize,
}

// SAFETY: The memory is plain bytes that any thread may copy from and to.
unsafe impl Send for SharedMemory {}
// SAFETY: As above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Returns the number of pages that `len` bytes take.
    pub(crate) fn pages_of(len: usize) -> usize {
        len.div_ceil(PAGE_SIZE)
    }

    /// Allocates `len` bytes, near `node` where it can be. Charged to the caller's cgroup.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, `ENOMEM`.
    pub(crate) fn new(len: usize, node: i32) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let pages = Self::pages_of(len);
        let bytes = pages.checked_mul(PAGE_SIZE).ok_or(ENOMEM)?;
        // SAFETY: No preconditions.
        let start = unsafe { bindings::vzalloc_mayfail(bytes, node) };
        // INVARIANT: As just allocated.
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            pages,
            len,
        })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the pages, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = *mut bindings::page> + '_ {
        (0..self.pages).map(|page| {
            // SAFETY: By the type invariant the page is part of the vmalloc'ed area.
            unsafe { bindings::vmalloc_to_page(self.start.as_ptr().add(page << PAGE_SHIFT).cast()) }
        })
    }

    /// Returns where `len` bytes from `offset` on are.
    fn at(&self, offset: u64, len: u64) -> Result<(NonNull<u8>, usize)> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len as u64 {
            return Err(EINVAL);
        }
        let len = usize::try_from(len)?;
        // SAFETY: `offset` is not beyond the end of the allocation.
        let at = unsafe { self.start.add(usize::try_from(offset)?) };
        Ok((at, len))
    }

    /// Copies `len` bytes from `from` to `offset`. In any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range.
    ///
    /// # Safety
    ///
    /// `from` must be valid for reads of `len` bytes.
    pub(crate) unsafe fn write(&self, offset: u64, from: *const u8, len: usize) -> Result {
        let (to, len) = self.at(offset, len as u64)?;
        // SAFETY: `at()` checked the range; nobody has a reference to these bytes.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from, len) };
        Ok(())
    }

    /// Copies `len` bytes from `offset` to `to`. In any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range.
    ///
    /// # Safety
    ///
    /// `to` must be valid for writes of `len` bytes.
    pub(crate) unsafe fn read_to(&self, offset: u64, to: *mut u8, len: usize) -> Result {
        let (from, len) = self.at(offset, len as u64)?;
        // SAFETY: As for `write()`.
        unsafe { from.as_ptr().copy_to_nonoverlapping(to, len) };
        Ok(())
    }

    /// Copies from `offset` to `to`. In any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result {
        // SAFETY: `to` is valid for as many bytes.
        unsafe { self.read_to(offset, to.as_mut_ptr(), to.len()) }
    }

    /// Copies `len` bytes from user address `addr` to `offset`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range; `EFAULT` for memory that cannot be read, with what came before
    /// copied.
    pub(crate) fn copy_from_user(&self, offset: u64, addr: u64, len: u64) -> Result {
        let (to, len) = self.at(offset, len)?;
        let from = usize::try_from(addr)? as *const kernel::ffi::c_void;
        // SAFETY: `at()` checked the range; the user address is checked by the function.
        let left = unsafe { bindings::copy_from_user(to.as_ptr().cast(), from, len) };
        if left != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Copies `len` bytes from `offset` to user address `addr`. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy_from_user`].
    pub(crate) fn copy_to_user(&self, offset: u64, addr: u64, len: u64) -> Result {
        let (from, len) = self.at(offset, len)?;
        let to = usize::try_from(addr)? as *mut kernel::ffi::c_void;
        // SAFETY: As in `copy_from_user()`.
        let left = unsafe { bindings::copy_to_user(to, from.as_ptr().cast(), len) };
        if left != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and nobody else frees it.
        unsafe { bindings::vfree(self.start.as_ptr().cast()) };
    }
}
