// SPDX-License-Identifier: GPL-2.0

//! Keys over keys as one layout over memory.
//!
//! A key below a binding cannot change, because the binding pins it. So the bind of a key over keys
//! makes one layout of all levels, and an access to that key takes as long as one to a key over
//! memory. Queries, and accesses that cannot be split, use the description.
//!
//! The layout grants no access: its leaves are copies of those of the keys below, with their lkeys,
//! and each access checks them.

use crate::{
    errors::{Refused, Result},
    kernel_ext::{alloc::GFP_MAYFAIL, sched},
    layout::{compose, pieces, Block, Entry, List, Place, Row, Shape},
    limits::{cost, owner::OwnerCharge},
    region::binding::{
        interleaved,
        Binding,
        Flat,
        KLayout,
        Leaf,
        LeafPlace,
        Range,
        MAX_ENTRIES, //
    },
};
use kernel::{prelude::*, rbtree::RBTree};

/// The most pieces of memory that a list of keys over keys has.
pub(crate) const MAX_PIECES: usize = 1 << 20;

/// The same for a bind by a work request, for which a worker of the driver waits.
pub(crate) const MAX_PIECES_OF_REQUEST: usize = 1 << 16;

/// The number of pieces or blocks between two checks whether the process was killed.
const AT_ONCE: usize = 1024;

/// Returns the layout of the key that `leaf` is, and the number to add to an address of the key to
/// get an offset in that layout. Returns [`None`] for memory.
fn key_of(leaf: &Leaf) -> Option<(&Binding, u64)> {
    let LeafPlace::Key(binding) = &leaf.place else {
        return None;
    };
    let (target, before) = binding.target();
    Some((target, before.wrapping_sub(leaf.start)))
}

/// If `layout` is one range of a key, returns that range.
pub(super) fn range(layout: &KLayout, leaves: &[Leaf]) -> Option<Range> {
    let row = layout.rows(0, layout.length()).ok()?.next()?;
    let leaf = leaves.get(row.leaf as usize)?;
    let LeafPlace::Key(key) = &leaf.place else {
        return None;
    };
    let (target, before) = match key.range() {
        None => (key, 0),
        Some(range) => (&range.binding, range.offset),
    };
    (row.len == layout.length()).then(|| Range {
        binding: target.clone(),
        // Both are within the layout of the key.
        offset: row.addr.wrapping_sub(leaf.start).wrapping_add(before),
    })
}

/// A layout that is being made. The first pass counts the blocks or pieces, the second one stores
/// them.
struct Build<'a> {
    below: &'a [Leaf],
    /// The most pieces.
    most: usize,
    /// The charge for the layout.
    charge: OwnerCharge,
    leaves: KVVec<Leaf>,
    numbers: RBTree<(u32, Option<u32>), u32>,
    last: Option<(Place, u32)>,
    blocks: KVVec<Block>,
    entries: KVVec<Entry>,
    /// The last entry, which the next piece may continue.
    open: Option<Entry>,
    /// The number of entries.
    count: usize,
    /// The number of blocks or pieces that were added.
    added: usize,
}

impl<'a> Build<'a> {
    /// Makes an empty layout, to be charged to the owner of `charge`.
    fn new(below: &'a [Leaf], most: usize, charge: &OwnerCharge) -> Result<Self> {
        Ok(Self {
            below,
            most,
            charge: charge.beside(cost::FLAT)?,
            leaves: KVVec::new(),
            numbers: RBTree::new(),
            last: None,
            blocks: KVVec::new(),
            entries: KVVec::new(),
            open: None,
            count: 0,
            added: 0,
        })
    }

    /// Returns the key of leaf `number` of the description; [`None`] for memory.
    fn key(below: &'a [Leaf], number: u32) -> Option<(&'a KLayout, u64)> {
        let (binding, offset) = key_of(below.get(number as usize)?)?;
        Some((binding.memory().0, offset))
    }

