// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! MRs whose memory the library allocates.
//!
//! The memory is a memfd that is mapped shared. So a process and its children share the pages, and
//! the kernel never copies a page on write: the device and the process always use the same one.

use core::{
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    ptr::{
        null_mut,
        NonNull, //
    },
};
use std::{
    fs::File,
    os::fd::{
        AsRawFd,
        FromRawFd, //
    },
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    iov,
    object,
    owners::{
        self,
        Owned, //
    },
    rereg,
    sys, //
};

/// The sizes of huge pages, as powers of two: from more than a page up to the largest one of any
/// architecture. The kernel refuses sizes that the machine lacks.
const HUGE_SHIFTS: core::ops::RangeInclusive<u32> = 13..=34;

/// A mapping of a memfd.
///
/// # Invariants
///
/// `start` is the first byte of a shared mapping of a memfd. The mapping has `mapped` bytes, at least
/// `length`. Only this object removes it.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: Any thread may remove the mapping.
unsafe impl Send for Memory {}

impl Memory {
    /// Allocates zeroed memory, of huge pages if possible.
    ///
    /// A huge page of the pool (hugetlbfs) suits a length that is a multiple of its size. Memory of
    /// other lengths begins at a multiple of the size of a transparent huge page, and consists of
    /// such pages if there are some.
    pub(crate) fn new(length: usize) -> Result<Self> {
        if length == 0 {
            return Err(say(Errno::EINVAL, "length is 0"));
        }
        // No length of a file is larger.
        i64::try_from(length).map_err(|_| Errno::ENOMEM)?;

        let huge = HUGE_SHIFTS
            .rev()
            .filter(|&shift| shift <= length.trailing_zeros())
            .find_map(|shift| Self::of_pool(length, shift).ok());
        match huge {
            Some(memory) => Ok(memory),
            None => Self::of_pages(length),
        }
    }

    /// Allocates huge pages of the pool.
    fn of_pool(length: usize, shift: u32) -> Result<Self> {
        let file = create(length, libc::MFD_HUGETLB | (shift << libc::MAP_HUGE_SHIFT))?;
        let align = 1usize.checked_shl(shift).ok_or(Errno::EINVAL)?;
        let memory = Self::map(&file, length, align)?;

        // The pages are reserved, but a limit of the process's group can still refuse them. Other
        // pages are used then.
        memory.advise(libc::MADV_POPULATE_WRITE)?;
        Ok(memory)
    }

    /// Allocates pages of the page size, or transparent huge pages.
    fn of_pages(length: usize) -> Result<Self> {
        let page = iov::page_size() as usize;
        // A table of the lowest level fills a page and has entries of 8 bytes.
        let huge = page.saturating_mul(page) >> 3;
        let file = create(length, 0)?;

        if length < huge {
            return Self::map(&file, length, page);
        }
        // An aligned mapping may exceed a limit of the address space.
        let memory = Self::map(&file, length, huge).or_else(|_| Self::map(&file, length, page))?;
        // Ignore errors of the advice: the kernel then uses small pages. MADV_HUGEPAGE has an effect
        // if shmem_enabled is "advise". With other values, MADV_COLLAPSE makes huge pages of small
        // ones, which must exist.
        let _ = memory.advise(libc::MADV_HUGEPAGE);
        memory.advise(libc::MADV_POPULATE_WRITE)?;
        let _ = memory.advise(libc::MADV_COLLAPSE);
        Ok(memory)
    }

    /// Maps a file at a multiple of `align`, which is a multiple of the page size. A file of huge
    /// pages is a multiple of `align`.
    fn map(file: &File, length: usize, align: usize) -> Result<Self> {
        let page = iov::page_size() as usize;
        let mapped = length.checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
        let room = align
            .checked_sub(page)
            .and_then(|more| mapped.checked_add(more));
        let room = room.ok_or(Errno::ENOMEM)?;

        // The kernel counts this memory, and refuses more than the machine has. It does not count
        // the pages of a memfd before they exist.
        let reserved = new_mapping(
            null_mut(),
            room,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
        )?;
        let before = reserved.align_offset(align);
        let start = reserved.wrapping_byte_add(before);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let mapping = new_mapping(start, mapped, flags, file.as_raw_fd());
        let start = mapping.ok().and_then(NonNull::new);
        let Some(start) = start else {
            unmap(reserved, room);
            return Err(Errno::ENOMEM);
        };
        // INVARIANT: The file was mapped above, and nothing else knows the mapping.
        let memory = Self {
            start: start.cast(),
            length,
            mapped,
        };
        unmap(reserved, before);
        let end = start.as_ptr().wrapping_byte_add(mapped);
        unmap(end, room.saturating_sub(before).saturating_sub(mapped));
        Ok(memory)
    }

