// SPDX-License-Identifier: GPL-2.0

//! The bodies of the fuzz targets of `fuzz/`. Any bytes are valid input: `tests/all/fuzz.rs` runs
//! the same bodies on stable Rust.

use super::runs::HasRuns;
use ib_mkey_layout::MAX_DIMS;

use super::{check_access, check_shape, flat, numbers, Byte, Spec, VecLayout};

/// Takes any bytes and panics if the code under test is wrong.
pub type Body = fn(&[u8]);

/// A target's name and what it does.
pub const TARGETS: [(&str, Body); 6] = [
    ("list", list),
    ("interleaved", interleaved),
    ("indexed", indexed),
    ("flat", flat),
    ("accesses", accesses),
    ("numbers", raw_numbers),
];

/// The largest number of bytes of a layout that is checked byte by byte.
const MAX_BYTES: u64 = 2048;

/// The source of numbers: the input's bytes, then zeroes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte()) % end
    }

    fn signed(&mut self) -> i64 {
        i64::from(self.byte() as i8)
    }

    /// Returns a small number, one near a power of two, or any.
    fn number(&mut self) -> u64 {
        let shape = self.byte();
        match shape >> 6 {
            0 => u64::from(shape & 0x3f),
            1 => (1u64 << (shape & 0x3f))
                .wrapping_sub(2)
                .wrapping_add(self.below(4)),
            2 => u64::MAX - u64::from(shape & 0x3f),
            _ => (0..8).fold(0, |number, _| (number << 8) | u64::from(self.byte())),
        }
    }

    /// Returns an address in the middle, or near one of the ends.
    fn addr(&mut self) -> u64 {
        let base = [1 << 32, 1 << 32, 0, u64::MAX - 127][self.below(4) as usize];
        base + u64::from(self.byte() & 0x7f)
    }

    fn list(&mut self) -> Spec {
        let mut end = 0;
        let entries = (0..self.below(24)).map(|_| {
            let form = self.byte();
            // Random bytes rarely give entries that continue the one before.
            let addr = if form & 4 == 0 { self.addr() } else { end };
            let length = u64::from(form >> 3);
            end = addr.wrapping_add(length);
            (u32::from(form & 1), addr, length)
        });
        Spec::List(entries.collect())
    }

    fn interleaved(&mut self) -> Spec {
        let dims = self.below(MAX_DIMS as u64 + 2);
        let counts: Vec<_> = (0..dims).map(|_| self.below(6)).collect();
        let mut blocks: Vec<(u32, u64, u64, Vec<i64>)> = Vec::new();
        for _ in 0..self.below(5) {
            let form = self.byte();
            let bytes = self.below(9);
            let dims = counts.len().min(MAX_DIMS);
            blocks.push(match blocks.last() {
                Some((leaf, addr, size, before)) if form & 2 != 0 => {
                    let mut same = before.clone();
                    if form & 4 != 0 && !same.is_empty() {
                        let which = self.below(same.len() as u64) as usize;
                        same[which] = self.signed();
                    }
                    (*leaf, addr.wrapping_add(*size), bytes, same)
                }
                _ => {
                    let addr = self.addr();
                    (
                        u32::from(form & 1),
                        addr,
                        bytes,
                        (0..dims).map(|_| self.signed()).collect(),
                    )
                }
            });
        }
        Spec::Interleaved(counts, blocks)
    }

    fn indexed(&mut self) -> Spec {
        let form = self.byte();
        let block = (
            u32::from(form & 1),
            self.addr(),
            self.below(20),
            u64::from(form >> 4),
        );
        let mut index = 0u64;
        let indices = (0..self.below(40)).map(|_| {
            // Random bytes rarely give indices that continue those before.
            let form = self.byte();
            index = match form & 3 {
                0 => index.wrapping_add_signed(1 - (i64::from(form >> 2) & 3)),
                1 => u64::from(form >> 2),
                _ => index.wrapping_add(u64::from(form & 3) - 1),
            };
            index
        });
        Spec::Indexed(block, indices.collect())
    }

    fn any(&mut self) -> Spec {
        match self.byte() % 3 {
            0 => self.list(),
            1 => self.interleaved(),
            _ => self.indexed(),
        }
    }
}

