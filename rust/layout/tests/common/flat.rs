// SPDX-License-Identifier: GPL-2.0

//! Keys over keys, byte by byte and as one list.

use ib_mkey_layout::{
    flatten, flatten_all, Below, Entry, Error, Indexed, Layout, List, Run, Shape,
};

use super::{check_access, work, Byte, Spec, VecIndices, VecLayout};
use ib_mkey_layout::Block;

/// The largest number of levels of keys below a layout.
pub const LEVELS: usize = 8;

/// Leaves of a layout with this number or a higher one are keys.
pub const KEYS: u32 = 1;

/// A key and the keys below it, the innermost one first.
pub struct Key {
    layout: VecLayout,
    below: Option<Box<Key>>,
    /// The number of its memory.
    memory: u32,
}

impl<'a> Below<'a> for &'a Key {
    type Entries = Vec<Entry>;
    type Blocks = Vec<Block>;
    type Shape = Shape;
    type Indexed = Indexed<VecIndices>;

    fn layout(self) -> &'a VecLayout {
        &self.layout
    }

    fn below(self, leaf: u32) -> Option<Self> {
        below(self.below.as_deref(), leaf)
    }
}

impl Key {
    /// Returns the key below, if there is one.
    pub fn inner(&self) -> Option<&Self> {
        self.below.as_deref()
    }
}

/// Returns the key that a leaf is.
pub fn below(key: Option<&Key>, leaf: u32) -> Option<&Key> {
    key.filter(|_| leaf >= KEYS)
}

/// Moves each range of a key in `spec` into the bytes of that key, which has `length` bytes.
fn fit(spec: &Spec, length: u64) -> Option<Spec> {
    match spec {
        Spec::List(entries) => {
            let entries = entries.iter().map(|&(leaf, addr, bytes)| {
                let addr = match leaf {
                    KEYS.. => addr % length,
                    _ => addr,
                };
                let bytes = match leaf {
                    KEYS.. => bytes.min(length - addr),
                    _ => bytes,
                };
                (leaf, addr, bytes)
            });
            Some(Spec::List(entries.collect()))
        }
        // Move it down. A part that then reaches over either end is removed.
        Spec::Interleaved(counts, blocks) => {
            let mut blocks = blocks.clone();
            for block in blocks.iter_mut().filter(|block| block.0 >= KEYS) {
                block.1 = block.1 % length / 2 + length / 4;
            }
            Some(Spec::Interleaved(counts.clone(), blocks))
        }
        Spec::Indexed((leaf, addr, unit, bytes), indices) => {
            let addr = if *leaf >= KEYS {
                addr % length / 4
            } else {
                *addr
            };
            Some(Spec::Indexed((*leaf, addr, *unit, *bytes), indices.clone()))
        }
    }
}

/// Returns the bytes of memory that `spec` describes over a key with `bytes`, if it is within that
/// key. A leaf that is memory has number `level`.
fn through(spec: &Spec, bytes: &[Byte], level: u32) -> Option<Vec<Byte>> {
    let each = spec.bytes().into_iter().map(|(leaf, addr, piece)| {
        if leaf < KEYS {
            return Some((level, addr, piece));
        }
        let byte = bytes.get(usize::try_from(addr).ok()?)?;
        Some((byte.0, byte.1, piece))
    });
    each.collect()
}

/// Checks that a nest of `specs`, the innermost one first, has the same bytes as its list. Levels
/// that do not fit, or that have more than `max` bytes, are left out.
pub fn check(specs: &[Spec], most: usize, max: usize) {
    let mut key: Option<Box<Key>> = None;
    let mut bytes: Vec<Byte> = Vec::new();
    for (level, spec) in specs.iter().enumerate() {
        let level = level as u32;
        let spec = match &key {
            None => Some(all_memory(spec)),
            Some(key) => fit(spec, key.layout.length()),
        };
        let Some(spec) = spec else { continue };
        let Ok(layout) = spec.build() else { continue };
        if layout.length() > max as u64 {
            continue;
        }
        let Some(reached) = through(&spec, &bytes, level) else {
            continue;
        };
        check_flat(&layout, key.as_deref(), &reached, &bytes, (level, most));
        for bytes in [1, 2, 7, 64, 500] {
            work::check(&layout, key.as_deref(), bytes);
        }
        bytes = reached;
        key = Some(Box::new(Key {
            layout,
            below: key.take(),
            memory: level,
        }));
    }
}

