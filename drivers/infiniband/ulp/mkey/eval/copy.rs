// SPDX-License-Identifier: GPL-2.0

//! The copy of a packet. Most packets are one row of blocks, or one piece of a fast registration.
//! The copy of such a packet is inlined into the handler.

use super::{memory::MemoryCopy, LeafMr};
use crate::{
    backend::{BaseMr, CopyPages, Direction, Payload},
    kernel_ext::rdma::Access,
    layout::Row,
    region::binding::{Binding, KLayout, LeafPlace},
};
use kernel::prelude::*;

impl Binding {
    /// Copies all of `payload` from or to the bytes from `offset` on. Requires the access flags
    /// `needed`.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, `EACCES` if access flags are missing, those of faulting pages in. The
    /// bytes before a leaf that fails are copied, as with several SGEs.
    #[inline(always)]
    pub(crate) fn copy(&self, offset: u64, payload: Payload<'_>, needed: Access) -> Result {
        self.allows(needed)?;
        let write = payload.direction() == Direction::ToMemory;
        let Some(blocks) = self.blocks() else {
            return self.copy_further(offset, payload, write, true);
        };
        let Some(row) = blocks.only_row(offset, payload.len()) else {
            return self.copy_further(offset, payload, write, false);
        };
        let leaf = self.leaf(row.leaf, write)?;
        let LeafPlace::Memory { base, delta, .. } = &leaf.place else {
            return self.copy_further(offset, payload, write, true);
        };
        let addr = row.addr.wrapping_add(*delta);
        base.copy_row(Row { addr, ..row }, payload)
    }

    /// Does what [`Self::copy`] does. Takes fewer instructions if the bytes are in one entry of a
    /// list, and in the MR of all memory. Most packets of a fast registration are.
    #[inline(always)]
    pub(crate) fn copy_entry(&self, offset: u64, payload: Payload<'_>, needed: Access) -> Result {
        self.allows(needed)?;
        let write = payload.direction() == Direction::ToMemory;
        let rest = match &self.layout {
            KLayout::List(list) => list.rest(offset),
            _ => None,
        };
        let maybe_row = match rest {
            Some(rest) if payload.len() <= rest.len => match self.steady(&rest) {
                Some((base, addr)) if base.copy_mapped(addr, &payload) => return Ok(()),
                _ => true,
            },
            Some(_) => false,
            None => true,
        };
        self.copy_further(offset, payload, write, maybe_row)
    }

    /// Returns the one row of an access, see [`Layout::only_row`](crate::layout::Layout::only_row).
    /// Returns [`None`] for a flat list, whose entries are short.
    #[inline(always)]
    fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        if self.flat().is_some() {
            return None;
        }
        self.layout.only_row(offset, len)
    }

    /// Copies the bytes of an access that is not one row of blocks in memory. `maybe_row` is `true`
    /// if the access may be one row of this layout. The errors are those of [`Self::copy`].
    // Not inlined, because most accesses are one row and need no stack and no register for this.
    #[inline(never)]
    fn copy_further(
        &self,
        mut offset: u64,
        mut payload: Payload<'_>,
        write: bool,
        mut maybe_row: bool,
    ) -> Result {
        let mut binding = self;
        while maybe_row {
            let Some(row) = binding.only_row(offset, payload.len()) else {
                break;
            };
            match &binding.leaf(row.leaf, write)?.place {
                LeafPlace::Memory { base, delta, .. } => {
                    let addr = row.addr.wrapping_add(*delta);
                    return base.copy_row(Row { addr, ..row }, payload);
                }
                // If all bytes are in one piece, this is an access to the key below.
                LeafPlace::Key(inner) => {
                    maybe_row = row.count == 1;
                    if maybe_row {
                        binding = inner;
                        offset = row.addr;
                    }
                }
            }
        }
        let len = payload.len();
        if binding.levels() > 1 {
            let mut visit =
                |pages: &mut <LeafMr as BaseMr>::Pages<'_>, row| pages.copy(row, &mut payload);
            return binding.walk(offset, len, write, &BaseMr::pages, &mut visit);
        }
        let mut copy = MemoryCopy {
            binding,
            payload: &mut payload,
            write,
        };
        if let Some(copied) = copy.copy_only(offset) {
            return copied;
        }
        copy.copy_all(offset)
    }
}
