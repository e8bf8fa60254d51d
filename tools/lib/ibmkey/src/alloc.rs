// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! MRs whose memory the library allocates, and that processes can share.
//!
//! The memory is a memfd that is mapped shared. So a process and its children share the pages, and
//! the kernel never copies a page on write: the device and the process always use the same one.
//! Another process can map and register the memfd, too.

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
    os::{
        fd::{
            AsRawFd,
            FromRawFd,
            OwnedFd, //
        },
        unix::fs::MetadataExt,
    },
};

use crate::{
    convert,
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    iov,
    mkey,
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

/// The access flags of MRs for which the kernel needs memory that the process can write.
const WRITES: c_uint = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_ATOMIC
    | sys::IBV_ACCESS_MW_BIND;

/// Returns the size of a transparent huge page.
fn huge_size() -> usize {
    let page = iov::page_size() as usize;

    // A table of the lowest level fills a page and has entries of 8 bytes.
    page.saturating_mul(page) >> 3
}

/// A mapping of a memfd.
///
/// # Invariants
///
/// `start` is the first byte of a shared mapping of `file`, whose length is sealed. The mapping has
/// `mapped` bytes, at least `length`. Only this object removes it. If `writable`, the bytes may be
/// written.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    mapped: usize,
    writable: bool,
    file: File,
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
        let memory = Self::map(&file, length, align, true)?;

        // The pages are reserved, but a limit of the process's group can still refuse them. Other
        // pages are used then.
        memory.advise(libc::MADV_POPULATE_WRITE)?;
        Ok(memory)
    }

    /// Allocates pages of the page size, or transparent huge pages.
    fn of_pages(length: usize) -> Result<Self> {
        let page = iov::page_size() as usize;
        let file = create(length, 0)?;
        let memory = Self::map_aligned(&file, length, page, true)?;
        if length < huge_size() {
            return Ok(memory);
        }
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
    fn map(file: &File, length: usize, align: usize, writable: bool) -> Result<Self> {
        let file = file.try_clone().map_err(|_| Errno::last())?;
        let page = iov::page_size() as usize;
        let mapped = length.checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
        let room = align
            .checked_sub(page)
            .and_then(|more| mapped.checked_add(more));
        let room = room.ok_or(Errno::ENOMEM)?;

        // The kernel counts this memory, and refuses more than the machine has. It does not count
        // the pages of a memfd before they exist.
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let reserved = new_mapping(null_mut(), room, true, anonymous, -1)?;
        let before = reserved.align_offset(align);
        let start = reserved.wrapping_byte_add(before);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let mapping = new_mapping(start, mapped, writable, flags, file.as_raw_fd())
            .and_then(|start| NonNull::new(start).ok_or(Errno::ENOMEM));
        let start = mapping.inspect_err(|_| unmap(reserved, room))?;
        // INVARIANT: The file was mapped above, and nothing else knows the mapping.
        let memory = Self {
            start: start.cast(),
            length,
            mapped,
            writable,
            file,
        };
        unmap(reserved, before);
        let end = start.as_ptr().wrapping_byte_add(mapped);
        unmap(end, room.saturating_sub(before).saturating_sub(mapped));
        Ok(memory)
    }

    /// Maps a file at a multiple of `align`, and if possible so that huge pages can be used.
    fn map_aligned(file: &File, length: usize, align: usize, writable: bool) -> Result<Self> {
        let huge = huge_size();

        if length >= huge && align < huge {
            // This may exceed a limit of the address space.
            if let Ok(memory) = Self::map(file, length, huge, writable) {
                return Ok(memory);
            }
        }
        Self::map(file, length, align, writable)
    }

    /// Maps the memory of another process, for an MR with these access flags.
    pub(crate) fn open(fd: c_int, access: c_uint) -> Result<Self> {
        // SAFETY: The call has an integer argument. It fails for a descriptor that is not open.
        let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: The descriptor was opened above, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        // SAFETY: The call has no argument. It fails for a file that is no memfd.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            let words = "fd is not memory of ibmkey_share_mr(), or of a memfd with F_SEAL_SHRINK";
            return Err(say(Errno::EINVAL, words));
        }
        let metadata = file.metadata().map_err(|_| Errno::last())?;
        let length = usize::try_from(metadata.len()).map_err(|_| Errno::ENOMEM)?;
        if length == 0 {
            return Err(say(Errno::EINVAL, "fd has no bytes"));
        }
        // This is the size of a page of the pool of huge pages.
        let align = usize::try_from(metadata.blksize()).unwrap_or(0);
        let align = align.max(iov::page_size() as usize);

        Self::map_aligned(&file, length, align, true).or_else(|errno| match errno {
            Errno::EPERM | Errno::EACCES if access & WRITES == 0 => {
                Self::map_aligned(&file, length, align, false)
            }
            Errno::EPERM | Errno::EACCES => {
                let words = "access allows writing, and the memory is shared for reading only";
                Err(say(Errno::EACCES, words))
            }
            _ => Err(errno),
        })
    }

    /// Opens a descriptor for another process. If `read_only`, no process can map the memory for
    /// writing from now on.
    pub(crate) fn share(&self, read_only: bool) -> Result<OwnedFd> {
        let file = self.file.try_clone().map_err(|_| Errno::last())?;

        if read_only {
            seal(&file, libc::F_SEAL_FUTURE_WRITE)?;
        }
        Ok(file.into())
    }

    /// Returns `true` if the process may write the memory.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
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
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    Ok(file)
}