/// Replaces all keys of `spec` by memory.
fn all_memory(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    match &mut spec {
        Spec::List(entries) => entries.iter_mut().for_each(|entry| entry.0 = 0),
        Spec::Interleaved(_, blocks) => blocks.iter_mut().for_each(|block| block.0 = 0),
        Spec::Indexed(block, _) => block.0 = 0,
    }
    spec
}

/// The number of the entry that stands for a range of the outermost key's own leaves.
const OWN: u32 = 1 << 16;

/// Checks the list of `layout` over `key`, whose bytes in memory are `wanted`.
fn check_flat(
    layout: &VecLayout,
    key: Option<&Key>,
    wanted: &[Byte],
    inner: &[Byte],
    (level, most): (u32, usize),
) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut own = 0u64;
    let each = |found: Option<&Key>, run: Run| {
        let leaf = match found {
            Some(key) => {
                assert!(run.leaf < KEYS || key.below.is_none(), "a key is no memory");
                key.memory
            }
            None => {
                own += 1;
                OWN + run.leaf
            }
        };
        let entry = Entry::new(leaf, run.addr, run.len);
        if !entries.last_mut().is_some_and(|last| last.join(&entry)) {
            entries.push(entry);
        }
        Ok::<_, Error>(())
    };
    flatten::<&Key, _, LEVELS>(layout, |leaf| below(key, leaf), most, each).unwrap();
    check_flat_all(layout, key, &places(wanted), level);
    let mut pieces = 0u64;
    layout
        .reach(|reach| {
            pieces += reach.count;
            Ok::<_, Error>(())
        })
        .unwrap();
    assert!(entries.len() as u64 <= pieces * most as u64);
    assert!(own <= pieces);
    // Bytes do not show where entries begin, because adjacent entries differ.
    let mut flat = Vec::new();
    for (piece, entry) in entries.iter().enumerate() {
        for addr in (0..entry.length()).map(|at| entry.addr() + at) {
            flat.push(match entry.leaf().checked_sub(OWN) {
                None => (entry.leaf(), addr, piece),
                Some(0) => (level, addr, piece),
                Some(_) => {
                    let byte = inner[addr as usize];
                    (byte.0, byte.1, piece)
                }
            });
        }
    }
    assert_eq!(places(&flat), places(wanted));
    // Accesses at every offset, if all is memory.
    if entries.iter().any(|entry| entry.leaf() > OWN) {
        return;
    }
    for entry in &mut entries {
        if entry.leaf() == OWN {
            *entry = Entry::new(level, entry.addr(), entry.length());
        }
    }
    let list: VecLayout = Layout::List(List::new(entries).unwrap());
    for offset in 0..flat.len() {
        check_access(&list, &flat, offset, 13.min(flat.len() - offset));
    }
    check_access(&list, &flat, 0, flat.len());
}

/// Returns leaf and address of each byte.
fn places(bytes: &[Byte]) -> Vec<(u32, u64)> {
    bytes.iter().map(|byte| (byte.0, byte.1)).collect()
}

/// Checks that the list of all ranges in memory has the bytes at `wanted`.
fn check_flat_all(layout: &VecLayout, key: Option<&Key>, wanted: &[(u32, u64)], level: u32) {
    let mut found = Vec::new();
    let each = |key: Option<&Key>, run: Run| {
        let memory = key.map_or(level, |key| key.memory);
        found.extend((0..run.len).map(|at| (memory, run.addr + at)));
        Ok::<_, Error>(())
    };
    flatten_all::<&Key, _, LEVELS>(layout, |leaf| below(key, leaf), each).unwrap();
    assert_eq!(found, wanted);
}
