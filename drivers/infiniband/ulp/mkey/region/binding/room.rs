// SPDX-License-Identifier: GPL-2.0

//! The room for a short binding that a key keeps for its next bind.
//!
//! A program may bind a key for each message. So a key has room for two short bindings: the one that
//! it has, and the next one. A bind to a layout of the same kind then allocates only the pins. The
//! memory stays charged to the owner of the key.

use super::{Binding, KLayout};
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
pub(crate) type Room = Option<RcuUnique<Binding>>;

/// Keeps the memory of `binding`, which no access uses any more, if it is short. Unpins its leaves.
pub(crate) fn keep(mut binding: RcuUnique<Binding>) -> Room {
    let capacity = match &binding.layout {
        KLayout::List(list) => list.storage().capacity(),
        KLayout::Interleaved(blocks) => blocks.storage().capacity(),
        KLayout::Indexed(_) => return None,
    };
    let is_short = capacity <= SHORT
        && binding.leaves.capacity() <= SHORT
        && binding.extra.is_none()
        && binding.charge.is_some();
    if !is_short {
        return None;
    }
    binding.leaves.clear();
    Some(binding)
}

impl Binding {
    /// Makes a binding without a layout, to be described.
    pub(crate) fn empty(charge: OwnerCharge) -> Result<RcuUnique<Self>> {
        Self::new(EMPTY, KVVec::new(), Some(charge))
    }

    /// Charges more bytes, if the charge covers less than `bytes`.
    pub(crate) fn cover(&mut self, bytes: i64) -> Result {
        self.charge.as_mut().ok_or(ENOMEM)?.cover(bytes)
    }

    /// Takes the layout out, which may have memory.
    fn take_layout(&mut self) -> KLayout {
        mem::replace(&mut self.layout, EMPTY)
    }

    /// Returns memory for `count` entries.
    pub(crate) fn entries(&mut self, count: usize) -> Result<KVVec<Entry>> {
        let mut entries = match self.take_layout() {
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
        let (mut blocks, shape) = match self.take_layout() {
            KLayout::Interleaved(layout) => layout.into_parts(),
            _ => (KVVec::new(), KBox::new(Shape::UNUSED, GFP_MAYFAIL)?),
        };
        blocks.clear();
        if blocks.capacity() < count {
            blocks = KVVec::with_capacity(count, GFP_MAYFAIL)?;
        }
        Ok((blocks, shape))
    }
}
