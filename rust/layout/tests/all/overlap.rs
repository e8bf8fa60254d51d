// SPDX-License-Identifier: GPL-2.0

//! Writes to blocks that overlap. Bytes are written in the order of the key's addresses, so that of
//! two bytes at one place the later one stays.
//!
//! The tests compare a writer of single bytes in that order with one that works like the evaluator:
//! each packet's runs in turn, each run as one copy.

use std::collections::HashMap;

use crate::common::runs::HasRuns;
use crate::common::{Spec, VecLayout};
use proptest::collection::vec;
use proptest::prelude::*;

/// A few hundred bytes are described, most of them several times.
const WINDOW: u64 = 64;
const BASE: u64 = 1 << 20;

type Memory = HashMap<(u32, u64), u16>;

fn list() -> impl Strategy<Value = Spec> {
    let entry = (0..2u32, 0..WINDOW, 1..40u64).prop_map(|(leaf, at, n)| (leaf, BASE + at, n));
    vec(entry, 2..30).prop_map(Spec::List)
}

fn interleaved() -> impl Strategy<Value = Spec> {
    vec(1..7u64, 1..4).prop_flat_map(|counts| {
        let stride = prop_oneof![Just(0), -9..10i64];
        let block = (0..2u32, 0..WINDOW, 1..12u64, vec(stride, counts.len()));
        let block = block.prop_map(|(leaf, at, n, strides)| (leaf, BASE + at, n, strides));
        (Just(counts), vec(block, 1..4)).prop_map(|(c, b)| Spec::Interleaved(c, b))
    })
}

/// Returns byte `i` of the message; no two bytes of the longest message are equal.
fn message(i: usize) -> u16 {
    u16::try_from(i).unwrap()
}

/// Writes `start..end` of the message byte by byte; returns how many bytes were overwritten.
fn write_bytes(spec: &Spec, start: usize, end: usize, memory: &mut Memory) -> usize {
    let bytes = spec.bytes();
    let again = |i: usize| {
        let (leaf, addr, _) = bytes[i];
        memory.insert((leaf, addr), message(i)).is_some()
    };
    (start..end).map(again).filter(|again| *again).count()
}

/// Writes the message packet by packet, by the rows of each.
fn write_rows(layout: &VecLayout, start: usize, end: usize, mtu: usize, memory: &mut Memory) {
    for at in (start..end).step_by(mtu) {
        let len = mtu.min(end - at);
        let mut from = at;
        for row in layout.rows(at as u64, len as u64).unwrap() {
            for piece in (0..row.count).map(|piece| row.skip(piece)) {
                for byte in 0..row.len {
                    memory.insert((row.leaf, piece.addr + byte), message(from));
                    from += 1;
                }
            }
        }
    }
}

/// Writes the message packet by packet, by the runs of each.
fn write_runs(layout: &VecLayout, start: usize, end: usize, mtu: usize, memory: &mut Memory) {
    let mut at = start;
    while at < end {
        let len = mtu.min(end - at);
        for run in layout.runs(at as u64, len as u64).unwrap() {
            for addr in run.addr..run.addr + run.len {
                memory.insert((run.leaf, addr), message(at));
                at += 1;
            }
        }
    }
}

proptest! {
    #[test]
    fn later_byte_stays(
        spec in prop_oneof![list(), interleaved()],
        mtu in 1..300usize,
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let layout = spec.build().unwrap();
        let length = layout.length() as usize;
        let (a, b) = (cut.0.index(length + 1), cut.1.index(length + 1));
        for (start, end) in [(0, length), (a.min(b), a.max(b))] {
            let (mut wanted, mut seen) = (Memory::new(), Memory::new());
            write_bytes(&spec, start, end, &mut wanted);
            write_runs(&layout, start, end, mtu, &mut seen);
            prop_assert_eq!(&seen, &wanted);
            let mut seen = Memory::new();
            write_rows(&layout, start, end, mtu, &mut seen);
            prop_assert_eq!(&seen, &wanted);
        }
    }
}

/// The random layouts do overlap: another order gives another result.
#[test]
fn order_matters() {
    let stride = |stride| Spec::Interleaved(vec![5], vec![(0, BASE, 4, vec![stride])]);
    for (spec, over) in [
        (stride(0), 16),
        (stride(1), 12),
        (stride(-3), 4),
        (stride(4), 0),
    ] {
        let mut memory = Memory::new();
        assert_eq!(write_bytes(&spec, 0, 20, &mut memory), over);
        let mut backward = Memory::new();
        for (i, (leaf, addr, _)) in spec.bytes().into_iter().enumerate().rev() {
            backward.insert((leaf, addr), message(i));
        }
        assert_eq!(memory != backward, over != 0);
    }
}
