// SPDX-License-Identifier: GPL-2.0

//! An upper bound of the work of a packet through a nest.
//!
//! A peer decides how many packets it sends. So one packet may take only a limited time, whatever
//! keys a process built. `rust/layout/src/work.rs` has the bound for one level after another.

use super::{KLayout, Leaf, LeafPlace, MAX_LEVELS};
use crate::layout::{Granularity, Level, Memory, Packet, PACKET};
use core::{array, slice};
use kernel::prelude::*;

/// The most work of a packet through a nest. If a packet could take more, the nest is made one
/// list. The nest is refused if that list would be too long. A packet of this work takes less than
/// 50 times as long as one to contiguous memory (`tools/bench/guest/fine.c`).
pub(super) const MAX: u64 = 230_000;

/// Up to this work of a packet, only a nest of few pieces gets a flat list.
pub(super) const FINE: u64 = 2_000;

/// The most work of an access under SRCU. An access of more work leaves SRCU, see
/// `Binding::users`.
pub(super) const LONG: u64 = 20_000;

/// The most visits to keys to find the work of a packet. A key is visited once for each path that
/// leads to it.
const MAX_VISITS: usize = 4096;

/// The most leaves that are visited to find the work of a packet. The thread does not reschedule
/// meanwhile.
const MAX_LEAVES: usize = 1 << 20;

/// Returns the granularity of a layout.
pub(super) fn granularity(layout: &KLayout) -> Granularity {
    let (mut granularity, mut pieces) = (Granularity::NONE, 0u64);
    let all = layout.reach(|reach| {
        granularity = granularity.join(reach.granularity);
        pieces = pieces.saturating_add(reach.count);
        Ok::<_, Error>(())
    });
    match (all, pieces) {
        (Ok(()), 1) => granularity.alone(),
        _ => granularity,
    }
}

/// Returns the work of one search at each level that an access walks over.
pub(super) fn search(layout: &KLayout, leaves: &[Leaf]) -> u8 {
    let below = leaves.iter().map(|leaf| leaf.place.search()).max();
    let all = layout
        .search_work()
        .saturating_add(below.unwrap_or(0).into());
    u8::try_from(all).unwrap_or(u8::MAX)
}

/// Returns an upper bound of the work of a packet through `layout`, with pieces of `granularity`,
/// and through the keys among `leaves`.
///
/// A packet can pass several keys of one level, each with some of its bytes. So the keys of a level
/// count as one that has the pieces of all.
pub(super) fn of_packet(
    layout: &KLayout,
    granularity: Granularity,
    leaves: &[Leaf],
    on_demand: bool,
) -> u64 {
    let mut packet = Packet::new(PACKET).pass(&Level::new(layout, granularity));
    let (levels, is_all, several) = levels_below(leaves);
    if is_all {
        for level in levels.iter().flatten() {
            packet = packet.pass(level);
        }
    } else {
        let search = leaves.iter().map(|leaf| leaf.place.search()).max();
        packet = packet.pass_all(search.unwrap_or(u8::MAX).into());
    }
    packet.work(Memory { on_demand, several })
}

/// Returns the levels that an access walks over below a binding with `leaves`, outermost first.
/// The second value is `false` if these are not all levels, because more than [`MAX_VISITS`] paths
/// lead to keys, or because the paths have more than [`MAX_LEAVES`] leaves. The third value is
/// `false` if all memory is that of one leaf.
fn levels_below(leaves: &[Leaf]) -> ([Option<Level>; MAX_LEVELS], bool, bool) {
    let mut levels = [None; MAX_LEVELS];
    let mut several = leaves.len() > 1;
    // The leaves that are left at each level.
    let mut rest: [slice::Iter<'_, Leaf>; MAX_LEVELS] = array::from_fn(|_| [].iter());
    let (mut depth, mut visits, mut seen) = (0usize, 0usize, 0usize);
    if let Some(first) = rest.first_mut() {
        *first = leaves.iter();
    }
    while let (Some(left), Some(level)) = (rest.get_mut(depth), levels.get_mut(depth)) {
        let Some(leaf) = left.next() else {
            let Some(outer) = depth.checked_sub(1) else {
                break;
            };
            depth = outer;
            continue;
        };
        seen = seen.saturating_add(1);
        if seen > MAX_LEAVES {
            return (levels, false, true);
        }
        let LeafPlace::Key(inner) = &leaf.place else {
            continue;
        };
        visits = visits.saturating_add(1);
        if visits > MAX_VISITS {
            return (levels, false, true);
        }
        several |= inner.leaves.len() > 1;
        let key = Level::new(inner.walked(), inner.granularity);
        *level = Some(level.map_or(key, |level: Level| level.join(key)));
        if inner.levels() > 1 {
            depth = depth.saturating_add(1);
            if let Some(next) = rest.get_mut(depth) {
                *next = inner.leaves.iter();
            }
        }
    }
    (levels, true, several)
}
