// SPDX-License-Identifier: GPL-2.0

//! The work of an access through a nest, step by step as the kernel's evaluator does it, and the
//! bound of it.

use ib_mkey_layout::{units, Below, Error, Granularity, Level, Memory, Order, Packet, Row};

use super::flat::{below, Key};
use super::VecLayout;

/// The cost of one access.
#[derive(Default)]
struct Work {
    all: u64,
    rows: u64,
}

/// Returns the granularity of a layout.
fn granularity(layout: &VecLayout) -> Granularity {
    let (mut granularity, mut pieces) = (Granularity::NONE, 0u64);
    layout
        .reach(|reach| {
            granularity = granularity.join(reach.granularity);
            pieces = pieces.saturating_add(reach.count);
            Ok::<_, Error>(())
        })
        .unwrap();
    if pieces == 1 {
        granularity.alone()
    } else {
        granularity
    }
}

/// Visits `row`, whose leaf is `key`, down to memory.
fn descend(key: Option<&Key>, row: Row, order: Order, work: &mut Work) {
    let Some(key) = key else {
        work.rows += 1;
        work.all += units::VISIT + (row.count - 1) * units::PIECE;
        return;
    };
    let layout = key.layout();
    let search = layout.search_work();
    let mut outer = row;
    row.check_within(layout.length()).unwrap();
    while outer.count != 0 {
        let before = outer;
        let next = layout.take_row(&mut outer);
        // A piece that is cut is searched for its place too.
        let is_cut = before.count == 1 && next.is_some_and(|row| row.len != before.len);
        work.all += search * (1 + u64::from(is_cut));
        if before.at != row.at {
            work.all += units::NEXT;
        }
        let Some(row) = next else {
            break;
        };
        descend(key.below(row.leaf), row, order, work);
    }
    if outer.count != 0 {
        work.all += units::CURSOR + search;
        let each = match outer.count {
            1 => units::STEP,
            _ => 2 * search + units::CUT,
        };
        for row in layout.rows_of(outer, order).unwrap() {
            work.all += each;
            descend(key.below(row.leaf), row, order, work);
        }
    }
}

/// Checks that accesses of `bytes` bytes to `layout` over `key` take no more work, and end in no
/// more rows, than a bind expects.
pub fn check(layout: &VecLayout, key: Option<&Key>, bytes: u64) {
    let bytes = bytes.min(layout.length());
    let mut packet = Packet::new(bytes).pass(&Level::new(layout, granularity(layout)));
    let mut inner = key;
    while let Some(key) = inner {
        let layout = key.layout();
        packet = packet.pass(&Level::new(layout, granularity(layout)));
        inner = key.inner();
    }
    for offset in 0..=layout.length() - bytes {
        for order in [Order::Any, Order::Strict] {
            let mut work = Work::default();
            work.all += layout.search_work() + units::CURSOR;
            for row in layout.rows(offset, bytes, order).unwrap() {
                work.all += units::STEP;
                descend(below(key, row.leaf), row, order, &mut work);
            }
            assert!(work.rows <= packet.rows(), "{} rows, {packet:?}", work.rows);
            let most = packet.work(Memory::default());
            assert!(work.all <= most, "{} of {most}, {packet:?}", work.all);
        }
    }
}