    fn advise(&self, advice: c_int) -> Result {
        // SAFETY: By the type's invariant. The advice changes no byte.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.mapped, advice) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Returns the first byte and the number of bytes.
    pub(crate) fn parts(&self) -> (NonNull<u8>, usize) {
        (self.start, self.length)
    }

    fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.address(), self.mapped);
    }
}

/// Creates a memfd of `length` bytes, and seals its length. If a process made the memfd shorter, its
/// pages would vanish, and an access to a mapping would raise SIGBUS.
fn create(length: usize, flags: c_uint) -> Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL | flags;
    // SAFETY: The name is a string.
    let fd = unsafe { libc::memfd_create(c"ibmkey".as_ptr(), flags) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: The descriptor was opened above, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };

    file.set_len(length as u64).map_err(|_| Errno::last())?;
    // SAFETY: The call has an integer argument.
    match unsafe {
        libc::fcntl(
            fd,
            libc::F_ADD_SEALS,
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW,
        )
    } {
        0 => Ok(file),
        _ => Err(Errno::last()),
    }
}

/// Makes a mapping that can be read and written. With `MAP_FIXED`, it replaces a mapping of this
/// file.
fn new_mapping(at: *mut c_void, bytes: usize, flags: c_int, fd: c_int) -> Result<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: The mapping is where nothing else is mapped, or replaces one that nothing refers to.
    let start = unsafe { libc::mmap(at, bytes, protection, flags, fd, 0) };

    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Ok(start)
}

/// Removes a mapping of this file, or a part of it.
fn unmap(start: *mut c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: Callers give mappings to which there are no more references.
        unsafe { libc::munmap(start, bytes) };
    }
}

/// Allocates memory and registers it; see `ibmkey_reg_alloc()`.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn register(
    pd: *mut sys::ibv_pd,
    length: usize,
    access: c_uint,
) -> Result<*mut sys::ibv_mr> {
    let mut memory = None;

    // SAFETY: By the caller's promise.
    let mr = unsafe {
        object::new_mr(pd, |fd, pd_handle| {
            let new = Memory::new(length)?;
            let at = new.address() as u64;
            let [handle, lkey, rkey] = iov::register(fd, pd_handle, at, length as u64, access)?;
            memory = Some(new);
            Ok(object::Region {
                handle,
                lkey,
                rkey,
                length,
            })
        })
    }?;

    // SAFETY: The MR was made above.
    unsafe {
        (*mr).addr = memory.as_ref().map_or(null_mut(), Memory::address);
        owners::set(mr, Owned { _memory: memory });
    }
    Ok(mr)
}

/// Changes an MR, also to new memory; see `ibmkey_rereg_mr()`.
///
/// # Safety
///
/// `mr` is NULL or an MR, `pd` is NULL or a protection domain.
pub unsafe fn rereg(
    mr: *mut sys::ibv_mr,
    flags: c_uint,
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Result {
    // SAFETY: By the caller's promise.
    unsafe { object::mr_handle(mr) }?;
    let moves = flags & sys::IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    let memory = if flags & sys::IBMKEY_REREG_ALLOC == 0 {
        None
    } else if moves && addr.is_null() {
        Some(Memory::new(length)?)
    } else {
        let words = "IBMKEY_REREG_ALLOC needs IBV_REREG_MR_CHANGE_TRANSLATION, and addr NULL";
        return Err(say(Errno::EINVAL, words));
    };
    let addr = memory.as_ref().map_or(addr, Memory::address);
    let flags = flags & !sys::IBMKEY_REREG_ALLOC;

    // SAFETY: `mr` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    unsafe {
        let owned = owners::take(mr);
        let result = rereg::rereg(mr, flags, pd, addr, length, access);
        let owned = match owned {
            owned if result.is_err() || !moves => owned,
            // The former memory is freed.
            owned => (owned.is_some() || memory.is_some()).then_some(Owned { _memory: memory }),
        };
        if let Some(owned) = owned {
            owners::set(mr, owned);
        }
        result
    }
}

/// Deregisters an MR, and frees what it owns; see `ibmkey_dereg()`.
///
/// # Safety
///
/// `mr` is the MR that owned this. Unless this fails, there are no more references to it.
pub(crate) unsafe fn deregister(mr: *mut sys::ibv_mr, owned: Owned) -> Result {
    // SAFETY: `register()` made the MR by `new_mr()`. Or else `ibv_reg_mr()` made it, and `rereg()`
    // changed it. Then it is an MR of rxe, whose provider library allocates the same structure with
    // calloc() and does nothing else to free it.
    let result = unsafe { object::destroy_mr(mr) };
    if result.is_err() {
        // SAFETY: The MR still exists.
        unsafe { owners::set(mr, owned) };
    }
    result
}
