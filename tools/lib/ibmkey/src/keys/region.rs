// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Regions: registered memory that Rust owns.

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

/// Owns memory and its registration. The device and peers may read and write the bytes at any time,
/// so Rust code has no references to them. The memory of a leaked region stays registered and is
/// never freed.
///
/// # Invariants
///
/// `memory` is the memory of a leaked box. `free` frees the box, and only this object calls it.
pub struct Region<'pd> {
    memory: Memory,
    free: unsafe fn(NonNull<u8>, usize),
    pd: PhantomData<&'pd ()>,
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

        // SAFETY: The box is initialised, and there is no reference to it. `drop()` frees the box
        // only after the MR was deregistered.
        match unsafe { Memory::register(pd, start, length, access) } {
            // INVARIANT: The box was leaked and registered above, so there is no other owner.
            Ok(memory) => Ok(Self {
                memory,
                free: free::<T>,
                pd: PhantomData,
            }),
            Err(errno) => {
                // SAFETY: The box was leaked above, and it is not registered.
                unsafe { free::<T>(start, length) };
                Err(errno)
            }
        }
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

    /// Copies elements into the region, from byte `at` on. Returns `ERANGE` if they reach outside.
    pub fn write<T: Plain>(&self, at: usize, from: &[T]) -> Result {
        self.memory.write(at, from)
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // A leaked key may still refer to the MR. The memory then stays registered, and must not be
        // freed.
        if self.memory.deregister().is_ok() {
            let (start, length) = self.memory.parts();
            // SAFETY: By the type's invariant.
            unsafe { (self.free)(start, length) }
        }
    }
}
