// SPDX-License-Identifier: GPL-2.0

//! Layouts that are moved, compared with layouts that are made at the other address.

use crate::common::Spec;
use ib_mkey_layout::{Block, Error, Layout, Reach, MAX_DIMS};
use proptest::collection::vec;
use proptest::prelude::*;

/// Draws an address, often near an end of the address space.
fn addr() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..3000u64,
        (0..3000u64).prop_map(|below| u64::MAX - below),
        (1u64 << 63) - 1000..(1u64 << 63) + 1000,
        any::<u64>(),
    ]
}

/// Draws a list of one leaf, mostly, at distances from `addr()`.
fn list() -> impl Strategy<Value = Spec> {
    let leaf = prop_oneof![9 => Just(0u32), 1 => Just(1)];
    let length = prop_oneof![4 => Just(8u64), 1 => 1..40u64];
    let entry = (leaf, -600..600i64, length);
    let row = (0..600i64, 1..30usize).prop_map(|(step, count)| {
        let place = |at: usize| (0, at as i64 * step, 8);
        (0..count).map(place).collect::<Vec<_>>()
    });
    (addr(), prop_oneof![3 => vec(entry, 1..6), 1 => row]).prop_map(|(base, entries)| {
        let place = |(leaf, at, length)| (leaf, base.wrapping_add_signed(at), length);
        Spec::List(entries.into_iter().map(place).collect())
    })
}

fn block() -> impl Strategy<Value = Spec> {
    let stride = prop_oneof![-40..40i64, Just(0), Just(16), any::<i64>()];
    let dim = (prop_oneof![4 => 1..5u64, 1 => any::<u64>()], stride);
    (addr(), 1..40u64, vec(dim, 1..5)).prop_map(|(addr, bytes, dims)| {
        let (counts, strides) = dims.into_iter().unzip();
        Spec::Interleaved(counts, vec![(0, addr, bytes, strides)])
    })
}

/// Returns the layout with the first address `addr`; [`None`] if another address does not fit.
fn at(spec: &Spec, addr: u64) -> Option<Spec> {
    let distance = |first: u64| i128::from(addr) - i128::from(first);
    let moved = |addr: u64, distance: i128| u64::try_from(i128::from(addr) + distance).ok();
    Some(match spec.clone() {
        Spec::List(mut entries) => {
            let distance = distance(entries[0].1);
            for entry in &mut entries {
                entry.1 = moved(entry.1, distance)?;
            }
            Spec::List(entries)
        }
        Spec::Interleaved(counts, mut blocks) => {
            blocks[0].1 = addr;
            Spec::Interleaved(counts, blocks)
        }
        Spec::Indexed(..) => return None,
    })
}

type AnyLayout = ib_mkey_layout::Layout<
    Vec<ib_mkey_layout::Entry>,
    Vec<Block>,
    ib_mkey_layout::Shape,
    ib_mkey_layout::Indexed<crate::common::VecIndices>,
>;

/// Returns all pieces with their extents.
fn reaches(layout: &AnyLayout) -> Vec<Reach> {
    let mut all = Vec::new();
    let each = |reach| {
        all.push(reach);
        Ok::<_, Error>(())
    };
    layout.reach(each).expect("no piece is refused");
    all
}

/// Returns `true` if `layout` is like the layout that `spec` describes.
fn is_like(layout: &AnyLayout, spec: &Spec) -> bool {
    match (layout, spec) {
        (Layout::List(list), Spec::List(entries)) => {
            list.is_like(entries.iter().map(|entry| (entry.1, entry.2)))
        }
        (Layout::Interleaved(blocks), Spec::Interleaved(counts, specs)) => {
            let (_, _, bytes, strides) = &specs[0];
            let mut stride = [0; MAX_DIMS];
            stride[..strides.len()].copy_from_slice(strides);
            blocks.is_like(counts, *bytes, &stride)
        }
        _ => false,
    }
}

