// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Regions: registered memory that Rust owns.

use core::{
    marker::PhantomData,
    mem::{
        size_of_val,
        ManuallyDrop, //
    },
    ops::Range,
    ptr::NonNull, //
};

use std::os::fd::OwnedFd;

use super::{
    memory::Memory,
    Access,
    Pd,
    Slice, //
};
use crate::{
    alloc,
    errno::{
        Errno,
        Result, //
    },
    ioctl::Plain, //
};

/// Owns memory and its registration. The device and peers may read and write the bytes at any time,
/// so Rust code has no references to them. The memory of a leaked region stays registered and is
/// never freed.
///
/// # Invariants
///
/// `memory` is the memory of `owner`.
pub struct Region<'pd> {
    memory: Memory,
    owner: ManuallyDrop<Owner>,
    pd: PhantomData<&'pd ()>,
}

/// The owner of a region's memory. Dropping this frees the memory.
enum Owner {
    Program { _elements: Elements },
    Library(alloc::Memory),
}

/// A box of elements, whose type is not known any more.
///
/// # Invariants
///
/// `start` and `bytes` are the address and the size of a leaked box, which `free` frees. Only this
/// object does.
struct Elements {
    start: NonNull<u8>,
    bytes: usize,
    free: unsafe fn(NonNull<u8>, usize),
}

impl Drop for Elements {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { (self.free)(self.start, self.bytes) }
    }
}

/// Frees a box of elements.
///
/// # Safety
///
/// `start` and `bytes` are the address and the size of a leaked box of elements of type `T`. No
/// other pointer to the box is in use.
unsafe fn free<T>(start: NonNull<u8>, bytes: usize) {
    let count = bytes.checked_div(size_of::<T>()).unwrap_or(0);
    let items = core::ptr::slice_from_raw_parts_mut(start.cast::<T>().as_ptr(), count);

    // SAFETY: By the caller's promise. A box of elements without bytes has no memory to free.
    drop(unsafe { Box::from_raw(items) });
}

impl<'pd> Region<'pd> {
    pub(super) fn new<T: Plain>(pd: Pd<'pd>, contents: Vec<T>, access: Access) -> Result<Self> {
        let items = NonNull::from(Box::leak(contents.into_boxed_slice()));
        // SAFETY: The box was leaked above, and nothing writes it yet.
        let length = size_of_val(unsafe { items.as_ref() });
        let start = items.cast::<u8>();

        // INVARIANT: The box was leaked above.
        let elements = Elements {
            start,
            bytes: length,
            free: free::<T>,
        };
        let owner = Owner::Program {
            _elements: elements,
        };

        // SAFETY: The box is initialised, and there is no reference to it. `drop()` frees the box
        // only after the MR was deregistered.
        unsafe { Self::register(pd, (start, length), owner, access) }
    }

    /// Registers memory of the library.
    pub(super) fn of_library(pd: Pd<'pd>, memory: alloc::Memory, access: Access) -> Result<Self> {
        let (parts, owner) = (memory.parts(), Owner::Library(memory));

        // SAFETY: The memory is initialised, and there is no reference to it. `drop()` frees it only
        // after the MR was deregistered.
        unsafe { Self::register(pd, parts, owner, access) }
    }

    /// Registers the memory of `owner`, or drops `owner` if that fails.
    ///
    /// # Safety
    ///
    /// The requirements of [`Memory::register`], until `owner` is dropped.
    unsafe fn register(
        pd: Pd<'pd>,
        (start, length): (NonNull<u8>, usize),
        owner: Owner,
        access: Access,
    ) -> Result<Self> {
        // SAFETY: By the caller's promise.
        let memory = unsafe { Memory::register(pd, start, length, access) }?;

        // INVARIANT: The memory of `owner` was registered above.
        Ok(Self {
            memory,
            owner: ManuallyDrop::new(owner),
            pd: PhantomData,
        })
    }

    /// Returns all bytes, for a layout.
    pub fn all(&self) -> Slice<'_> {
        self.memory.all()
    }

    /// Returns some bytes, for a layout. Returns `ERANGE` if `range` reaches outside the region.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'_>> {
        self.all().slice(range)
    }

    /// Returns the address of the first byte, for work requests.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the lkey, for requests of this side.
    pub fn lkey(&self) -> u32 {
        self.memory.lkey()
    }

    /// Returns the rkey, for requests of peers.
    pub fn rkey(&self) -> u32 {
        self.memory.rkey()
    }

    /// Copies elements out of the region, from byte `at` on. Returns `ERANGE` if they reach
    /// outside. If the device writes at the same time, some bytes can be old and others new.
    pub fn read<T: Plain>(&self, at: usize, to: &mut [T]) -> Result {
        self.memory.read(at, to)
    }

    /// Copies elements into the region, from byte `at` on. Returns `ERANGE` if they reach outside,
    /// and `EACCES` if another process shares the memory for reading only.
    pub fn write<T: Plain>(&self, at: usize, from: &[T]) -> Result {
        match &*self.owner {
            Owner::Library(memory) if !memory.is_writable() => Err(Errno::EACCES),
            _ => self.memory.write(at, from),
        }
    }

    /// Opens a descriptor of memory of [`Pd::allocate`], for [`Pd::register_shared`] in another
    /// process. If `read_only`, no process can map the memory for writing from now on. Returns
    /// `EINVAL` for memory of [`Pd::register`].
    pub fn share(&self, read_only: bool) -> Result<OwnedFd> {
        match &*self.owner {
            Owner::Library(memory) => memory.share(read_only),
            Owner::Program { .. } => Err(Errno::EINVAL),
        }
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // A leaked key may still refer to the MR. The memory then stays registered, and must not be
        // freed.
        if self.memory.deregister().is_ok() {
            // SAFETY: Nothing uses `owner` after this function.
            unsafe { ManuallyDrop::drop(&mut self.owner) }
        }
    }
}
