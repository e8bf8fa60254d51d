// SPDX-License-Identifier: GPL-2.0

//! The evaluator: accesses to what is bound to a region, key and device memory alike.
//!
//! handler → region → layout → leaf → bytes. Runs on the data path, under SRCU: it takes no lock, allocates nothing and looks each leaf up once in a row of
//! runs. A position is computed; what lies before it is never walked.

use crate::{
    backend::{Direction, Window},
    object::{Bound, Leaf},
    rdma::{eopnotsupp, mr::Right},
};
use kernel::{ffi::c_int, prelude::*};

impl Leaf {
    /// Looks again at what may have changed since the bind.
    #[inline]
    fn allows(&self, pd: usize, write: bool) -> Result {
        if self.mutable {
            self.base.allows(pd, write)
        } else {
            Ok(())
        }
    }
}

impl Bound {
    fn leaf(&self, index: u32, write: bool) -> Result<&Leaf> {
        if write && !self.access.contains(Right::LocalWrite) {
            return Err(EACCES);
        }
        let leaf = self.leaves.get(index as usize).ok_or(EFAULT)?;
        leaf.allows(self.pd, write)?;
        Ok(leaf)
    }

    /// Copies between the region, from `offset` on, and all of `window`.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, `EACCES` if rights are missing. What came before a leaf that fails
    /// is copied, as with several SGEs.
    pub(crate) fn copy(&self, offset: u64, mut window: Window<'_>) -> Result {
        let write = window.direction() == Direction::ToMemory;
        let mut runs = self.layout.runs(offset, window.left() as u64)?.peekable();
        while let Some(run) = runs.next() {
            let leaf = self.leaf(run.leaf, write)?;
            let mut pages = leaf.base.pages();
            pages.copy(run.addr.wrapping_add(leaf.delta), run.len, &mut window)?;
            // The row of runs in the same leaf.
            while let Some(next) = runs.next_if(|next| next.leaf == run.leaf) {
                pages.copy(next.addr.wrapping_add(leaf.delta), next.len, &mut window)?;
            }
        }
        Ok(())
    }

    /// Finds the one place of an access that cannot be split.
    fn resolve(&self, offset: u64, len: u64) -> Result<(&Leaf, u64)> {
        let run = self.layout.resolve(offset, len)?;
        let leaf = self.leaf(run.leaf, true)?;
        Ok((leaf, run.addr.wrapping_add(leaf.delta)))
    }

    /// Does an atomic operation on the eight bytes at `offset`, which must be in one block.
    ///
    /// It is done by the driver's code on the leaf, so that it serialises with all others on that
    /// memory.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`]; otherwise what the driver's code says.
    pub(crate) fn atomic_op(
        &self,
        offset: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> Result<c_int> {
        let (leaf, iova) = self.resolve(offset, 8)?;
        Ok(leaf
            .base
            .atomic_op(iova, opcode, compare, swap_add, original))
    }

    /// Writes eight bytes at `offset` at once. As for [`Self::atomic_op`].
    pub(crate) fn atomic_write(&self, offset: u64, value: u64) -> Result<c_int> {
        let (leaf, iova) = self.resolve(offset, 8)?;
        Ok(leaf.base.atomic_write(iova, value))
    }
    /// Makes `len` bytes from `offset` on persistent. Only regions of persistent memory have the
    /// right to that.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`], `EOPNOTSUPP` for a region of anything else.
    pub(crate) fn flush(&self, offset: u64, len: u64) -> Result {
        if !self.access.contains(Right::FlushPersistent) {
            return Err(eopnotsupp());
        }
        for run in self.layout.runs(offset, len)? {
            let leaf = self.leaf(run.leaf, false)?;
            leaf.base
                .flush(run.addr.wrapping_add(leaf.delta), run.len)?;
        }
        Ok(())
    }
}
