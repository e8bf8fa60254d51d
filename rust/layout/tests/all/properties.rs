// SPDX-License-Identifier: GPL-2.0

//! Random layouts, compared with the byte-by-byte oracle.

use crate::common::flat::{self, Flat};
use crate::common::small::long;
use crate::common::{check_access, check_shape, coarse, numbers, Spec, OVERFLOW};
use ib_mkey_layout::{Layout, Run, MAX_DIMS};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The largest number of bytes of a random layout.
const MAX_BYTES: u64 = 20_000;

/// Draws an address far enough from both ends.
fn middle() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1 << 32), 1 << 20..1u64 << 62]
}

/// Moves a layout up, so that its highest byte is at the last address.
fn at_the_top(spec: &Spec) -> Spec {
    let last = spec.bytes().iter().map(|byte| byte.1).max().unwrap_or(0);
    let up = u64::MAX - last;
    match spec.clone() {
        Spec::List(mut entries) => {
            entries.iter_mut().for_each(|entry| entry.1 += up);
            Spec::List(entries)
        }
        Spec::Interleaved(counts, mut blocks) => {
            blocks.iter_mut().for_each(|block| block.1 += up);
            Spec::Interleaved(counts, blocks)
        }
        Spec::Indexed(mut block, indices) => {
            block.1 += up;
            Spec::Indexed(block, indices)
        }
    }
}

fn list() -> impl Strategy<Value = Spec> {
    let entry = |base| (0..3u32, 0..200u64, 1..100u64).prop_map(move |(l, a, n)| (l, base + a, n));
    let scattered = middle().prop_flat_map(move |base| vec(entry(base), 1..60));
    // Entries that continue one another, with occasional gaps.
    let chained = (middle(), vec((prop::bool::weighted(0.2), 1..40u64), 1..60));
    let chained = chained.prop_map(|(mut addr, entries)| {
        let entry = |(hole, length)| {
            let start = addr + u64::from(hole);
            addr = start + length;
            (0, start, length)
        };
        entries.into_iter().map(entry).collect()
    });
    // Entries of one length: some alone, some at one distance, few of another leaf.
    let stretch = (0..400u64, 0..50u64, 1..25u64, prop::bool::weighted(0.1));
    let uneven = (middle(), 1..20u64, vec(stretch, 1..20));
    let uneven = uneven.prop_map(|(base, length, stretches)| {
        let stretch = |(addr, distance, count, other)| {
            let place = move |at| (u32::from(other), base + addr + at * distance, length);
            // Most are short.
            (0..if count < 15 { 1 } else { count }).map(place)
        };
        stretches.into_iter().flat_map(stretch).collect()
    });
    prop_oneof![scattered, chained, uneven].prop_map(Spec::List)
}

/// Draws counts of up to eight dimensions, with few tuples in all.
fn counts() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![3 => 1..4u64, 1 => 1..20u64], 1..=MAX_DIMS)
        .prop_filter("too many", |counts| counts.iter().product::<u64>() <= 500)
}

/// Draws strides as in a real array: those of the outer dimensions are the size of the inner ones,
/// sometimes with a gap. Some are negative or zero.
fn nested(counts: Vec<u64>, bytes: u64) -> impl Strategy<Value = Vec<i64>> {
    let gap = prop_oneof![3 => Just(0u64), 1 => 1..5u64];
    let sign = prop_oneof![6 => Just(1i64), 1 => Just(-1), 1 => Just(0)];
    vec((gap, sign), counts.len()).prop_map(move |shape| {
        let mut size = bytes;
        let mut strides = Vec::new();
        for ((gap, sign), count) in shape.iter().zip(&counts).rev() {
            strides.push((size + gap) as i64 * sign);
            size = (size + gap) * count;
        }
        strides.reverse();
        strides
    })
}

