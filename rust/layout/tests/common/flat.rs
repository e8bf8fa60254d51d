// SPDX-License-Identifier: GPL-2.0

//! Keys over keys, byte by byte and as one layout.

use super::runs::HasRuns;
use ib_mkey_layout::{
    compose, pieces, Block, Entry, Error, Inner, Interleaved, Layout, List, Place, Row, MAX_DIMS,
};

use super::{rows, Byte, Spec, VecIndices, VecLayout};

/// The largest number of levels of keys.
pub const LEVELS: usize = 8;

/// Leaves of a layout with this number or a higher one are keys.
pub const KEYS: u32 = 1;

/// The largest number of blocks of a composed layout.
const BLOCKS: usize = 200;

/// A key as one layout over memory.
pub struct Flat {
    pub layout: VecLayout,
    /// Offset of the key's first byte in the layout.
    pub offset: u64,
    /// `true` if the layout has the blocks that [`compose`] found.
    pub is_composed: bool,
}

/// The key of a leaf, for [`compose`] and [`pieces`].
type VecInner<'a> =
    Inner<'a, Vec<Entry>, Vec<Block>, ib_mkey_layout::Shape, ib_mkey_layout::Indexed<VecIndices>>;

/// Makes one layout of `outer` over the key `inner`. Memory of `outer` gets the number `level`.
pub fn flatten(outer: &VecLayout, inner: &Flat, level: u32) -> [Option<Flat>; 2] {
    let key = |leaf| (leaf >= KEYS).then_some((&inner.layout, inner.offset));
    let number = |place: Place| {
        assert_eq!(place.inner.is_some(), place.outer >= KEYS);
        place.inner.unwrap_or(level)
    };
    let flat = |layout, is_composed| Flat {
        layout,
        offset: 0,
        is_composed,
    };
    [
        composed(outer, key, number).map(|layout| flat(layout, true)),
        Some(flat(listed(outer, key, number), false)),
    ]
}

/// Returns the composed layout of `outer`, if there is one.
fn composed<'a>(
    outer: &'a VecLayout,
    key: impl Fn(u32) -> Option<VecInner<'a>>,
    number: impl Fn(Place) -> u32,
) -> Option<VecLayout> {
    let mut blocks = Vec::new();
    let each = |place: Place, block: Block| {
        let leaf = number(place);
        blocks.push(Block::new(
            leaf,
            block.addr(),
            block.bytes_count(),
            *block.stride(),
        ));
        Ok::<_, Error>(())
    };
    let counts = compose(outer, BLOCKS, key, each).unwrap()?;
    assert!(blocks.len() <= BLOCKS && counts.as_slice().len() <= MAX_DIMS);
    let layout = Interleaved::new(counts.as_slice(), blocks).unwrap();
    Some(Layout::Interleaved(layout))
}

/// Returns the pieces of `outer` as a list.
fn listed<'a>(
    outer: &'a VecLayout,
    key: impl Fn(u32) -> Option<VecInner<'a>>,
    number: impl Fn(Place) -> u32,
) -> VecLayout {
    let mut entries: Vec<Entry> = Vec::new();
    let each = |place: Place, row: Row| {
        for piece in (0..row.count).map(|at| row.skip(at).piece()) {
            let entry = Entry::new(number(place), piece.addr, piece.len);
            if !entries.last_mut().is_some_and(|last| last.join(&entry)) {
                entries.push(entry);
            }
        }
        Ok::<_, Error>(())
    };
    pieces(outer, key, each).unwrap();
    Layout::List(List::new(entries).unwrap())
}

