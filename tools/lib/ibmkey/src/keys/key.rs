// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Keys, and the calls that bind them.

use core::{
    ffi::c_int,
    marker::PhantomData,
    ops::Range, //
};

use super::{
    Access,
    Indexed,
    Interleaved,
    Pd,
    Slice, //
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    mkey::{
        self,
        Bound, //
    },
    object::{
        self,
        Region as Created, //
    },
    sys,
};

/// A key. The slices that it describes, or described earlier, exist during `'r`.
///
/// # Invariants
///
/// `handle` is a key that only this object destroys.
pub struct Key<'r> {
    fd: c_int,
    handle: u32,
    lkey: u32,
    rkey: u32,
    length: u64,
    base: u64,
    leaves: PhantomData<&'r ()>,
}

/// Returns a number of entries for the kernel, which refuses `u32::MAX` and zero.
fn count(entries: usize) -> u32 {
    u32::try_from(entries).unwrap_or(u32::MAX)
}

impl<'r> Key<'r> {
    /// Creates an unbound key for at most `max_entries` slices, blocks or indices.
    pub fn new(pd: &Pd<'r>, max_entries: u32) -> Result<Self> {
        Self::new_at(pd, max_entries, 0)
    }

    /// Creates an unbound key whose addresses begin at `base`, with every layout.
    pub fn new_at(pd: &Pd<'r>, max_entries: u32, base: u64) -> Result<Self> {
        let Created {
            handle, lkey, rkey, ..
        } = mkey::create(pd.fd, pd.handle, max_entries, 0)?;

        // INVARIANT: The key was created above, so there is no other owner.
        Ok(Self {
            fd: pd.fd,
            handle,
            lkey,
            rkey,
            length: 0,
            base,
            leaves: PhantomData,
        })
    }

    /// Makes a key of slices, one after another.
    pub fn of_slices(pd: &Pd<'r>, slices: &[Slice<'r>], access: Access) -> Result<Self> {
        let mut key = Self::new(pd, count(slices.len()))?;

        key.bind_list(slices, access)?;
        Ok(key)
    }

    /// Makes a key of a block that repeats. `block` is the block at index 0. `strides[d]` is the
    /// number of bytes from one start to the next in dimension d.
    pub fn of_strided(
        pd: &Pd<'r>,
        block: Slice<'r>,
        repeat: &[u64],
        strides: &[i64],
        access: Access,
    ) -> Result<Self> {
        Self::of(pd, &Interleaved::new(repeat).block(block, strides), access)
    }

    /// Makes a key of blocks that repeat.
    pub fn of(pd: &Pd<'r>, layout: &Interleaved<'r>, access: Access) -> Result<Self> {
        layout.check()?;
        let mut key = Self::new(pd, count(layout.blocks.len()))?;

        key.bind(layout, access)?;
        Ok(key)
    }

    /// Makes a key of blocks at indices.
    pub fn of_indexed(pd: &Pd<'r>, layout: &Indexed<'r, '_>, access: Access) -> Result<Self> {
        layout.check()?;
        let mut key = Self::new(pd, count(layout.indices.len()))?;

        key.bind_indexed(layout, access)?;
        Ok(key)
    }

    /// Binds the key to slices, one after another.
    pub fn bind_list(&mut self, slices: &[Slice<'r>], access: Access) -> Result {
        let mut ranges = Vec::new();

        ranges
            .try_reserve_exact(slices.len())
            .map_err(|_| Errno::ENOMEM)?;
        ranges.extend(slices.iter().map(|slice| sys::ib_uverbs_mkey_sge {
            addr: slice.address,
            length: slice.length,
            lkey: slice.lkey,
            comp_mask: 0,
        }));
        let layout = mkey::list(access.bits(), count(ranges.len()), ranges.as_ptr());
        // SAFETY: The array is above.
        unsafe { self.bind_at_base(layout) }
    }

    /// Binds the key to `layout`, from its base address on.
    ///
    /// # Safety
    ///
    /// As for [`mkey::bind`].
    unsafe fn bind_at_base(&mut self, layout: sys::ib_uverbs_mkey_bind) -> Result {
        let layout = mkey::at(layout, self.base);
        // SAFETY: By the caller's promise.
        self.set(unsafe { mkey::bind(self.fd, self.handle, &layout) }?);
        Ok(())
    }

    fn set(&mut self, bound: Bound) {
        self.length = bound.length as u64;
        self.lkey = bound.rkey;
        self.rkey = bound.rkey;
    }

    /// Binds the key to blocks that repeat.
    ///
    /// Returns `ERANGE` if a repetition of a block reaches outside its MR.
    pub fn bind(&mut self, layout: &Interleaved<'r>, access: Access) -> Result {
        layout.check()?;
        let (repeat, blocks) = (&layout.repeat, &layout.blocks);
        let layout = mkey::interleaved(
            access.bits(),
            count(repeat.len()),
            repeat.as_ptr(),
            count(blocks.len()),
            blocks.as_ptr(),
        );
        // SAFETY: The arrays are those of the caller's layout.
        unsafe { self.bind_at_base(layout) }
    }

    /// Binds the key to blocks at indices.
    pub fn bind_indexed(&mut self, layout: &Indexed<'r, '_>, access: Access) -> Result {
        layout.check()?;
        let raw = sys::ib_uverbs_mkey_indexed {
            addr: layout.table.address,
            unit: layout.unit,
            bytes_count: layout.block,
            indices: layout.indices.as_ptr() as u64,
            num_indices: u32::try_from(layout.indices.len()).map_err(|_| Errno::ENOSPC)?,
            index_bytes: 4,
            lkey: layout.table.lkey,
            comp_mask: 0,
        };
        // SAFETY: The structure is above, and the indices are the caller's.
        unsafe { self.bind_at_base(mkey::indexed(access.bits(), &raw)) }
    }

    /// Unbinds the key: every access by it fails until it is bound again. The lkey and the rkey
    /// change.
    pub fn unbind(&mut self) -> Result {
        self.set(mkey::unbind(self.fd, self.handle)?);
        Ok(())
    }

    /// Returns all bytes of the key, for a layout of another key.
    pub const fn all(&self) -> Slice<'_> {
        Slice {
            lkey: self.lkey,
            address: self.base,
            length: self.length,
            owner: PhantomData,
        }
    }

    /// Returns some bytes, for a layout of another key. Returns `ERANGE` if `range` reaches outside
    /// the key.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'_>> {
        self.all().slice(range)
    }

    /// Returns the address of the first byte.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Returns the lkey, for requests of this side.
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the rkey, for requests of peers.
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns the number of bytes, 0 if the key is not bound.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the handle of the MR in the kernel.
    pub const fn handle(&self) -> u32 {
        self.handle
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // If a memory window of another crate is bound to the key, this fails. The key then stays,
        // and the memory that it describes, too: a region does not free memory that is still
        // registered.
        let _ = object::destroy(self.fd, self.handle);
    }
}
