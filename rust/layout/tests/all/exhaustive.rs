// SPDX-License-Identifier: GPL-2.0

//! All layouts of a small domain.
//!
//! The domain: lists of up to three entries; interleaved layouts of up to three dimensions and
//! three blocks with counts and strides from -3 to 4 (a negative count stands for one near 2^64);
//! some indexed blocks; and all small rows over some layouts. Lists and indices are enumerated
//! completely. There are some 8^12 interleaved layouts, so they are enumerated in parts. Each part
//! has all inputs of one step of the code:
//!
//! - Counts are checked independently of the blocks, and each block independently of the others:
//!   `one_block` has all counts and strides in up to three dimensions.
//! - A layout becomes a grid if each block continues the one before it, which depends on pairs of
//!   neighbours, their strides and the counts. The grid is then a single block, as in `one_block`.
//!   `two_blocks_of_three_dims` and `three_blocks_of_two_dims` have all strides of blocks that
//!   touch, so that both results occur for every reason.
//! - Otherwise the cursor visits blocks and index tuples independently of addresses (`order`: all
//!   counts, all numbers of blocks), and computes a piece's address from its block and the tuple
//!   only.
//! - Neighbouring pieces join: `two_blocks` has all places of two blocks in up to two dimensions,
//!   `three_blocks` of three in one dimension.
//!
//! `all_together` samples the other interactions of these steps, evenly over the whole domain. In a
//! part with `Walks`, all bytes are read from the start and from one other offset; in the others
//! every range is read. That is with `MKEY_TEST_LONG=1`. Otherwise every range of one layout in
//! seven is read where the ranges take most of the time, `two_blocks_of_three_dims` has every pair
//! of strides with a quarter of the counts, and `all_together` draws less. `MKEY_TEST_QUICK=1` leaves
//! out two of three layouts where there are many.

use crate::common::flat::{self, Flat};
use crate::common::small::{long, Depth, Part, Tally, BLOCKS, DIMS};
use crate::common::{check_access, check_shape, coarse, numbers, Spec};

/// Counts and strides.
const DOMAIN: std::ops::RangeInclusive<i64> = -3..=4;

/// Calls `f` with every choice of one value from each of `domains`.
fn choices<T: Clone>(domains: &[Vec<T>], f: &mut impl FnMut(&[T])) {
    let mut odometer = vec![0; domains.len()];
    loop {
        let choice: Vec<T> = odometer
            .iter()
            .zip(domains)
            .map(|(&i, d)| d[i].clone())
            .collect();
        f(&choice);
        let Some(wheel) = (0..domains.len())
            .rev()
            .find(|&i| odometer[i] + 1 < domains[i].len())
        else {
            return;
        };
        odometer[wheel] += 1;
        odometer[wheel + 1..].fill(0);
    }
}

/// Checks one layout; returns `true` if it is valid.
fn check(spec: &Spec) -> bool {
    let layout = spec.build();
    assert_eq!(
        layout.as_ref().map(|_| ()).map_err(|error| coarse(*error)),
        spec.verdict(),
        "{spec:?}"
    );
    let Ok(layout) = layout else {
        return false;
    };
    let bytes = spec.bytes();
    check_shape(spec, &layout, &bytes);
    for offset in 0..=bytes.len() + 1 {
        for len in 0..=bytes.len() + 1 - offset {
            check_access(&layout, &bytes, offset, len);
        }
    }
    true
}

#[test]
fn lists() {
    // Leaf, address and length of up to three entries.
    let mut entries = Vec::new();
    choices(
        &[vec![0, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 3]],
        &mut |choice| {
            entries.push((choice[0] as u32, choice[1], choice[2]));
        },
    );
    let mut tally = Tally::new();
    for count in 0..=3 {
        choices(&vec![entries.clone(); count], &mut |choice| {
            if check(&Spec::List(choice.to_vec())) {
                tally.accepted += 1;
            } else {
                tally.refused += 1;
            }
        });
    }
    tally.finish("lists", 1 + 32 + 32 * 32 + 32 * 32 * 32);
}

#[test]
fn indices() {
    // Address, unit and block length; up to five indices.
    let mut tally = Tally::new();
    let mut total = 0;
    for (addr, unit, len) in [
        (0, 1, 1),
        (3, 2, 1),
        (0, 1, 2),
        (1, 3, 2),
        (0, 0, 1),
        (0, 1, 0),
    ] {
        for count in 0..=5 {
            choices(&vec![vec![0, 1, 2, 3]; count], &mut |indices| {
                total += 1;
                if check(&Spec::Indexed((0, addr, unit, len), indices.to_vec())) {
                    tally.accepted += 1;
                } else {
                    tally.refused += 1;
                }
            });
        }
    }
    assert_eq!(total, 6 * (1 + 4 + 16 + 64 + 256 + 1024));
    tally.finish("indices", total);
}

