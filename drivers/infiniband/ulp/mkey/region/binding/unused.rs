// SPDX-License-Identifier: GPL-2.0

//! The unused binding of a key, whose memory the next bind of the key uses.
//!
//! A program may bind a key for each message. So a key keeps its last binding for its memory, if
//! that binding is short. A bind of a short layout of the same kind then allocates nothing. The
//! memory stays charged to the owner of the key. An unused binding refers to no MR, because its
//! leaves were unpinned.

use super::{Binding, KLayout, Leaf};
use crate::{
    kernel_ext::alloc::{zeroed, GFP_MAYFAIL},
    layout::{Block, Entry, List, Shape},
    limits::owner::OwnerCharge,
};
use core::{mem, pin::Pin};
use kernel::{
    prelude::*,
    sync::{Arc, UniqueArc},
};

/// The most entries, blocks and leaves of a binding whose memory is kept.
pub(crate) const SHORT: usize = 4;

/// A layout without entries and memory.
const EMPTY: KLayout = KLayout::List(List::unfilled(KVVec::new()));

impl Binding {
    /// Turns a binding that no access can find any more into an unused one. Drops the binding if it
    /// is long, or if there are other references to it.
    pub(crate) fn recycle(this: Arc<Self>) -> Option<UniqueArc<Self>> {
        let capacity = match &this.layout {
            KLayout::List(list) => list.storage().capacity(),
            KLayout::Interleaved(blocks) => blocks.storage().capacity(),
            KLayout::Indexed(_) => return None,
        };
        if capacity > SHORT
            || this.leaves.capacity() > SHORT
            || this.extra.is_some()
            || this.users.is_some()
            || this._charge.is_none()
        {
            return None;
        }
        // The caller has waited for accesses, so only a search for the keys over an MR may still
        // refer to the binding.
        let mut unused = Arc::into_unique_or_drop(this).map(Pin::into_inner)?;
        unused.leaves.clear();
        Some(unused)
    }
}

/// The memory for a binding that is being made: that of an unused binding, or none.
#[derive(Default)]
pub(crate) struct UnusedMemory(Option<UniqueArc<Binding>>);

impl UnusedMemory {
    /// Uses the memory of `unused`, if there is an unused binding.
    pub(crate) fn new(unused: Option<UniqueArc<Binding>>) -> Self {
        Self(unused)
    }

    /// Takes the charge of the memory out.
    pub(crate) fn charge(&mut self) -> Option<OwnerCharge> {
        self.0.as_mut()?._charge.take()
    }

    /// Takes the memory of the leaves out.
    pub(crate) fn leaves(&mut self) -> KVVec<Leaf> {
        let unused = self.0.as_mut();
        unused.map_or_else(KVVec::new, |unused| mem::take(&mut unused.leaves))
    }

    /// Takes the layout out, which may have memory.
    fn layout(&mut self) -> KLayout {
        let unused = self.0.as_mut();
        unused.map_or(EMPTY, |unused| mem::replace(&mut unused.layout, EMPTY))
    }

    /// Returns memory for `count` entries.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn entries(&mut self, count: usize) -> Result<KVVec<Entry>> {
        if let KLayout::List(list) = self.layout() {
            let mut entries = list.into_storage();
            if entries.capacity() >= count {
                // All entries are overwritten, so that none of the earlier layout stays.
                entries.clear();
                entries.resize(count, Entry::default(), GFP_MAYFAIL)?;
                return Ok(entries);
            }
        }
        zeroed(count)
    }

    /// Returns memory for `count` blocks, and that of a shape.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn blocks(&mut self, count: usize) -> Result<(KVVec<Block>, Option<KBox<Shape>>)> {
        if let KLayout::Interleaved(layout) = self.layout() {
            let (mut blocks, shape) = layout.into_parts();
            blocks.clear();
            if blocks.capacity() < count {
                // Growing the old memory could take more than is charged.
                blocks = KVVec::with_capacity(count, GFP_MAYFAIL)?;
            }
            return Ok((blocks, Some(shape)));
        }
        Ok((KVVec::with_capacity(count, GFP_MAYFAIL)?, None))
    }

    /// Moves `binding` into this memory, or into new memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn fill(self, binding: Binding) -> Result<Arc<Binding>> {
        match self.0 {
            Some(mut unused) => {
                *unused = binding;
                Ok(unused.into())
            }
            None => Ok(Arc::new(binding, GFP_MAYFAIL)?),
        }
    }
}