fn is_of_one_leaf(spec: &Spec) -> bool {
    match spec {
        Spec::List(entries) => entries.iter().all(|entry| entry.0 == entries[0].0),
        _ => true,
    }
}

fn check(spec: &Spec, addr: u64) {
    let Ok(mut layout) = spec.build() else {
        return;
    };
    let before = format!("{layout:?}");
    let old = reaches(&layout);
    let made = at(spec, addr).map(|spec| (spec.build(), spec));
    let moved = layout.move_to(addr);
    if !is_of_one_leaf(spec) {
        assert_eq!(moved, Err(Error::Range));
        assert_eq!(format!("{layout:?}"), before);
        return;
    }
    match made {
        Some((Ok(made), spec)) => {
            let moved = moved.expect("the addresses fit");
            // All that is stored is the same, and so is every access.
            assert_eq!(format!("{layout:?}"), format!("{made:?}"), "{spec:?}");
            let [before, after] = [&old[..], &reaches(&made)].map(|all| match all {
                [reach] => *reach,
                _ => panic!("{spec:?} has one leaf"),
            });
            assert_eq!(moved.extent, after.extent);
            assert_eq!(moved.granularity(before.granularity), after.granularity);
            assert_eq!(
                moved.granularity(before.granularity.alone()),
                after.granularity.alone()
            );
            assert_eq!((before.len, before.count), (after.len, after.count));
            assert!(is_like(&layout, &spec));
        }
        Some((Err(error), spec)) => {
            assert_eq!(moved, Err(error), "{spec:?}");
            assert_eq!(format!("{layout:?}"), before);
        }
        None => {
            assert_eq!(moved, Err(Error::Overflow));
            assert_eq!(format!("{layout:?}"), before);
        }
    }
}

/// Changes one number of a layout.
fn change(spec: &Spec, which: usize, by: u64) -> Spec {
    match spec.clone() {
        Spec::List(mut entries) => {
            let count = entries.len();
            match which % 4 {
                0 => entries.truncate(count - 1),
                1 => entries[which % count].2 += by,
                2 => {
                    let entry = &mut entries[which % count];
                    entry.1 = entry.1.wrapping_add(by);
                }
                _ => entries.push((0, 0, by)),
            }
            Spec::List(entries)
        }
        Spec::Interleaved(mut counts, mut blocks) => {
            let dims = counts.len();
            match which % 4 {
                0 => counts[which % dims] = counts[which % dims].wrapping_add(by),
                1 => blocks[0].2 += by,
                2 => {
                    let stride = &mut blocks[0].3[which % dims];
                    *stride = stride.wrapping_add_unsigned(by);
                }
                _ => {
                    counts.push(by);
                    blocks[0].3.push(0);
                }
            }
            Spec::Interleaved(counts, blocks)
        }
        indexed => indexed,
    }
}

proptest! {
    #[test]
    fn a_moved_layout_is_one_that_is_made_there(
        spec in prop_oneof![list(), block()],
        addr in addr(),
    ) {
        check(&spec, addr);
    }

    #[test]
    fn a_layout_moves_a_little(spec in prop_oneof![list(), block()], by in -700..700i64) {
        let first = match &spec {
            Spec::List(entries) => entries[0].1,
            Spec::Interleaved(_, blocks) => blocks[0].1,
            Spec::Indexed(..) => 0,
        };
        check(&spec, first.wrapping_add_signed(by));
    }

    #[test]
    fn a_layout_that_differs_is_not_alike(
        spec in prop_oneof![list(), block()],
        which in 0..1000usize,
        by in 1..9u64,
    ) {
        if let Ok(layout) = spec.build() {
            let other = change(&spec, which, by);
            // A list of one entry has no distances.
            let moves = matches!(&other, Spec::List(entries) if entries.len() == 1 && which % 4 == 2);
            prop_assert_eq!(is_like(&layout, &other), moves && is_of_one_leaf(&other));
        }
    }
}
