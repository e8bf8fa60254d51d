// SPDX-License-Identifier: GPL-2.0

//! The evaluator: accesses through a binding, to keys and to device memory.
//!
//! An access passes handler → region → layout → leaf → bytes. The evaluator runs on the data path.
//! It allocates nothing and takes no lock, except for ODP. The layout that an access uses is over
//! memory, also for keys over keys (`region/flat.rs`). The evaluator computes the first piece of an
//! access, without a walk over the pieces before that one. It looks a leaf up, and checks it, once
//! for successive pieces in that leaf.

use crate::{
    backend::{BaseMr, Direction, Payload},
    errors::Refused,
    kernel_ext::sched,
    layout::{Row, Segment},
    region::binding::{Binding, Leaf, LeafPlace},
};
use kernel::{ffi::c_int, prelude::*};

impl Leaf {
    /// Copies the bytes of the leaf from address `addr` on, for a reader of this node. `pd` is the
    /// protection domain of the reader. The caller keeps the leaf pinned.
    ///
    /// # Errors
    ///
    /// `ERANGE` outside of the leaf, the errors of [`BaseMr::allows`] and of [`Binding::copy`].
    pub(crate) fn read(&self, pd: usize, addr: u64, to: &mut [u8]) -> Result {
        let len = to.len() as u64;
        if len > self.len || addr.wrapping_sub(self.start) > self.len - len {
            return Err(ERANGE);
        }
        let payload = Payload::reading(to)?;
        match &self.place {
            LeafPlace::Memory {
                base,
                delta,
                mutable,
            } => {
                if *mutable {
                    base.allows(pd, self.lkey, self.start, false)?;
                }
                let row = Row::of(0, addr, len);
                base.copy(Segment::Row(row), *delta, &payload)
            }
            LeafPlace::Key(binding) => binding.copy(addr.wrapping_sub(self.start), &payload),
        }
    }
}