/// Moves each range of a key in `spec` into the bytes of that key, which has `length` bytes.
fn fit(spec: &Spec, length: u64) -> Spec {
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
            Spec::List(entries.collect())
        }
        // Move it down. A part that then reaches over either end is removed.
        Spec::Interleaved(counts, blocks) => {
            let mut blocks = blocks.clone();
            for block in blocks.iter_mut().filter(|block| block.0 >= KEYS) {
                block.1 = block.1 % length / 2 + length / 4;
            }
            Spec::Interleaved(counts.clone(), blocks)
        }
        Spec::Indexed((leaf, addr, unit, bytes), indices) => {
            let addr = if *leaf >= KEYS {
                addr % length / 4
            } else {
                *addr
            };
            Spec::Indexed((*leaf, addr, *unit, *bytes), indices.clone())
        }
    }
}

/// Returns the bytes of memory that `spec` describes over a key with `bytes`, if it is within that
/// key. A leaf that is memory has number `level`.
pub fn through(spec: &Spec, bytes: &[Byte], level: u32) -> Option<Vec<Byte>> {
    let each = spec.bytes().into_iter().map(|(leaf, addr, piece)| {
        if leaf < KEYS {
            return Some((level, addr, piece));
        }
        let byte = bytes.get(usize::try_from(addr).ok()?)?;
        Some((byte.0, byte.1, piece))
    });
    each.collect()
}

/// Checks that a nest of `specs`, the innermost one first, has the same bytes as the one layout
/// that is made of it. Levels that do not fit, or that have more than `max` bytes, are left out.
/// Returns the number of levels that were composed.
pub fn check(specs: &[Spec], max: usize) -> usize {
    let mut key: Option<Flat> = None;
    let mut bytes: Vec<Byte> = Vec::new();
    let mut number = 0;
    for (level, spec) in specs.iter().enumerate() {
        let level = level as u32;
        let spec = match &key {
            None => all_memory(spec),
            Some(_) => fit(spec, bytes.len() as u64),
        };
        let Ok(layout) = spec.build() else { continue };
        if layout.length() > max as u64 {
            continue;
        }
        let Some(inner) = &key else {
            bytes = through(&spec, &bytes, 0).unwrap();
            key = Some(Flat {
                layout,
                offset: 0,
                is_composed: false,
            });
            continue;
        };
        let Some(reached) = through(&spec, &bytes, level) else {
            continue;
        };
        let next = match &spec {
            // One range of a key needs no layout.
            Spec::List(entries) if entries.len() == 1 && entries[0].0 >= KEYS => None,
            _ => {
                let [composed, listed] = flatten(&layout, inner, level);
                let both = composed.into_iter().chain(listed);
                let checked = both.inspect(|flat| check_bytes(flat, &reached));
                // Prefer the composed one, but check both.
                checked.reduce(|first, _| first)
            }
        };
        number += usize::from(next.as_ref().is_some_and(|flat| flat.is_composed));
        match (next, &spec, &mut key) {
            (Some(next), ..) => key = Some(next),
            (None, Spec::List(entries), Some(key)) => key.offset += entries[0].1,
            _ => unreachable!(),
        }
        bytes = reached;
    }
    number
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

/// Checks that a layout has the bytes `wanted`, whose pieces may be others. Returns its bytes.
pub fn check_runs(layout: &VecLayout, wanted: &[Byte]) -> Vec<Byte> {
    let mut found = Vec::new();
    for (piece, run) in layout.runs(0, layout.length()).unwrap().enumerate() {
        found.extend((0..run.len).map(|at| (run.leaf, run.addr + at, piece)));
    }
    let place = |byte: &Byte| (byte.0, byte.1);
    assert!(found.iter().map(place).eq(wanted.iter().map(place)));
    found
}

/// Checks the bytes of a layout, and the rows of some accesses.
fn check_bytes(flat: &Flat, wanted: &[Byte]) {
    let found = check_runs(&flat.layout, wanted);
    for offset in (0..found.len()).step_by(1 + found.len() / 50) {
        let len = 13.min(found.len() - offset);
        rows::check(&flat.layout, &found, offset, len);
    }
    rows::check(&flat.layout, &found, 0, found.len());
}
