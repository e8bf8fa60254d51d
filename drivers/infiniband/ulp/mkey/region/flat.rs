// SPDX-License-Identifier: GPL-2.0

//! Nests made flat: what a binding over keys reaches, as one list over memory.
//!
//! An access to a nest of small pieces looks for a place once for each piece and level. A peer that
//! sends one packet can thus keep a worker busy for a thousand times as long as with memory alone.
//! A bind of many small pieces therefore says once where they are. The list is at most
//! [`MAX_PARTS`] times as long as the description, and is charged to the owner of the key.
//!
//! A flat list takes no part in what a binding allows: its leaves are those of the bindings below,
//! which are looked at on each access. It says where bytes are, and that cannot change: keys that
//! are referred to are pinned. What is queried, and an access that cannot be split, use the
//! description.

use crate::{
    kernel_ext::{alloc::GFP_MAYFAIL, sched},
    layout::{flatten, Below, Block, Entry, List, Run, Shape, MAX_PARTS},
    limits::{cost, owner::OwnerCharge},
    region::binding::{Binding, Flat, KLayout, Leaf, LeafPlace, Reached, MAX_LEVELS},
    region::indices::KIndexed,
};
use core::ptr;
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// Entries of a flat list, at most, unless the description has as many.
const MAX_FLAT: usize = 1 << 20;

/// Pieces that are made flat whatever their size.
const FEW: u64 = 64;

/// Pieces for each block of an interleaved description that is made flat, at most.
const REPEATED: u64 = 4;

/// Pieces that are looked at between looks at whether the process was killed.
const PIECES_AT_ONCE: usize = 1024;

/// A key below a binding.
#[derive(Clone, Copy)]
struct Inner<'a>(&'a Arc<Binding>);

impl<'a> Inner<'a> {
    /// Returns the binding whose leaf `index` of the list that accesses use is, and its number there.
    fn owner(self, index: u32) -> Option<(&'a Arc<Binding>, u32)> {
        match self.0.flat() {
            None => Some((self.0, index)),
            Some(flat) => {
                let (key, index) = flat.leaf(index)?;
                Some((key.unwrap_or(self.0), index))
            }
        }
    }
}

/// Returns the key that a leaf is.
fn key_of(leaf: &Leaf) -> Option<Inner<'_>> {
    match &leaf.place {
        LeafPlace::Memory { .. } => None,
        LeafPlace::Key(bound) => Some(Inner(bound)),
    }
}

impl<'a> Below<'a> for Inner<'a> {
    type Entries = KVVec<Entry>;
    type Blocks = KVVec<Block>;
    type Shape = KBox<Shape>;
    type Indexed = KIndexed;

    fn layout(self) -> &'a KLayout {
        self.0.walked()
    }

    fn below(self, leaf: u32) -> Option<Self> {
        let (owner, index) = self.owner(leaf)?;
        key_of(owner.leaves.get(index as usize)?)
    }
}

/// What names a leaf: the address of its binding, or 0, and the number there.
type Name = (usize, u32);

/// A flat list in the making: counted first, then stored.
struct Build<'a> {
    charge: &'a mut OwnerCharge,
    leaves: KVVec<Reached>,
    numbers: RBTree<Name, u32>,
    last: Option<(Name, u32)>,
    /// The entry at the end, which the next range may continue.
    open: Option<Entry>,
    entries: KVVec<Entry>,
    /// The number of entries, stored or not.
    count: usize,
    /// Ranges that were added, for breaks.
    added: usize,
    has_keys: bool,
    has_parts: bool,
}

impl<'a> Build<'a> {
    fn new(charge: &'a mut OwnerCharge) -> Self {
        Self {
            charge,
            leaves: KVVec::new(),
            numbers: RBTree::new(),
            last: None,
            open: None,
            entries: KVVec::new(),
            count: 0,
            added: 0,
            has_keys: false,
            has_parts: false,
        }
    }