/// All small blocks of one dimension, and some of two dimensions, over layouts of each kind.
#[test]
fn nests() {
    let entries = |addrs: &[u64], length| {
        let entries = addrs.iter().map(|addr| (0, *addr, length));
        Spec::List(entries.collect())
    };
    let block = |bytes, stride: &[i64]| (0, 20, bytes, stride.to_vec());
    let (mut listed, mut composed) = (0, 0);
    for spec in [
        entries(&[0, 5, 10, 15, 7, 9], 2),
        entries(&[9, 8, 7, 6, 5, 6, 7, 8], 1),
        entries(&[0, 3, 6, 9, 30, 12], 3),
        Spec::Interleaved(vec![5], vec![block(2, &[-4])]),
        Spec::Interleaved(vec![3, 4], vec![block(1, &[3, 4])]),
        Spec::Interleaved(vec![2, 3, 2], vec![block(1, &[19, 7, 3])]),
        Spec::Interleaved(vec![2, 3], vec![block(3, &[1, 2])]),
        Spec::Interleaved(vec![4], vec![block(1, &[7]), block(2, &[7])]),
        Spec::Interleaved(vec![2, 3], vec![block(1, &[9, 2]), block(1, &[1, 4])]),
        Spec::Indexed((0, 4, 3, 2), vec![0, 2, 4, 6, 5, 4]),
        Spec::Indexed((0, 4, 2, 2), vec![0, 1, 2, 6, 3, 0]),
    ] {
        let bytes = spec.bytes();
        let inner = Flat {
            layout: spec.build().unwrap(),
            offset: 0,
            is_composed: false,
        };
        let mut check = |counts: &[u64], blocks: &[(u64, u64, &[i64])]| {
            let blocks = blocks
                .iter()
                .map(|(addr, len, stride)| (flat::KEYS, *addr, *len, stride.to_vec()));
            let outer = Spec::Interleaved(counts.to_vec(), blocks.collect());
            let Ok(layout) = outer.build() else { return };
            let Some(wanted) = flat::through(&outer, &bytes, 0) else {
                return;
            };
            for flat in flat::flatten(&layout, &inner, 0).into_iter().flatten() {
                flat::check_runs(&flat.layout, &wanted);
                composed += u64::from(flat.is_composed);
                listed += u64::from(!flat.is_composed);
            }
        };
        let strides = -7..=7i64;
        for addr in 0..bytes.len() as u64 {
            for (len, stride) in (1..7).flat_map(|len| strides.clone().map(move |s| (len, s))) {
                for count in 1..=6 {
                    check(&[count], &[(addr, len, &[stride])]);
                }
                if len > 3 {
                    continue;
                }
                for other in strides.clone() {
                    check(&[2, 3], &[(addr, len, &[other, stride])]);
                }
                check(&[2], &[(0, 2, &[2]), (addr, len, &[stride])]);
            }
        }
    }
    assert!(composed > listed / 8, "{composed} of {listed}");
    println!("nests: {composed} of {listed} composed");
}

/// Returns every choice of strides in `dims` dimensions.
fn strides(dims: usize) -> Vec<[i64; DIMS]> {
    let mut all = Vec::new();
    choices(&vec![DOMAIN.collect(); dims], &mut |choice| {
        let mut stride = [0; DIMS];
        stride[..dims].copy_from_slice(choice);
        all.push(stride);
    });
    all
}

/// Returns every choice of valid counts in `dims` dimensions.
fn counts(dims: usize) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    choices(&vec![vec![1, 2, 3, 4]; dims], &mut |choice| {
        all.push(choice.to_vec())
    });
    all
}

/// The place of a block relative to the one before it, and its leaf.
const PLACES: [(i64, u32); 5] = [(0, 0), (0, 1), (1, 0), (-1, 0), (-2, 0)];

/// Makes a block at one of [`PLACES`]; the place is in bytes from the end of `before`.
fn after(before: &Part, place: (i64, u32), bytes: u64, stride: [i64; DIMS]) -> Part {
    Part {
        leaf: before.leaf + place.1,
        addr: (before.addr + before.bytes).saturating_add_signed(place.0),
        bytes,
        stride,
    }
}

/// Makes the first block. Some strides lead below zero from there, most do not.
fn first(bytes: u64, stride: [i64; DIMS]) -> Part {
    Part {
        leaf: 3,
        addr: 12,
        bytes,
        stride,
    }
}

#[test]
fn one_block() {
    let mut tally = Tally::new();
    let mut total = 0;
    for dims in 1..=DIMS {
        let strides = strides(dims);
        choices(&vec![DOMAIN.collect(); dims], &mut |counts: &[i64]| {
            let right = counts.iter().all(|count| *count > 0);
            let counts: Vec<_> = counts.iter().map(|count| *count as u64).collect();
            for (bytes, stride) in (1..=2).flat_map(|n| strides.iter().map(move |s| (n, s))) {
                total += 1;
                if right {
                    tally.check(&counts, &[first(bytes, *stride)], Depth::SomeRanges);
                    continue;
                }
                let block = (3, 12, bytes, stride[..dims].to_vec());
                let spec = Spec::Interleaved(counts.clone(), vec![block]);
                numbers::check(&spec, total, total % 97);
                match numbers::verdict(&spec) {
                    Ok(_) => tally.accepted += 1,
                    Err(_) => tally.refused += 1,
                }
            }
        });
    }
    assert_eq!(total, 2 * (8 * 8 + 64 * 64 + 512 * 512));
    tally.finish("one block", total);
}