fn interleaved() -> impl Strategy<Value = Spec> {
    let arbitrary = (middle(), counts()).prop_flat_map(|(base, counts)| {
        let stride = prop_oneof![-40..40i64, -1000..1000i64, Just(0)];
        let block = (0..3u32, 0..200u64, 1..12u64, vec(stride, counts.len()))
            .prop_map(move |(leaf, addr, bytes, strides)| (leaf, base + addr, bytes, strides));
        (Just(counts), vec(block, 1..5))
    });
    // Blocks that have the same strides and continue one another, or nearly so.
    let array = (middle(), counts(), vec(1..12u64, 1..4)).prop_flat_map(|(base, counts, sizes)| {
        let joint = prop_oneof![8 => Just((0u64, 1u32)), 1 => Just((1, 1)), 1 => Just((0, 2))];
        let shape = (
            nested(counts.clone(), sizes.iter().sum()),
            vec(joint, sizes.len()),
        );
        shape.prop_map(move |(strides, joints)| {
            let mut addr = base;
            let mut blocks = Vec::new();
            for (size, (hole, leaf)) in sizes.iter().zip(joints) {
                blocks.push((leaf, addr + hole, *size, strides.clone()));
                addr += hole + size;
            }
            (counts.clone(), blocks)
        })
    });
    // Records of blocks of one size and one stride that is far, or nearly so.
    let records = (middle(), counts(), 1..9u64).prop_flat_map(|(base, counts, bytes)| {
        let stride = prop_oneof![-700..-250i64, 250..700i64];
        let other = prop_oneof![9 => Just(0u64), 1 => Just(1)];
        let blocks = vec((0..400u64, other.clone(), other), 2..5);
        (vec(stride, counts.len()), blocks).prop_map(move |(strides, blocks)| {
            let block = |(addr, more, leaf)| {
                let leaf = u32::from(leaf != 0);
                (leaf, base + addr, bytes + more, strides.clone())
            };
            (counts.clone(), blocks.into_iter().map(block).collect())
        })
    });
    prop_oneof![arbitrary, array, records]
        .prop_map(|(counts, blocks)| Spec::Interleaved(counts, blocks))
        .prop_filter("too long", |spec| match spec {
            Spec::List(_) | Spec::Indexed(..) => true,
            Spec::Interleaved(counts, blocks) => {
                let group: u64 = blocks.iter().map(|block| block.2).sum();
                counts.iter().product::<u64>() * group <= MAX_BYTES
            }
        })
}

/// Draws indices that increase by one, by more, or decrease, with occasional others.
fn indexed() -> impl Strategy<Value = Spec> {
    let stretch = (0..500u64, -4..5i64, 1..40u64);
    let block = (0..3u32, middle(), 1..40u64, 1..20u64);
    (block, vec(stretch, 1..12)).prop_map(|(block, stretches)| {
        let indices = stretches.into_iter().flat_map(|(first, step, count)| {
            (0..count).map(move |i| (first + 200).wrapping_add_signed(step * i as i64))
        });
        Spec::Indexed(block, indices.collect())
    })
}

/// Draws entries of one length, mostly at one distance.
fn regular() -> impl Strategy<Value = Spec> {
    let stretch = (
        0..3000u64,
        -50..50i64,
        1..20u64,
        prop_oneof![3 => Just(8u64), 1 => 1..20u64],
    );
    vec(stretch, 1..8).prop_map(|stretches| {
        let entries = stretches
            .into_iter()
            .flat_map(|(addr, stride, count, length)| {
                (0..count).map(move |i| {
                    (
                        0,
                        (addr + 5000).wrapping_add_signed(stride * i as i64),
                        length,
                    )
                })
            });
        Spec::List(entries.collect())
    })
}

/// Draws a number of units, and a few more: the unit, the times, and what is added.
fn units() -> impl Strategy<Value = (Index, i64, i64)> {
    let more = prop_oneof![6 => Just(0i64), 1 => -2..3i64];
    (any::<Index>(), -2..4i64, more)
}