/// Checks the verdict on the layout. Returns the layout and its bytes if it is valid and small.
fn built(spec: &Spec) -> Option<(VecLayout, Vec<Byte>)> {
    if matches!(numbers::verdict(spec), Ok(length) if length > MAX_BYTES) {
        return None;
    }
    let layout = spec.build();
    assert_eq!(
        layout
            .as_ref()
            .map(VecLayout::length)
            .map_err(|error| *error),
        numbers::verdict(spec),
        "{spec:?}"
    );
    Some((layout.ok()?, spec.bytes()))
}

/// Checks a layout completely, with a few accesses.
fn check(spec: &Spec, input: &mut Input<'_>) {
    let Some((layout, bytes)) = built(spec) else {
        return;
    };
    check_shape(spec, &layout, &bytes);
    check_access(&layout, &bytes, 0, bytes.len());
    for _ in 0..4 {
        let offset = usize::from(input.byte()) * 8 % (bytes.len() + 2);
        check_access(&layout, &bytes, offset, usize::from(input.byte()));
        check_access(&layout, &bytes, offset, 8);
    }
}

/// Tests lists.
pub fn list(data: &[u8]) {
    let mut input = Input(data);
    check(&input.list(), &mut input);
}

/// Tests interleaved layouts.
pub fn interleaved(data: &[u8]) {
    let mut input = Input(data);
    check(&input.interleaved(), &mut input);
}

/// Tests indexed blocks.
pub fn indexed(data: &[u8]) {
    let mut input = Input(data);
    check(&input.indexed(), &mut input);
}

/// Checks that one layout of keys over keys describes the same bytes as the keys.
pub fn flat(data: &[u8]) {
    let mut input = Input(data);
    let mut specs = Vec::new();
    while !input.0.is_empty() && specs.len() < flat::LEVELS {
        let spec = input.any();
        if built(&spec).is_some() {
            specs.push(spec);
        }
    }
    flat::check(&specs, MAX_BYTES as usize);
}

/// Accesses to one layout, several at a time, copied half-way, past its end.
pub fn accesses(data: &[u8]) {
    let mut input = Input(data);
    let Some((layout, bytes)) = built(&input.any()) else {
        return;
    };
    let mut open = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        let offset = (usize::from(what >> 6) * 256 + usize::from(input.byte())) % (bytes.len() + 2);
        let len = usize::from(input.byte());
        check_access(&layout, &bytes, offset, len);
        if let Ok(runs) = layout.runs(offset as u64, len as u64) {
            open.push((runs, offset, offset + len));
        }
        // Takes one run of a cursor, and of a copy of it that continues separately.
        let which = input.below(open.len().max(1) as u64) as usize;
        let Some((runs, at, end)) = open.get_mut(which) else {
            continue;
        };
        let copy = runs.clone();
        assert_eq!(
            runs.clone().map(|run| run.len).sum::<u64>(),
            (*end - *at) as u64
        );
        if let Some(run) = runs.next() {
            let byte = bytes[*at];
            assert_eq!((run.leaf, run.addr), (byte.0, byte.1));
            let copy = (copy, *at, *end);
            *at += run.len as usize;
            open.push(copy);
        }
    }
    for (runs, at, end) in open {
        assert!(runs.eq(super::join(&bytes[at..end])));
    }
}

/// Tests 64-bit numbers of any value.
pub fn raw_numbers(data: &[u8]) {
    let mut input = Input(data);
    let form = input.byte();
    let spec = if form & 1 == 0 {
        let entries = (0..input.below(6)).map(|_| (0, input.number(), input.number()));
        Spec::List(entries.collect())
    } else if form & 2 == 0 {
        let block = (0, input.number(), input.number(), input.number());
        let indices = (0..input.below(6)).map(|_| input.number());
        Spec::Indexed(block, indices.collect())
    } else {
        let counts: Vec<_> = (0..input.below(10)).map(|_| input.number()).collect();
        let blocks = (0..input.below(4)).map(|_| {
            let (leaf, addr, bytes) = (u32::from(input.byte() & 1), input.number(), input.number());
            (
                leaf,
                addr,
                bytes,
                (0..MAX_DIMS).map(|_| input.number() as i64).collect(),
            )
        });
        Spec::Interleaved(counts, blocks.collect())
    };
    numbers::check(&spec, input.number(), input.number());
}
