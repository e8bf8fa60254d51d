// SPDX-License-Identifier: GPL-2.0

//! Measures a packet of 4 KiB through levels of keys over keys: `cargo bench --bench nest`. As in
//! the kernel's evaluator, the rows of each level are made from those of the level above.

use std::hint::black_box;
use std::time::Instant;

use ib_mkey_layout::{
    flatten, Below, Block, Entry, Error, Interleaved, Layout, List, NoIndexed, Order, Row, RowsOf,
    Shape, MAX_DIMS, MAX_PARTS,
};

type VecLayout = Layout<Vec<Entry>, Vec<Block>>;
type VecRows<'a> = RowsOf<'a, Vec<Entry>, Vec<Block>, Shape, NoIndexed>;

/// Bytes of each level. Each level reaches all bytes of the level below.
const BYTES: u64 = 1 << 16;

/// Visits the rows of the lowest level; returns their number and the number of their bytes.
fn packet(levels: &[VecLayout], order: Order) -> (u64, u64) {
    let (mut rows, mut bytes) = (0, 0);
    let first = levels[0].rows_of(Row::of(0, 0, 4096), order);
    let mut stack: Vec<VecRows<'_>> = vec![first.expect("in range")];
    while let Some(level) = stack.last_mut() {
        match level.next() {
            None => {
                stack.pop();
            }
            Some(row) => match levels.get(stack.len()) {
                Some(below) => stack.push(below.rows_of(row, order).expect("in range")),
                None => {
                    let row = black_box(row);
                    rows += 1;
                    bytes += row.len * row.count;
                }
            },
        }
    }
    (rows, bytes)
}

/// A key and the keys below it.
#[derive(Clone, Copy)]
struct Key<'a>(&'a [VecLayout]);

impl<'a> Below<'a> for Key<'a> {
    type Entries = Vec<Entry>;
    type Blocks = Vec<Block>;
    type Shape = Shape;
    type Indexed = NoIndexed;

    fn layout(self) -> &'a VecLayout {
        &self.0[0]
    }

    fn below(self, _: u32) -> Option<Self> {
        let below = &self.0[1..];
        (!below.is_empty()).then_some(Self(below))
    }
}

/// Returns the list that a bind makes of a nest, if all of it is memory then and it has as few
/// entries as the kernel allows.
fn flat(levels: &[VecLayout]) -> Option<VecLayout> {
    let mut pieces = 0;
    levels[0]
        .reach(|reach| {
            pieces += reach.count;
            Ok::<_, Error>(())
        })
        .expect("no error");
    if pieces > (4 * levels[0].count() as u64).max(64) {
        return None;
    }
    let (mut entries, mut kept) = (Vec::<Entry>::new(), 0);
    let below = Some(Key(&levels[1..]));
    flatten::<Key<'_>, Error, 8>(
        &levels[0],
        |_| below,
        MAX_PARTS,
        |key, run| {
            kept += usize::from(key.is_none());
            let entry = Entry::new(run.leaf, run.addr, run.len);
            if !entries.last_mut().is_some_and(|last| last.join(&entry)) {
                entries.push(entry);
            }
            Ok(())
        },
    )
    .expect("no error");
    (kept == 0).then(|| Layout::List(List::new(entries).expect("a layout")))
}

/// Returns the shortest time of a packet.
fn time(levels: &[VecLayout], order: Order) -> f64 {
    let taken = (0..9).map(|_| {
        let start = Instant::now();
        for _ in 0..20 {
            black_box(packet(levels, order));
        }
        start.elapsed().as_nanos() as f64 / 20.0
    });
    taken.fold(f64::INFINITY, f64::min)
}

fn grid(counts: &[u64], strides: &[i64], bytes: u64) -> VecLayout {
    let mut stride = [0; MAX_DIMS];
    stride[..strides.len()].copy_from_slice(strides);
    let block = Block::new(0, 0, bytes, stride);
    Layout::Interleaved(Interleaved::new(counts, vec![block]).expect("a layout"))
}

/// Makes entries of one byte in an order that gives no rows.
fn scattered() -> VecLayout {
    let entries = (0..BYTES).map(|i| Entry::new(0, i * i * 7919 % 65_521, 1));
    Layout::List(List::new(entries.collect()).expect("a layout"))
}

fn report(name: &str, level: impl Fn() -> VecLayout) {
    for depth in [1, 4, 7] {
        let levels: Vec<_> = (0..depth).map(|_| level()).collect();
        for order in [Order::Any, Order::Strict] {
            let (rows, bytes) = packet(&levels, order);
            assert_eq!(bytes, 4096);
            let taken = time(&levels, order);
            let flat = match levels.len() {
                1 => None,
                _ => flat(&levels).map(|flat| time(&[flat], order)),
            };
            let flat = flat.map_or(String::new(), |flat| format!("{flat:.0}"));
            let order = format!("{order:?}");
            println!("{name:36} {depth:>6} {order:>8} {rows:>8} {taken:>12.0} {flat:>12}");
        }
    }
}

fn main() {
    println!(
        "{:36} {:>6} {:>8} {:>8} {:>12} {:>12}",
        "ns", "levels", "order", "rows", "4 KiB packet", "as a list"
    );
    report("bytes at distance 2, then back", || {
        // The even bytes, then the odd ones.
        grid(&[2, BYTES / 2], &[1, 2], 1)
    });
    report("8 of 16 bytes", || grid(&[2, BYTES / 16], &[8, 16], 8));
    report("3 of 5 bytes, the last ones twice", || {
        grid(&[2, BYTES / 5], &[0, 5], 3)
    });
    report("bytes, 8 dimensions of 4", || {
        grid(&[4; 8], &[13_001, 5003, 1301, 311, 79, 19, 5, 1], 1)
    });
    report("scattered bytes, in a list", scattered);
    report("scattered 5 bytes, in a list", || {
        let entries = (0..BYTES / 5).map(|i| Entry::new(0, i * i * 7919 % 65_521, 5));
        Layout::List(List::new(entries.collect()).expect("a layout"))
    });
}
