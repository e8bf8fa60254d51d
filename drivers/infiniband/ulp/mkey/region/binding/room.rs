// SPDX-License-Identifier: GPL-2.0

//! The room for a short binding that a key keeps for its next bind.
//!
//! A program may bind a key for each message. So a key has room for two short bindings: the one that
//! it has, and the next one. A bind to a layout of the same kind then allocates only the pins. The
//! memory stays charged to the owner of the key.

use super::{Binding, KLayout, Leaf};
use crate::{
    kernel_ext::{alloc::GFP_MAYFAIL, sync::rcu_arc::RcuUnique},
    layout::{Block, Entry, List, Shape},
    limits::owner::OwnerCharge,
};
use core::mem;
use kernel::prelude::*;

/// The most entries, blocks and leaves of a binding whose memory is kept.
const SHORT: usize = 4;

/// A layout without entries and memory.
const EMPTY: KLayout = KLayout::List(List::unfilled(KVVec::new()));

/// The memory of a short binding, or none.
pub(crate) struct Room(Option<RcuUnique<Binding>>);

impl Room {
    /// No memory.
    pub(crate) const NONE: Self = Self(None);

    /// Keeps the memory of `binding`, which no access uses any more, if it is short. Unpins its leaves.
    pub(crate) fn of(mut binding: RcuUnique<Binding>) -> Self {
        let capacity = match &binding.layout {
            KLayout::List(list) => list.storage().capacity(),
            KLayout::Interleaved(blocks) => blocks.storage().capacity(),
            KLayout::Indexed(_) => return Self::NONE,
        };
        let is_short = capacity <= SHORT
            && binding.leaves.capacity() <= SHORT
            && binding.extra.is_none()
            && binding._charge.is_some();
        if !is_short {
            return Self::NONE;
        }
        binding.leaves.clear();
        Self(Some(binding))
    }

    /// Takes the charge of the memory out.
    pub(crate) fn charge(&mut self) -> Option<OwnerCharge> {
        self.0.as_mut()?._charge.take()
    }

    /// Takes the memory of the leaves out.
    pub(crate) fn leaves(&mut self) -> KVVec<Leaf> {
        match &mut self.0 {
            Some(unused) => mem::take(&mut unused.leaves),
            None => KVVec::new(),
        }
    }

    /// Takes the layout out, which may have memory.
    fn layout(&mut self) -> KLayout {
        match &mut self.0 {
            Some(unused) => mem::replace(&mut unused.layout, EMPTY),
            None => EMPTY,
        }
    }

    /// Returns memory for `count` entries.
    pub(crate) fn entries(&mut self, count: usize) -> Result<KVVec<Entry>> {
        let mut entries = match self.layout() {
            KLayout::List(list) => list.into_storage(),
            _ => KVVec::new(),
        };
        entries.clear();
        if entries.capacity() < count {
            entries = KVVec::with_capacity(count, GFP_MAYFAIL)?;
        }
        Ok(entries)
    }

    /// Returns memory for `count` blocks, and that of a shape.
    pub(crate) fn blocks(&mut self, count: usize) -> Result<(KVVec<Block>, KBox<Shape>)> {
        let (mut blocks, shape) = match self.layout() {
            KLayout::Interleaved(layout) => layout.into_parts(),
            _ => (KVVec::new(), KBox::new(Shape::UNUSED, GFP_MAYFAIL)?),
        };
        blocks.clear();
        if blocks.capacity() < count {
            blocks = KVVec::with_capacity(count, GFP_MAYFAIL)?;
        }
        Ok((blocks, shape))
    }

    /// Moves `binding` into this memory, or into new memory.
    pub(crate) fn fill(self, binding: Binding) -> Result<RcuUnique<Binding>> {
        match self.0 {
            Some(mut unused) => {
                *unused = binding;
                Ok(unused)
            }
            None => RcuUnique::new(binding, GFP_MAYFAIL),
        }
    }
}