fn seal(file: &File, seals: c_int) -> Result {
    // SAFETY: The call has an integer argument.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Makes a mapping. With `MAP_FIXED`, it replaces a mapping of this file.
fn new_mapping(
    at: *mut c_void,
    bytes: usize,
    writable: bool,
    flags: c_int,
    fd: c_int,
) -> Result<*mut c_void> {
    let protection = match writable {
        true => libc::PROT_READ | libc::PROT_WRITE,
        false => libc::PROT_READ,
    };
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

/// Registers memory that `make` makes; see `ibmkey_reg_alloc()` and `ibmkey_reg_shared()`.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn register(
    pd: *mut sys::ibv_pd,
    access: c_uint,
    make: impl FnOnce() -> Result<Memory>,
) -> Result<*mut sys::ibv_mr> {
    let mut memory = None;

    // SAFETY: By the caller's promise.
    let mr = unsafe {
        object::new_mr(pd, |fd, pd_handle| {
            let made = make()?;
            let (at, length) = (made.address() as u64, made.length);
            let [handle, lkey, rkey] = iov::register(fd, pd_handle, at, length as u64, access)?;
            memory = Some(made);
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
        owners::set(mr, Owned::of(memory));
    }
    Ok(mr)
}

/// Opens a descriptor of the memory of an MR; see `ibmkey_share_mr()`.
///
/// # Safety
///
/// `mr` is NULL or an MR.
pub(crate) unsafe fn share(mr: *mut sys::ibv_mr, flags: c_uint) -> Result<OwnedFd> {
    // SAFETY: By the caller's promise.
    unsafe { object::mr_handle(mr) }?;
    if flags & !sys::IBMKEY_SHARE_READ_ONLY != 0 {
        return Err(say(Errno::EINVAL, "flags has an unknown bit"));
    }
    let read_only = flags & sys::IBMKEY_SHARE_READ_ONLY != 0;

    // SAFETY: `mr` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    let shared = unsafe {
        owners::with(mr, |owned| {
            owned.memory.as_ref().map(|memory| memory.share(read_only))
        })
    };
    shared.flatten().unwrap_or_else(|| {
        let words = "the library has not allocated the memory of mr";
        Err(say(Errno::EINVAL, words))
    })
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
        let mut owned = owners::take(mr);
        let result = match &mut owned {
            // The MR was replaced by a key.
            Some(owned) if moves && (*mr).addr.is_null() => {
                convert::to_memory(mr, owned, flags, pd, (addr, length), access)
            }
            _ => rereg::rereg(mr, flags, pd, addr, length, access),
        };
        if result.is_ok() && moves && (owned.is_some() || memory.is_some()) {
            // This frees the former memory.
            owned.get_or_insert_default().memory = memory;
        }
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
pub(crate) unsafe fn deregister(mr: *mut sys::ibv_mr, mut owned: Owned) -> Result {
    // SAFETY: By the caller's promise. `register()` made the MR by `new_mr()`. Or else
    // `ibv_reg_mr()` made it, and `rereg()` or `to_key()` changed it. Then it is an MR of rxe, whose
    // provider library allocates the same structure with calloc() and does nothing else to free it.
    let result = unsafe { end_former(mr, &mut owned).and_then(|()| object::destroy_mr(mr)) };
    if result.is_err() {
        // SAFETY: The MR still exists.
        unsafe { owners::set(mr, owned) };
    }
    result
}

/// Deregisters the MRs that `mr` has replaced.
///
/// # Safety
///
/// `mr` is the MR that owned this.
unsafe fn end_former(mr: *mut sys::ibv_mr, owned: &mut Owned) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mr) }?;

    // SAFETY: By the caller's promise.
    if !owned.former.is_empty() && unsafe { (*mr).addr.is_null() } {
        // They cannot be deregistered while the key is bound to them.
        let unbound = mkey::unbind(fd, handle)?;
        // SAFETY: The kernel has just unbound `mr`, so it is a key.
        unsafe { object::set_bound(mr, unbound) };
    }
    while let Some(former) = owned.former.pop() {
        object::destroy(fd, former.handle).inspect_err(|_| owned.former.push(former))?;
    }
    Ok(())
}
