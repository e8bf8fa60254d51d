// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Copies to and from device memory without a system call.
//!
//! The kernel makes a view of device memory: a file whose mapping shows the memory, followed by one
//! more page. The first byte of that page, the state, tells whether the memory was freed. Another
//! process that has the context can free the memory. A copy through the mapping then raises no
//! signal. The library finds the state changed, and repeats the copy by a system call, which
//! returns the error.
//!
//! A mapping costs as much as several system calls. So the library maps memory only after several
//! copies. The kernel copies memory that cannot be mapped: memory of a PCI device, and all device
//! memory if the kernel has no views or the process is at one of its limits.

use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        fence,
        AtomicPtr,
        AtomicU32,
        AtomicU8,
        AtomicUsize,
        Ordering, //
    },
};
use std::os::fd::{
    AsRawFd,
    FromRawFd,
    OwnedFd, //
};

use super::copy::Direction;
use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    object,
    sys, //
};

/// The number of copies by system calls before the memory is mapped, a power of two. A mapping
/// costs about as much as this number of copies.
const CALLS: u32 = 8;

/// The largest number of views that a process maps. The kernel limits the number of mappings of a
/// process, to 65,530 by default, and the program needs some of them.
const MAX_VIEWS: usize = 1024;

/// The number of views that this process has mapped.
static VIEWS: AtomicUsize = AtomicUsize::new(0);

/// A view that [`VIEWS`] counts. Dropping this subtracts it.
struct Counted;