/// A block of a key over a key: leaf, address, length and strides, each but the leaf as
/// [`units`].
type LinedUp = (
    u32,
    (Index, i64, i64),
    (Index, i64, i64),
    Vec<(Index, i64, i64)>,
);

/// Draws the counts and blocks of a key over a key.
fn lined_up() -> impl Strategy<Value = (Vec<u64>, Vec<LinedUp>)> {
    let leaf = prop_oneof![5 => Just(flat::KEYS), 1 => Just(0)];
    let block = (leaf, units(), units(), vec(units(), 3));
    (vec(1..7u64, 1..=3), vec(block, 1..3))
}

fn check(spec: &Spec, accesses: &[(Index, Index)]) {
    let layout = spec.build().unwrap();
    let bytes = spec.bytes();
    check_shape(spec, &layout, &bytes);
    check_access(&layout, &bytes, 0, bytes.len());
    check_access(&layout, &bytes, bytes.len(), 0);
    check_access(&layout, &bytes, bytes.len(), 1);
    for (offset, len) in accesses {
        let offset = offset.index(bytes.len());
        check_access(&layout, &bytes, offset, len.index(bytes.len() - offset + 1));
        // Atomics access 8 bytes.
        check_access(&layout, &bytes, offset, 8);
    }
}

fn accesses() -> impl Strategy<Value = Vec<(Index, Index)>> {
    vec(any::<(Index, Index)>(), 1..20)
}

/// Draws numbers near the limits of their type, and others.
fn edgy() -> impl Strategy<Value = u64> {
    let near = |edge: u64| (0..4u64).prop_map(move |i| edge.wrapping_sub(2).wrapping_add(i));
    prop_oneof![
        near(0),
        near(1 << 63),
        near(1 << 32),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        any::<u64>(),
        (0..64u32).prop_map(|bit| 1 << bit),
    ]
}

/// Draws mostly small numbers, so that not all layouts are refused.
fn or_small(
    weight: u32,
    small: std::ops::Range<u64>,
    any: impl Strategy<Value = u64>,
) -> impl Strategy<Value = u64> {
    prop_oneof![weight => small, 1 => any]
}

