// SPDX-License-Identifier: GPL-2.0

//! Counts the steps of seeks and cursors: see [`step`](super::run::step).

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used)]

extern crate std;

use std::vec::Vec;

use super::run::count;
use super::{Block, Entry, IndexSlice, Indexed, Interleaved, Layout, List, Shape, MAX_DIMS};

type VecLayout = Layout<Vec<Entry>, Vec<Block>>;

fn interleaved(counts: &[u64], blocks: Vec<Block>) -> VecLayout {
    Layout::Interleaved(Interleaved::new(counts, blocks).unwrap())
}

/// Returns the largest number of comparisons of a binary search in `len` entries.
fn search(len: usize) -> u64 {
    u64::from(len.ilog2()) + 2
}

#[test]
fn list_seek_is_logarithmic() {
    let len = 65_536;
    let entries: Vec<_> = (0..len).map(|i| Entry::new(0, i * 100, 10)).collect();
    let list = VecLayout::List(List::new(entries).unwrap());
    for offset in (0..list.length())
        .step_by(997)
        .chain([0, list.length() - 1])
    {
        let (rows, steps) = count(|| list.rows(offset, 1));
        // One more step reads the row's beginning.
        assert!(
            rows.is_ok() && (1..=search(len as usize) + 1).contains(&steps),
            "{steps}"
        );
        let (place, steps) = count(|| list.resolve(offset, 1));
        assert!(
            place.is_ok() && (1..=search(len as usize)).contains(&steps),
            "{steps}"
        );
    }
}

#[test]
fn one_block_seek_is_constant() {
    // 2^44 blocks, of which none continues another.
    let block = Block::new(
        0,
        1 << 63,
        1,
        [5 << 58, 1 << 58, -(1 << 40), 64, 0, 0, 0, 0],
    );
    let counts = [4, 4, 1 << 10, 1 << 30];
    let layout = interleaved(&counts, Vec::from([block]));
    let length = layout.length();
    assert_eq!(length, 1 << 44);
    for offset in (0..64).flat_map(|i| [i, length - 1 - i, length / 64 * i]) {
        let (rows, steps) = count(|| layout.rows(offset, 1));
        assert!(rows.is_ok() && (2..=5).contains(&steps), "{steps}");
        let (place, steps) = count(|| layout.resolve(offset, 1));
        assert!(place.is_ok() && (3..=8).contains(&steps), "{steps}");
    }
}

#[test]
fn many_blocks_seek_is_logarithmic() {
    let len = 65_536;
    let mut stride = [0; MAX_DIMS];
    stride[..3].copy_from_slice(&[1 << 40, -(1 << 30), 1 << 24]);
    let blocks: Vec<_> = (0..len)
        .map(|i| Block::new(0, (1 << 50) + i * 100, 1 + i % 3, stride))
        .collect();
    let layout = interleaved(&[1 << 10, 1 << 10, 1 << 6], blocks);
    let length = layout.length();
    let bound = 1 + 3 + search(len as usize);
    for offset in (0..64).flat_map(|i| [i, length - 1 - i, length / 64 * i]) {
        let (rows, steps) = count(|| layout.rows(offset, 1));
        assert!(rows.is_ok() && (4..=bound).contains(&steps), "{steps}");
    }
}

#[test]
fn contiguous_bytes_are_one_row() {
    // A block of 2^20 bytes, described as two halves in five dimensions. The idle dimension has a
    // count of one.
    let strides = |idle| [1 << 16, 1 << 12, idle, 1 << 8, 1 << 4, 0, 0, 0];
    let counts = [16, 16, 1, 16, 16];
    let blocks = [
        Block::new(0, 4096, 8, strides(77)),
        Block::new(0, 4096 + 8, 8, strides(-3)),
    ];
    let layout = interleaved(&counts, Vec::from(blocks));
    let rows = || layout.rows(0, 1 << 20);
    let (rows, steps) = count(|| rows().map(Iterator::count));
    // Two steps to seek, and two for the row.
    assert!(rows == Ok(1) && steps <= 4, "{steps}");
}

#[test]
fn indexed_seek_is_constant() {
    let indices: Vec<_> = (0..1u64 << 20).map(|i| i * i % 1_000_003).collect();
    let indices = IndexSlice::U64(&indices);
    let layout = Layout::<Vec<Entry>, Vec<Block>, Shape, _>::Indexed(
        Indexed::new(0, 0, 4096, 4096, indices).unwrap(),
    );
    for offset in (0..layout.length()).step_by((1 << 22) + 4095) {
        let (rows, steps) = count(|| layout.rows(offset, 1));
        assert!(rows.is_ok() && (1..=3).contains(&steps), "{steps}");
        let (place, steps) = count(|| layout.resolve(offset, 1));
        assert!(place.is_ok() && (1..=3).contains(&steps), "{steps}");
    }
}

#[test]
fn cursor_steps_are_constant_on_average() {
    let mut stride = [0; MAX_DIMS];
    stride[..4].copy_from_slice(&[100_000, 9_000, 500, 10]);
    for blocks in [1, 2] {
        let blocks: Vec<_> = (0..blocks)
            .map(|i| Block::new(0, i * 3, 2, stride))
            .collect();
        let blocks_count = blocks.len() as u64;
        let layout = interleaved(&[8, 8, 8, 8], blocks);
        let wanted = 8 * 8 * 8 * if blocks_count == 1 { 1 } else { 16 };
        let rows = || layout.rows(0, layout.length());
        let (rows, steps) = count(|| rows().map(Iterator::count));
        assert_eq!(rows, Ok(wanted as usize));
        // One step for each row, and one for each digit that changes.
        assert!(steps < 4 * wanted + 20, "{steps}");
    }
}