#[test]
fn two_blocks() {
    let mut tally = Tally::new();
    for dims in 1..=2 {
        let strides = strides(dims);
        for counts in counts(dims) {
            for a in &strides {
                for b in &strides {
                    for (place, bytes) in PLACES.iter().flat_map(|p| [(*p, 1), (*p, 2)]) {
                        let one = first(bytes, *a);
                        let two = after(&one, place, 3 - bytes, *b);
                        tally.check(&counts, &[one, two], Depth::SomeRanges);
                    }
                }
            }
        }
    }
    tally.finish("two blocks", 10 * (4 * 64 + 16 * 4096));
}

#[test]
fn two_blocks_of_three_dims() {
    let mut tally = Tally::new();
    let strides = strides(3);
    let parts = if long() { 1 } else { 4 };
    for (n, counts) in counts(3).iter().enumerate() {
        for (i, a) in strides.iter().enumerate() {
            // Each pair of strides with every fourth of the counts.
            for b in strides[(n + i) % parts..].iter().step_by(parts) {
                let one = first(1, *a);
                tally.check(counts, &[one, after(&one, PLACES[0], 1, *b)], Depth::Walks);
            }
        }
    }
    tally.finish(
        "two blocks of three dimensions",
        64 * 512 * 512 / parts as u64,
    );
}

#[test]
fn three_blocks() {
    let mut tally = Tally::new();
    let strides = strides(1);
    let places = PLACES
        .iter()
        .flat_map(|p| PLACES.iter().map(move |q| (*p, *q)));
    for (p, q) in places {
        for bytes in 0..8 {
            for counts in counts(1) {
                for a in &strides {
                    for b in &strides {
                        for c in &strides {
                            let one = first(1 + bytes % 2, *a);
                            let two = after(&one, p, 1 + bytes / 2 % 2, *b);
                            let three = after(&two, q, 1 + bytes / 4, *c);
                            tally.check(&counts, &[one, two, three], Depth::SomeRanges);
                        }
                    }
                }
            }
        }
    }
    // Three steps down lead to address 3, so no single dimension causes a refusal.
    println!("three blocks: {} accepted", tally.accepted);
    let valid = tally.accepted + tally.left_out;
    assert_eq!((valid, tally.refused), (25 * 8 * 4 * 512, 0));
}

#[test]
fn three_blocks_of_two_dims() {
    let mut tally = Tally::new();
    let strides = strides(2);
    for counts in counts(2) {
        for a in &strides {
            for b in &strides {
                for c in &strides {
                    let one = first(1, *a);
                    let two = after(&one, PLACES[0], 1, *b);
                    let three = after(&two, PLACES[0], 1, *c);
                    tally.check(&counts, &[one, two, three], Depth::Walks);
                }
            }
        }
    }
    tally.finish("three blocks of two dimensions", 16 * 64 * 64 * 64);
}

#[test]
fn order() {
    let mut tally = Tally::new();
    for dims in 1..=DIMS {
        for counts in counts(dims) {
            for blocks in 1..=BLOCKS {
                // No two pieces share an address or touch.
                let parts = [0, 1, 2].map(|block| Part {
                    leaf: block,
                    addr: 10 * u64::from(block),
                    bytes: 2,
                    stride: [10_000, 1_000, 100],
                });
                tally.check(&counts, &parts[..blocks], Depth::Ranges);
            }
        }
    }
    assert_eq!((tally.accepted, tally.refused), (3 * (4 + 16 + 64), 0));
}

#[test]
fn all_together() {
    let drawn = if long() { 1_000_000 } else { 100_000 };
    let mut state = 1u64;
    let mut below = |end: u64| {
        // Knuth's generator, whose high bits are good enough for drawing.
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % end
    };
    let mut tally = Tally::new();
    for _ in 0..drawn {
        let counts = [0; DIMS].map(|_| 1 + below(4));
        let mut parts = [Part::default(); BLOCKS];
        let mut before = first(0, [0; DIMS]);
        // Random blocks rarely continue one another everywhere.
        let alike = below(4) == 0;
        for part in &mut parts {
            let stride = [0; DIMS].map(|_| below(8) as i64 + DOMAIN.start());
            let place = PLACES[below(PLACES.len() as u64) as usize];
            *part = after(&before, place, 1 + below(2), stride);
            if alike && before.bytes != 0 {
                part.stride = before.stride;
            }
            before = *part;
        }
        let (dims, blocks) = (1 + below(3) as usize, 1 + below(3) as usize);
        let depth = if below(16) == 0 {
            Depth::Ranges
        } else {
            Depth::Walks
        };
        tally.check(&counts[..dims], &parts[..blocks], depth);
    }
    tally.finish("all together", drawn);
}