impl Counted {
    fn new() -> Result<Self> {
        VIEWS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |views| {
                (views < MAX_VIEWS).then_some(views.saturating_add(1))
            })
            .map(|_| Self)
            .map_err(|_| Errno::ENOMEM)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        VIEWS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A mapped view.
///
/// # Invariants
///
/// `start` is the first of `bytes` bytes of a mapping that only this object removes. The first
/// `len` bytes are device memory. `state` is in the last page.
struct Mapping {
    start: *mut u8,
    len: usize,
    bytes: usize,
    state: *const AtomicU8,
    _counted: Counted,
}

impl Mapping {
    /// Maps the device memory with this handle.
    fn new(fd: c_int, handle: u32) -> Result<Self> {
        let counted = Counted::new()?;
        let (view, len) = new_view(fd, handle)?;
        // SAFETY: No requirements.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
        let page = page.map_err(|_| Errno::EINVAL)?;
        let state = len.checked_next_multiple_of(page).ok_or(Errno::EINVAL)?;
        let bytes = state.checked_add(page).ok_or(Errno::EINVAL)?;

        // SAFETY: Without an address, the kernel maps the file where nothing else is mapped.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                view.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = start.cast::<u8>();

        // INVARIANT: The mapping was made above. A view consists of the memory in whole pages and
        // one page for the state.
        Ok(Self {
            start,
            len,
            bytes,
            state: start.wrapping_add(state).cast(),
            _counted: counted,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant, only this object removes the mapping.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Removes a mapping.
///
/// # Safety
///
/// `mapping` was written to memory of [`calloc`](object::calloc). There are no more references to
/// it.
unsafe fn free(mapping: NonNull<Mapping>) {
    // SAFETY: By the caller's promise.
    unsafe {
        mapping.drop_in_place();
        object::free(mapping);
    }
}

/// Makes a view of the device memory with this handle. Returns the file and the length of the
/// memory.
fn new_view(fd: c_int, handle: u32) -> Result<(OwnedFd, usize)> {
    let (mut view, mut len) = (u32::MAX, 0u64);

    Command::<3>::new(sys::UVERBS_OBJECT_DM, sys::IB_MKEY_METHOD_DM_VIEW)
        .object(sys::IB_MKEY_ATTR_DM_VIEW_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_DM_VIEW_RESP_FD, &mut view)
        .out(sys::IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH, &mut len)
        .run(fd)?;

    let view = c_int::try_from(view).map_err(|_| Errno::EINVAL)?;
    // SAFETY: The kernel opened the descriptor for this call, so nothing else owns it.
    let view = unsafe { OwnedFd::from_raw_fd(view) };
    Ok((view, usize::try_from(len).map_err(|_| Errno::EINVAL)?))
}

/// The mapped view of device memory, if there is one. All zeroes is a valid value: no view.
///
/// # Invariants
///
/// `mapping` is NULL, or a mapping of a view of the device memory, in memory of
/// [`calloc`](object::calloc). Once it is set, only [`View::close`] changes it.
pub(super) struct View {
    mapping: AtomicPtr<Mapping>,
    /// The number of copies by system calls.
    calls: AtomicU32,
}

impl View {
    /// Copies between the device memory and the process, if the memory is mapped.
    ///
    /// Returns `false` if the caller must copy by a system call, which can also return an error.
    ///
    /// # Safety
    ///
    /// The `len` bytes at `host` may be read or written, depending on the direction.
    /// [`Self::close`] is not called meanwhile.
    pub(super) unsafe fn copy(
        &self,
        direction: Direction,
        offset: u64,
        host: *mut c_void,
        len: usize,
    ) -> bool {
        // SAFETY: By the type's invariant and the caller's promise.
        let Some(mapping) = (unsafe { self.mapping.load(Ordering::Acquire).as_ref() }) else {
            return false;
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let after = mapping.len.checked_sub(offset);
        // SAFETY: By the invariant of `mapping`, the byte is mapped. The kernel may write it at any
        // time, so it is atomic.
        let is_valid = || unsafe { &*mapping.state }.load(Ordering::Relaxed) == 0;
        // If the memory was freed, other pages are mapped in its place. A copy from there would
        // overwrite the program's bytes.
        if host.is_null() || after.is_none_or(|after| len > after) || !is_valid() {
            return false;
        }

        let device = mapping.start.wrapping_add(offset).cast::<c_void>();
        // Devices may write the bytes at any time, which Rust's memory model does not allow for a
        // copy in Rust. So use memcpy().
        // SAFETY: By the invariant of `mapping` and the check above, the bytes of the device are in
        // a mapping that only this library knows. The bytes at `host` may be used by the caller's
        // promise.
        unsafe {
            match direction {
                Direction::To => libc::memcpy(device, host, len),
                Direction::From => libc::memcpy(host, device, len),
            };
        }
        // The kernel changes the state before it maps other pages in place of the memory. So a copy
        // that used one of those pages finds the state changed here.
        fence(Ordering::Acquire);
        is_valid()
    }

    /// Counts a copy by a system call. Maps the memory if there were [`CALLS`] copies. If that
    /// fails, tries again each time the number of copies has doubled.
    pub(super) fn count(&self, fd: c_int, handle: u32) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_mapped = !self.mapping.load(Ordering::Relaxed).is_null();

        if is_mapped || calls < CALLS || !calls.is_power_of_two() {
            return;
        }
        // Ignore an error: the kernel then copies the memory.
        let _ = self.open(fd, handle);
    }

    fn open(&self, fd: c_int, handle: u32) -> Result {
        let mapping = Mapping::new(fd, handle)?;
        let place = object::calloc::<Mapping>()?;

        // SAFETY: Allocated above; there is no other reference.
        unsafe { place.write(mapping) };
        // INVARIANT: `place` is a mapping of this memory, in memory of `calloc()`, which nothing
        // else frees.
        let set = self.mapping.compare_exchange(
            ptr::null_mut(),
            place.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if set.is_err() {
            // Another thread has mapped the memory meanwhile.
            // SAFETY: Allocated and written above; there is no other reference.
            unsafe { free(place) };
        }
        Ok(())
    }

    /// Removes the mapping.
    ///
    /// # Safety
    ///
    /// No other function of this object runs at the same time.
    pub(super) unsafe fn close(&self) {
        // INVARIANT: NULL is a valid value of `mapping`.
        let mapping = self.mapping.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(mapping) = NonNull::new(mapping) {
            // SAFETY: By the type's invariant. No other thread has the pointer, by the caller's
            // promise.
            unsafe { free(mapping) };
        }
    }
}