    /// Returns the number of the leaf at `place`. Charges for a new leaf.
    fn number(&mut self, place: Place) -> Result<u32> {
        if let Some((last, number)) = self.last {
            if last == place {
                return Ok(number);
            }
        }
        let name = (place.outer, place.inner);
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None => {
                let outer = self.below.get(place.outer as usize).ok_or(EFAULT)?;
                let leaf = match (key_of(outer), place.inner) {
                    (Some((binding, _)), Some(inner)) => {
                        binding.memory().1.get(inner as usize).ok_or(EFAULT)?
                    }
                    _ => outer,
                };
                let number = u32::try_from(self.leaves.len())?;
                self.charge.grow(cost::LEAF)?;
                self.leaves.push(leaf.copied()?, GFP_MAYFAIL)?;
                self.numbers
                    .try_create_and_insert(name, number, GFP_MAYFAIL)?;
                number
            }
        };
        self.last = Some((place, number));
        Ok(number)
    }

    /// Counts a block or piece.
    fn count(&mut self) -> Result {
        self.added = self.added.wrapping_add(1);
        if self.added % AT_ONCE == 0 {
            sched::check_killed()?;
        }
        Ok(())
    }

    /// Makes a layout of `layout` whose size does not depend on the repeat counts, if there is one.
    fn blocks(&mut self, layout: &KLayout) -> Result<Option<KLayout>> {
        let (below, most) = (self.below, MAX_ENTRIES as usize);
        let key = |leaf| {
            sched::cond_resched();
            Self::key(below, leaf)
        };
        let counts = compose(layout, most, key, |place, _| {
            self.count()?;
            self.number(place).map(|_| ())
        })?;
        if counts.is_none() {
            return Ok(None);
        }
        let count = core::mem::take(&mut self.added);
        self.charge.grow(cost::blocks(count)?)?;
        self.blocks.reserve(count, GFP_MAYFAIL)?;
        let counts = compose(layout, most, key, |place, block| {
            self.count()?;
            let leaf = self.number(place)?;
            let block = Block::new(leaf, block.addr(), block.bytes_count(), *block.stride());
            Ok::<_, Refused>(self.blocks.push_within_capacity(block)?)
        })?;
        let blocks = core::mem::take(&mut self.blocks);
        let counts = counts.ok_or(EFAULT)?;
        Ok(Some(interleaved(
            counts.as_slice(),
            (blocks, KBox::new(Shape::UNUSED, GFP_MAYFAIL)?),
        )?))
    }

    /// Adds the pieces of `row`, whose leaf is at `place`.
    fn add(&mut self, place: Place, row: Row) -> Result {
        let number = self.number(place)?;
        for at in 0..row.count {
            self.count()?;
            if self.added > self.most {
                return Err(Refused::PIECES.with(self.most as u64));
            }
            let piece = row.skip(at).piece();
            let entry = Entry::new(number, piece.addr, piece.len);
            if self.open.as_mut().is_some_and(|open| open.join(&entry)) {
                continue;
            }
            if let Some(whole) = self.open.replace(entry) {
                self.put(whole)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, entry: Entry) -> Result {
        self.count = self.count.saturating_add(1);
        if self.entries.capacity() != 0 {
            self.entries.push_within_capacity(entry)?;
        }
        Ok(())
    }

    /// Adds all pieces of `layout`.
    fn pass(&mut self, layout: &KLayout) -> Result {
        (self.count, self.added) = (0, 0);
        let below = self.below;
        let key = |leaf| Self::key(below, leaf);
        pieces(layout, key, |place, row| self.add(place, row))?;
        match self.open.take() {
            Some(last) => self.put(last),
            None => Ok(()),
        }
    }

    /// Makes a list of all pieces of `layout`.
    fn list(&mut self, layout: &KLayout) -> Result<KLayout> {
        self.pass(layout)?;
        self.charge.grow(cost::entries(self.count)?)?;
        self.entries.reserve(self.count, GFP_MAYFAIL)?;
        self.pass(layout)?;
        let entries = core::mem::take(&mut self.entries);
        Ok(KLayout::List(List::new(entries)?))
    }
}

/// Makes one layout of `layout`, whose leaves `below` include a key. Fails for more than `most`
/// pieces, and if the process was killed.
pub(super) fn make(
    layout: &KLayout,
    below: &[Leaf],
    most: usize,
    charge: &OwnerCharge,
) -> Result<Flat> {
    let mut build = Build::new(below, most, charge)?;
    let layout = match build.blocks(layout)? {
        Some(composed) => composed,
        None => build.list(layout)?,
    };
    Ok(Flat {
        layout,
        leaves: build.leaves,
        _charge: build.charge,
    })
}
