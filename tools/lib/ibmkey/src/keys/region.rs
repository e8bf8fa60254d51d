// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Memory that a region owns.

use core::{
    marker::PhantomData,
    mem::size_of_val,
    ops::Range,
    ptr::NonNull, //
};

use super::{
    memory::Memory,
    Access,
    Pd,
    Slice, //
};
use crate::{
    errno::Result,
    ioctl::Plain, //
};

/// Registered memory that the region owns. The device and peers may read and write it at any time,
/// so there are no references to its bytes. It may be leaked: then the memory stays, too.
///
/// # Invariants
///
/// `memory` is that of a leaked box, which `free` frees. Only this object frees it.
pub struct Region<'pd> {
    memory: Memory,
    free: unsafe fn(NonNull<u8>, usize),
    pd: PhantomData<&'pd ()>,
}

/// Frees a box of elements.
///
/// # Safety
///
/// `start` and `bytes` are those of a leaked box of elements of this type, to which there is no
/// other pointer.
unsafe fn free<T>(start: NonNull<u8>, bytes: usize) {
    let count = bytes.checked_div(size_of::<T>()).unwrap_or(0);
    let items = core::ptr::slice_from_raw_parts_mut(start.cast::<T>().as_ptr(), count);

    // SAFETY: By the caller's promise. A box of elements without bytes has no memory to free.
    drop(unsafe { Box::from_raw(items) });
}

impl<'pd> Region<'pd> {
    pub(super) fn new<T: Plain>(pd: Pd<'pd>, contents: Vec<T>, access: Access) -> Result<Self> {
        let items = NonNull::from(Box::leak(contents.into_boxed_slice()));
        // SAFETY: Leaked above; nothing writes it yet.
        let length = size_of_val(unsafe { items.as_ref() });
        let start = items.cast::<u8>();

        // SAFETY: The box is initialised, and there is no reference to it. It is freed after the MR is
        // deregistered, or never.
        match unsafe { Memory::register(pd, start, length, access) } {
            // INVARIANT: Leaked and registered above; there is no other owner.
            Ok(memory) => Ok(Self {
                memory,
                free: free::<T>,
                pd: PhantomData,
            }),
            Err(errno) => {
                // SAFETY: It was leaked above, and is not registered.
                unsafe { free::<T>(start, length) };
                Err(errno)
            }
        }
    }

    /// Returns all bytes, for a layout.
    pub fn all(&self) -> Slice<'_> {
        self.memory.all()
    }

    /// Returns some bytes, for a layout; `ERANGE` if they reach outside.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'_>> {
        self.all().slice(range)
    }

    /// Returns the address of the first byte, for work requests.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the key for requests of this side.
    pub fn lkey(&self) -> u32 {
        self.memory.lkey()
    }

    /// Returns the key for requests of peers.
    pub fn rkey(&self) -> u32 {
        self.memory.rkey()
    }

    /// Copies elements out of the region, from byte `at` on; `ERANGE` if they reach outside. If the
    /// device writes meanwhile, some bytes are old and some are new.
    pub fn read<T: Plain>(&self, at: usize, to: &mut [T]) -> Result {
        self.memory.read(at, to)
    }

    /// Copies elements into the region, from byte `at` on; `ERANGE` if they reach outside.
    pub fn write<T: Plain>(&self, at: usize, from: &[T]) -> Result {
        self.memory.write(at, from)
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // A key that was leaked may still refer to the memory. Then it stays registered, and is not
        // freed.
        if self.memory.deregister().is_ok() {
            let (start, length) = self.memory.parts();
            // SAFETY: By the type's invariant.
            unsafe { (self.free)(start, length) }
        }
    }
}