impl Binding {
    /// Returns the MR of leaf `index` of `leaves`, if it still allows the access, and the number to
    /// add to the addresses of the leaf.
    ///
    /// # Errors
    ///
    /// `ACCESS_LEAF` by [`BaseMr::allows`]; `EFAULT` for a leaf that is no memory.
    #[inline]
    pub(crate) fn open<'l>(
        &self,
        leaves: &'l [Leaf],
        index: u32,
        write: bool,
    ) -> Result<(&'l BaseMr, u64)> {
        let leaf = leaves.get(index as usize).ok_or(EFAULT)?;
        let LeafPlace::Memory {
            base,
            delta,
            mutable,
        } = &leaf.place
        else {
            return Err(EFAULT);
        };
        if *mutable {
            base.allows(self.pd, leaf.lkey, leaf.start, write)
                .map_err(|_| Refused::ACCESS_LEAF)?;
        }
        Ok((base, *delta))
    }

    /// Returns the binding whose layout over memory has the bytes of an access, and the offset of the
    /// access in that layout.
    /// Fails with `ACCESS_RANGE` for bytes outside of this binding.
    #[inline]
    pub(crate) fn locate(&self, offset: u64, len: u64) -> Result<(&Self, u64)> {
        let (target, before) = self.target();
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.layout.length()) {
            return Err(Refused::ACCESS_RANGE.into());
        }
        Ok((target, offset.wrapping_add(before)))
    }

    /// Checks that `len` bytes at `offset` are in the binding. Fails with `ACCESS_RANGE` otherwise.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result {
        self.locate(offset, len).map(|_| ())
    }

    /// Copies all of `payload` from or to the bytes from `offset` on. The caller has compared the
    /// access flags of the binding ([`Self::allows`]), also for the functions below.
    ///
    /// # Errors
    ///
    /// `ACCESS_RANGE`; `ACCESS_LEAF`; `ACCESS_MEMORY` and `ACCESS_POISON` by [`BaseMr::copy`]. The bytes
    /// before a leaf that fails are copied, as with several SGEs.
    #[inline]
    pub(crate) fn copy(&self, offset: u64, payload: &Payload<'_>) -> Result {
        let (binding, offset) = self.locate(offset, payload.len())?;
        let (layout, leaves) = binding.memory();
        let Some(row) = layout.only_row(offset, payload.len()) else {
            return binding.copy_segments(offset, payload);
        };
        let write = payload.direction() == Direction::ToMemory;
        let (base, delta) = binding.open(leaves, row.leaf, write)?;
        let copied = base.copy(Segment::Row(row), delta, payload);
        Ok(copied.map_err(Refused::of_memory)?)
    }

    /// Copies as [`Self::copy`] does, by a cursor. The binding must be a [target](Self::target).
    #[inline(never)]
    fn copy_segments(&self, offset: u64, payload: &Payload<'_>) -> Result {
        let (layout, leaves) = self.memory();
        let write = payload.direction() == Direction::ToMemory;
        let mut rows = layout.rows(offset, payload.len());
        // The cursor is large, so it is not moved.
        let rows = rows.as_mut().map_err(|error| *error)?;
        // The MR of the segment before.
        let mut opened: Option<(u32, (&BaseMr, u64))> = None;
        while let Some(segment) = rows.next_segment() {
            let leaf = segment.leaf();
            let (base, delta) = match opened {
                Some((last, mr)) if last == leaf => mr,
                _ => opened.insert((leaf, self.open(leaves, leaf, write)?)).1,
            };
            let copied = base.copy(segment, delta, payload);
            copied.map_err(Refused::of_memory)?;
        }
        Ok(())
    }

    /// Returns the MR and the address of an access that cannot be split. Its bytes must be in one
    /// piece of each level of keys.
    fn resolve(&self, offset: u64, len: u64) -> Result<(&BaseMr, u64)> {
        let (mut binding, mut at) = (self, offset);
        loop {
            let run = binding.layout.resolve(at, len)?;
            let leaf = binding.leaves.get(run.leaf as usize).ok_or(EFAULT)?;
            if let LeafPlace::Key(inner) = &leaf.place {
                (binding, at) = (inner, run.addr.wrapping_sub(leaf.start));
                continue;
            }
            let (base, delta) = binding.open(&binding.leaves, run.leaf, true)?;
            return Ok((base, run.addr.wrapping_add(delta)));
        }
    }

    /// Does an atomic operation on the eight bytes at `offset`, which must be in one block.
    ///
    /// The driver's code executes the operation on the leaf, so the operation serialises with all
    /// other atomic operations on that memory.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::copy`] and [`BaseMr::atomic_op`] do, and with `ACCESS_PIECES` if the bytes are
    /// in several pieces.
    pub(crate) fn atomic_op(
        &self,
        offset: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> Result {
        let (base, iova) = self.resolve(offset, 8)?;
        base.atomic_op(iova, opcode, compare, swap_add, original)
    }

    /// Writes eight bytes at `offset` in one atomic write. Fails as [`Self::atomic_op`] does.
    pub(crate) fn atomic_write(&self, offset: u64, value: u64) -> Result {
        let (base, iova) = self.resolve(offset, 8)?;
        base.atomic_write(iova, value)
    }

    /// Makes `len` bytes from `offset` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::copy`].
    pub(crate) fn flush(&self, offset: u64, len: u64) -> Result {
        let (binding, offset) = self.locate(offset, len)?;
        let (layout, leaves) = binding.memory();
        for row in layout.rows(offset, len)? {
            let (base, delta) = binding.open(leaves, row.leaf, false)?;
            for piece in 0..row.count {
                sched::cond_resched();
                let flushed = base.flush(row.skip(piece).addr.wrapping_add(delta), row.len);
                flushed.map_err(Refused::of_memory)?;
            }
        }
        Ok(())
    }
}