    /// Returns the number of a leaf. Charges for new ones.
    fn number(&mut self, key: Option<&Arc<Binding>>, index: u32) -> Result<u32> {
        let name = (key.map_or(0, |key| ptr::from_ref(&**key) as usize), index);
        if let Some((last, number)) = self.last {
            if last == name {
                return Ok(number);
            }
        }
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.leaves.len())?;
                self.charge.grow(cost::REACHED)?;
                let key = key.cloned();
                self.leaves.push(Reached { key, index }, GFP_MAYFAIL)?;
                self.numbers
                    .try_create_and_insert(name, number, GFP_MAYFAIL)?;
                number
            }
        };
        self.last = Some((name, number));
        Ok(number)
    }

    /// Adds a range of a leaf of `key`, or without one of the binding's own.
    fn add(&mut self, leaves: &[Leaf], key: Option<Inner<'_>>, run: Run) -> Result {
        self.added = self.added.wrapping_add(1);
        if self.added % PIECES_AT_ONCE == 0 {
            sched::check_killed()?;
        }
        let number = match key {
            Some(key) => {
                self.has_parts = true;
                let (owner, index) = key.owner(run.leaf).ok_or(EFAULT)?;
                self.number(Some(owner), index)?
            }
            None => {
                let leaf = leaves.get(run.leaf as usize).ok_or(EFAULT)?;
                self.has_keys |= key_of(leaf).is_some();
                self.number(None, run.leaf)?
            }
        };
        let entry = Entry::new(number, run.addr, run.len);
        if let Some(open) = &mut self.open {
            if open.join(&entry) {
                return Ok(());
            }
        }
        match self.open.replace(entry) {
            Some(whole) => self.put(whole),
            None => Ok(()),
        }
    }

    fn put(&mut self, entry: Entry) -> Result {
        self.count = self.count.saturating_add(1);
        if self.entries.capacity() != 0 {
            self.entries.push_within_capacity(entry)?;
        }
        Ok(())
    }

    /// Goes through all of `layout`.
    fn pass(&mut self, layout: &KLayout, leaves: &[Leaf], most: usize) -> Result {
        self.count = 0;
        flatten::<_, _, { MAX_LEVELS }>(
            layout,
            |leaf| key_of(leaves.get(leaf as usize)?),
            most,
            |key, run| self.add(leaves, key, run),
        )?;
        match self.open.take() {
            Some(last) => self.put(last),
            None => Ok(()),
        }
    }
}

/// Makes `layout` flat, of `pieces` pieces, if that is worth what it takes: [`None`] if not. `is_fine`
/// says that its smallest piece is small.
///
/// # Errors
///
/// `ENOMEM`, beyond a limit too; `EINTR` if the process was killed.
pub(super) fn make(
    layout: &KLayout,
    leaves: &[Leaf],
    pieces: u64,
    is_fine: bool,
    charge: &mut OwnerCharge,
) -> Result<Option<Flat>> {
    let described = (layout.count() as u64).saturating_mul(REPEATED);
    let most_pieces = if is_fine { described.max(FEW) } else { FEW };
    if pieces > most_pieces || leaves.iter().all(|leaf| key_of(leaf).is_none()) {
        return Ok(None);
    }
    let most = MAX_FLAT.checked_div(usize::try_from(pieces)?);
    let most = most.unwrap_or(MAX_PARTS).clamp(1, MAX_PARTS);
    let mut build = Build::new(charge);
    build.pass(layout, leaves, most)?;
    if !build.has_parts {
        return Ok(None);
    }
    let count = build.count;
    build.charge.grow(cost::flat(count)?)?;
    build.entries.reserve(count, GFP_MAYFAIL)?;
    build.pass(layout, leaves, most)?;
    Ok(Some(Flat {
        layout: KLayout::List(List::new(build.entries)?),
        leaves: build.leaves,
        has_keys: build.has_keys,
    }))
}
