// SPDX-License-Identifier: GPL-2.0

//! Flat lists: a nest of keys as one list of ranges of memory.
//!
//! An access to a nest of small pieces does one look-up for each piece and level. One packet of a
//! peer can thus occupy a worker a thousand times as long as a packet to memory. A bind of many
//! small pieces therefore makes a list of their places. The list is at most [`MAX_PARTS`] times as
//! long as the description, and is charged to the owner of the key.
//!
//! A flat list grants no access: its leaves are leaves of the bindings below, and each access
//! checks them. The places of the bytes cannot change, because the keys below are pinned. Queries,
//! and accesses that cannot be split, use the description.

use crate::{
    kernel_ext::{alloc::GFP_MAYFAIL, error::eloop, sched},
    layout::{
        flatten,
        flatten_all,
        Below,
        Block,
        Entry,
        List,
        Run,
        Shape,
        MAX_PARTS, //
    },
    limits::{cost, owner::OwnerCharge},
    region::binding::{Binding, Flat, KLayout, Leaf, LeafPlace, Reached, MAX_LEVELS},
    region::indices::KIndexed,
};
use core::ptr;
use kernel::{prelude::*, rbtree::RBTree, sync::Arc};

/// The most entries of a flat list, unless the description has more.
const MAX_FLAT: usize = 1 << 20;

/// A nest of up to this number of pieces is made flat, regardless of their size.
const FEW: u64 = 64;

/// The most pieces per block or entry of a description that is made flat.
const REPEATED: u64 = 4;

/// The most entries of a list that replaces a nest whose packets would take too long.
const MAX_FORCED: usize = 1 << 16;

/// The most ranges that are visited for such a list. They may be more than its entries, because
/// ranges that continue one another become one entry.
const MAX_LOOKED_AT: usize = 4 * MAX_FORCED;

/// The pieces between two checks whether the process was killed.
const PIECES_AT_ONCE: usize = 1024;

/// A key below a binding.
#[derive(Clone, Copy)]
struct Inner<'a>(&'a Arc<Binding>);

impl<'a> Inner<'a> {
    /// Returns the binding that has leaf `index` of the layout that accesses walk over, and the
    /// number of the leaf in that binding.
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

/// Returns the key of a leaf; [`None`] if the leaf is memory.
fn key_of(leaf: &Leaf) -> Option<Inner<'_>> {
    match &leaf.place {
        LeafPlace::Memory { .. } => None,
        LeafPlace::Key(binding) => Some(Inner(binding)),
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

/// The name of a leaf: the address of its binding (0 for the binding that gets the list), and the
/// number of the leaf in that binding.
type Name = (usize, u32);

/// A flat list that is being made. The first pass counts the entries, the second one stores them.
struct Build {
    /// The charge for the list.
    charge: OwnerCharge,
    leaves: KVVec<Reached>,
    numbers: RBTree<Name, u32>,
    last: Option<(Name, u32)>,
    /// The last entry, which the next range may continue.
    open: Option<Entry>,
    entries: KVVec<Entry>,
    /// The number of entries, stored or not.
    count: usize,
    /// The number of ranges that were added. After each [`PIECES_AT_ONCE`] ranges, a check follows
    /// whether the process was killed.
    added: usize,
    has_keys: bool,
    has_parts: bool,
}

impl Build {
    /// Makes an empty list, to be charged to the owner of `charge`.
    fn new(charge: &OwnerCharge) -> Result<Self> {
        Ok(Self {
            charge: charge.beside(0)?,
            leaves: KVVec::new(),
            numbers: RBTree::new(),
            last: None,
            open: None,
            entries: KVVec::new(),
            count: 0,
            added: 0,
            has_keys: false,
            has_parts: false,
        })
    }

    /// Returns the number of a leaf. Charges for a new leaf.
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

    /// Adds a range of a leaf of `key`. If `key` is [`None`], the leaf is one of `leaves`.
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

    /// Adds all ranges of `layout`.
    fn pass(&mut self, layout: &KLayout, leaves: &[Leaf], parts: Parts) -> Result {
        self.count = 0;
        self.added = 0;
        let key = |leaf: u32| key_of(leaves.get(leaf as usize)?);
        match parts {
            Parts::Few(most) => flatten::<_, _, { MAX_LEVELS }>(layout, key, most, |key, run| {
                self.add(leaves, key, run)
            })?,
            Parts::All => flatten_all::<_, _, { MAX_LEVELS }>(layout, key, |key, run| {
                self.add(leaves, key, run)?;
                if self.count >= MAX_FORCED || self.added >= MAX_LOOKED_AT {
                    return Err(eloop());
                }
                Ok(())
            })?,
        }
        match self.open.take() {
            Some(last) => self.put(last),
            None => Ok(()),
        }
    }

    /// Makes the list. Returns [`None`] if the list would be equal to the description.
    fn make(mut self, layout: &KLayout, leaves: &[Leaf], parts: Parts) -> Result<Option<Flat>> {
        self.pass(layout, leaves, parts)?;
        if !self.has_parts {
            return Ok(None);
        }
        self.charge.grow(cost::flat(self.count)?)?;
        self.entries.reserve(self.count, GFP_MAYFAIL)?;
        self.pass(layout, leaves, parts)?;
        Ok(Some(Flat {
            layout: KLayout::List(List::new(self.entries)?),
            leaves: self.leaves,
            has_keys: self.has_keys,
            _charge: self.charge,
        }))
    }
}

/// The ranges of keys that a list replaces by ranges of memory.
#[derive(Clone, Copy)]
enum Parts {
    /// Ranges that consist of up to this number of ranges of memory.
    Few(usize),
    /// All ranges.
    All,
}

/// Makes a flat list of `layout`, which has `pieces` pieces. Returns [`None`] if the list would
/// cost more than it saves. `is_fine` is `true` if a packet through the nest could take more work
/// than `FINE` in `region/binding/work.rs`.
///
/// # Errors
///
/// `ENOMEM` without memory or beyond a limit; `EINTR` if the process was killed.
pub(super) fn make(
    layout: &KLayout,
    leaves: &[Leaf],
    pieces: u64,
    is_fine: bool,
    charge: &OwnerCharge,
) -> Result<Option<Flat>> {
    let described = (layout.count() as u64).saturating_mul(REPEATED);
    let most_pieces = if is_fine { described.max(FEW) } else { FEW };
    if pieces > most_pieces || leaves.iter().all(|leaf| key_of(leaf).is_none()) {
        return Ok(None);
    }
    let most = MAX_FLAT.checked_div(usize::try_from(pieces)?);
    let most = most.unwrap_or(MAX_PARTS).clamp(1, MAX_PARTS);
    Build::new(charge)?.make(layout, leaves, Parts::Few(most))
}

/// Makes a flat list of all ranges of memory, for a nest through which a packet could otherwise
/// take too long. `pieces` is as for [`make`].
///
/// # Errors
///
/// `ELOOP` if the list would have more than [`MAX_FORCED`] entries; those of [`make`].
pub(super) fn make_all(
    layout: &KLayout,
    leaves: &[Leaf],
    pieces: u64,
    charge: &OwnerCharge,
) -> Result<Option<Flat>> {
    if pieces > MAX_LOOKED_AT as u64 {
        return Err(eloop());
    }
    Build::new(charge)?.make(layout, leaves, Parts::All)
}
