// SPDX-License-Identifier: GPL-2.0

//! Accesses to memory: copies through layouts whose leaves are all memory.

use crate::{
    backend::{BaseMr, CopyPages, Payload},
    layout::{Cursor, Pieces, Row, Walker},
    region::binding::{Binding, LeafPlace},
};
use kernel::prelude::*;

/// The copy of a packet through a layout whose leaves are all memory.
pub(super) struct MemoryCopy<'b, 'p, 'a> {
    pub(super) binding: &'b Binding,
    pub(super) payload: &'p mut Payload<'a>,
    pub(super) write: bool,
}

impl MemoryCopy<'_, '_, '_> {
    /// Copies pieces through `pages`. An address of `pages` is the address in the leaf plus
    /// `delta`.
    #[inline(always)]
    fn copy_pieces(
        &mut self,
        pages: &mut impl CopyPages,
        delta: u64,
        pieces: &Pieces<'_>,
    ) -> Result {
        let mut copy = |row: Row| {
            let addr = row.addr.wrapping_add(delta);
            pages.copy(Row { addr, ..row }, self.payload)
        };
        match pieces {
            Pieces::Row(row) => copy(*row),
            Pieces::Plane(plane) => plane.rows().try_for_each(copy),
            Pieces::Records(records) => records.rows().try_for_each(copy),
            Pieces::Scattered(scattered) => pages.copy_scattered(scattered, delta, self.payload),
        }
    }

    /// Copies the bytes from `offset` on, if they can be found without a cursor. Returns [`None`]
    /// otherwise.
    #[inline(always)]
    pub(super) fn copy_only(&mut self, offset: u64) -> Option<Result> {
        let binding = self.binding;
        // This is a reference, because a match by value would copy the pieces, which are large.
        let pieces = &binding.walked().only_pieces(offset, self.payload.len());
        let Some(pieces) = pieces else {
            return None;
        };
        let (owner, leaf) = match binding.walked_leaf(pieces.leaf()) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let LeafPlace::Memory { base, delta, .. } = &leaf.place else {
            return Some(Err(EFAULT));
        };
        if let Err(error) = owner.check_leaf(leaf, self.write) {
            return Some(Err(error));
        }
        Some(self.copy_pieces(&mut base.pages(), *delta, pieces))
    }

    /// Copies the bytes from `offset` on.
    // Not inlined, because an access without a cursor needs no stack for one.
    #[inline(never)]
    pub(super) fn copy_all(self, offset: u64) -> Result {
        let (binding, len) = (self.binding, self.payload.len());
        let order = binding.order(self.write);
        binding.walked().walk(offset, len, order, self)?
    }
}

impl<'r> Walker<'r> for MemoryCopy<'_, '_, '_> {
    type Output = Result;

    #[inline(always)]
    fn walk(mut self, mut rows: impl Cursor<'r>) -> Result {
        let mut next = rows.next_pieces();
        while let Some(mut pieces) = next {
            let index = pieces.leaf();
            let (owner, leaf) = self.binding.walked_leaf(index)?;
            let LeafPlace::Memory { base, delta, .. } = &leaf.place else {
                return Err(EFAULT);
            };
            owner.check_leaf(leaf, self.write)?;
            let mut pages = base.pages();
            next = loop {
                self.copy_pieces(&mut pages, *delta, &pieces)?;
                match rows.next_pieces() {
                    Some(next) if next.leaf() == index => pieces = next,
                    next => break next,
                }
            };
        }
        Ok(())
    }
}
