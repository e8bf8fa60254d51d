// SPDX-License-Identifier: GPL-2.0

//! What a seek and a cursor cost, in steps: see [`steps`](super::steps).

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used)]

extern crate std;

use std::vec::Vec;

use super::steps::count;
use super::{Block, Entry, Interleaved, List, MAX_DIMS};

/// Comparisons of a binary search in `len` entries, at most.
fn search(len: usize) -> u64 {
    u64::from(len.ilog2()) + 2
}

#[test]
fn list_seek_is_logarithmic() {
    let len = 65_536;
    let entries: Vec<_> = (0..len).map(|i| Entry::new(0, i * 100, 10)).collect();
    let list = List::new(entries).unwrap();
    for offset in (0..list.length())
        .step_by(997)
        .chain([0, list.length() - 1])
    {
        let (runs, steps) = count(|| list.runs(offset, 1));
        assert!(
            runs.is_ok() && (1..=search(len as usize)).contains(&steps),
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
    // 2^44 blocks, none of which continues another.
    let block = Block::new(
        0,
        1 << 63,
        1,
        [5 << 58, 1 << 58, -(1 << 40), 64, 0, 0, 0, 0],
    );
    let counts = [4, 4, 1 << 10, 1 << 30];
    let layout = Interleaved::new(&counts, Vec::from([block])).unwrap();
    let length = layout.length();
    assert_eq!(length, 1 << 44);
    for offset in (0..64).flat_map(|i| [i, length - 1 - i, length / 64 * i]) {
        let (runs, steps) = count(|| layout.runs(offset, 1));
        assert_eq!((runs.is_ok(), steps), (true, 5));
        let (place, steps) = count(|| layout.resolve(offset, 1));
        assert!(place.is_ok() && (5..=8).contains(&steps), "{steps}");
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
    let layout = Interleaved::new(&[1 << 10, 1 << 10, 1 << 6], blocks).unwrap();
    let length = layout.length();
    let bound = 1 + 3 + search(len as usize);
    for offset in (0..64).flat_map(|i| [i, length - 1 - i, length / 64 * i]) {
        let (runs, steps) = count(|| layout.runs(offset, 1));
        assert!(runs.is_ok() && (4..=bound).contains(&steps), "{steps}");
    }
}

#[test]
fn contiguous_bytes_are_one_step() {
    // A box of 2^20 bytes, described as two halves in five dimensions, one of
    // which does not count.
    let strides = |idle| [1 << 16, 1 << 12, idle, 1 << 8, 1 << 4, 0, 0, 0];
    let counts = [16, 16, 1, 16, 16];
    let mut blocks = [
        Block::new(0, 4096, 8, strides(77)),
        Block::new(0, 4096 + 8, 8, strides(-3)),
    ];
    let layout = Interleaved::new(&counts, blocks.as_mut_slice()).unwrap();
    let (runs, steps) = count(|| layout.runs(0, 1 << 20).map(Iterator::count));
    assert_eq!((runs, steps), (Ok(1), 1));
}

#[test]
fn cursor_steps_are_constant_on_average() {
    let mut stride = [0; MAX_DIMS];
    stride[..4].copy_from_slice(&[100_000, 9_000, 500, 10]);
    for blocks in [1, 2] {
        let blocks: Vec<_> = (0..blocks)
            .map(|i| Block::new(0, i * 3, 2, stride))
            .collect();
        let layout = Interleaved::new(&[8, 8, 8, 8], blocks).unwrap();
        let (runs, steps) = count(|| layout.runs(0, layout.length()).map(Iterator::count));
        let pieces = layout.length() / 2;
        assert_eq!(runs, Ok(pieces as usize));
        // One a piece, and one a digit that turns.
        assert!(steps < 2 * pieces + 20, "{steps}");
    }
}