fn any_stride() -> impl Strategy<Value = i64> {
    let power = (0..62u32, prop::bool::ANY).prop_map(
        |(bit, minus)| {
            if minus {
                -(1 << bit)
            } else {
                1 << bit
            }
        },
    );
    prop_oneof![4 => -9..10i64, 2 => power, 1 => edgy().prop_map(|stride| stride as i64)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if long() { 2000 } else { 700 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn lists(spec in list(), accesses in accesses()) {
        check(&spec, &accesses);
    }

    /// The last address is valid; one more byte is refused.
    #[test]
    fn last_byte(
        spec in prop_oneof![list(), interleaved(), indexed()],
        accesses in accesses(),
    ) {
        let mut spec = at_the_top(&spec);
        check(&spec, &accesses);
        match &mut spec {
            Spec::List(entries) => entries.iter_mut().for_each(|entry| entry.2 += 1),
            Spec::Interleaved(_, blocks) => blocks.iter_mut().for_each(|block| block.2 += 1),
            Spec::Indexed(block, _) => block.3 += 1,
        }
        prop_assert_eq!(spec.build().err().map(coarse), Some(OVERFLOW));
    }

    #[test]
    fn interleaved_blocks(spec in interleaved(), accesses in accesses()) {
        check(&spec, &accesses);
    }

    #[test]
    fn indexed_blocks(spec in indexed(), accesses in accesses()) {
        check(&spec, &accesses);
    }

    #[test]
    fn regular_lists(spec in regular(), accesses in accesses()) {
        check(&spec, &accesses);
    }

    /// One layout of keys over keys gives the same bytes as the keys.
    #[test]
    fn nests(
        specs in vec(prop_oneof![list(), regular(), interleaved(), indexed()], 1..=flat::LEVELS),
    ) {
        flat::check(&specs, 2000);
    }

    /// Blocks that advance by pieces, tuples or dimensions of the key below, or nearly so, give the
    /// same bytes as the keys.
    #[test]
    fn nests_that_line_up(inner in interleaved(), outers in vec(lined_up(), 1..12)) {
        let Spec::Interleaved(counts, blocks) = &inner else { unreachable!() };
        let mut unit: u64 = blocks.iter().map(|block| block.2).sum();
        let mut units = vec![1, unit];
        for count in counts.iter().rev() {
            unit *= count;
            units.push(unit);
        }
        let of = |(unit, times, more): (Index, i64, i64)| {
            units[unit.index(units.len())] as i64 * times + more
        };
        let bytes = inner.bytes();
        let flat = Flat { layout: inner.build().unwrap(), offset: 0, is_composed: false };
        for (counts, blocks) in outers {
            let blocks = blocks.into_iter().map(|(leaf, addr, len, strides)| {
                let strides = strides.into_iter().take(counts.len()).map(of).collect();
                (leaf, of(addr).unsigned_abs(), of(len).unsigned_abs().clamp(1, 500), strides)
            });
            let outer = Spec::Interleaved(counts.clone(), blocks.collect());
            let Some(wanted) = outer.build().ok().and_then(|layout| {
                (layout.length() <= MAX_BYTES).then(|| flat::through(&outer, &bytes, 9))?
            }) else {
                continue;
            };
            let layout = outer.build().unwrap();
            for flat in flat::flatten(&layout, &flat, 9).into_iter().flatten() {
                flat::check_runs(&flat.layout, &wanted);
            }
        }
    }

    /// A layout reports the description that it was made of.
    #[test]
    fn descriptions_are_kept(spec in interleaved()) {
        let Spec::Interleaved(counts, blocks) = &spec else { unreachable!() };
        let Ok(Layout::Interleaved(layout)) = spec.build() else { unreachable!() };
        prop_assert_eq!(&layout.repeat_counts().collect::<Vec<_>>(), counts);
        prop_assert_eq!(layout.blocks().len(), blocks.len());
        for (is, (leaf, addr, bytes, strides)) in layout.blocks().iter().zip(blocks) {
            prop_assert_eq!((is.leaf(), is.addr(), is.bytes_count()), (*leaf, *addr, *bytes));
            prop_assert_eq!(&is.stride()[..strides.len()], strides.as_slice());
            prop_assert!(is.stride()[strides.len()..].iter().all(|stride| *stride == 0));
        }
    }

    /// An indexed layout keeps the values that it was built from.
    #[test]
    fn indices_are_kept(spec in indexed()) {
        let Spec::Indexed((leaf, addr, unit, len), indices) = &spec else { unreachable!() };
        let Ok(Layout::Indexed(layout)) = spec.build() else { unreachable!() };
        prop_assert_eq!((layout.leaf(), layout.addr()), (*leaf, *addr));
        prop_assert_eq!((layout.unit(), layout.block_len()), (*unit, *len));
        prop_assert_eq!(layout.indices().len(), indices.len());
        for (at, index) in indices.iter().enumerate() {
            prop_assert_eq!(layout.indices().get(at), Some(*index));
            let block = Run { leaf: *leaf, addr: addr + index * unit, len: *len };
            prop_assert_eq!(layout.block(at), Some(block));
        }
        prop_assert_eq!(layout.block(indices.len()), None);
    }

    /// Any numbers are refused or give a layout within its extents.
    #[test]
    fn any_numbers(
        counts in vec(or_small(15, 1..4, edgy()), 0..10),
        blocks in vec((edgy(), or_small(5, 1..9, edgy()), vec(any_stride(), MAX_DIMS)), 0..3),
        offset in edgy(),
        len in edgy(),
    ) {
        let blocks = blocks.into_iter().map(|(a, n, s)| (0, a, n, s)).collect();
        numbers::check(&Spec::Interleaved(counts, blocks), offset, len);
    }
}
