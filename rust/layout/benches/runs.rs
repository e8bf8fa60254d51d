// SPDX-License-Identifier: GPL-2.0

//! Measures runs and seeks: `cargo bench`.
//!
//! A packet of 4 KiB is the unit in which the kernel uses a layout: one seek,
//! then every run of it.

#[allow(unreachable_pub)]
#[path = "../tests/common/runs.rs"]
mod runs;

use std::hint::black_box;
use std::time::Instant;

use ib_mkey_layout::{Block, Entry, Interleaved, Layout, List, Run, MAX_DIMS};
use runs::HasRuns;

type VecLayout = Layout<Vec<Entry>, Vec<Block>>;

const PACKET: u64 = 4096;

/// Returns the nanoseconds of one call of `f`, the least of several measurements.
fn best(calls: u64, mut f: impl FnMut(u64)) -> f64 {
    (0..9)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(&mut f);
            start.elapsed().as_nanos() as f64 / calls as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Consumes a run in registers, as a copy routine does.
fn spend(run: Run) -> u64 {
    black_box(run.leaf);
    black_box(run.addr);
    black_box(run.len)
}

fn packet(layout: &VecLayout, offset: u64) -> u64 {
    let mut sum = 0;
    if let Ok(runs) = layout.runs(offset, PACKET) {
        for run in runs {
            sum += spend(run);
        }
    }
    sum
}

fn report(name: &str, layout: &VecLayout) {
    let end = layout.length() - PACKET;
    assert_eq!((packet(layout, 0), packet(layout, end)), (PACKET, PACKET));

    // Offsets of neighbouring packets, so that the seeks differ.
    let seek = |base: u64| {
        best(100_000, |i| {
            let offset = black_box(base + i % 64 * 48);
            black_box(layout.runs(offset, 1).map_or(0, Iterator::count));
        })
    };
    let packets = best(20_000, |i| {
        black_box(packet(layout, black_box(i % 64 * 4096 % end)));
    });
    let all = || layout.runs(0, layout.length()).into_iter().flatten();
    let runs = all().count() as f64;
    let walk = best(1, |_| {
        all().for_each(|run| {
            spend(run);
        });
    });

    println!(
        "{name:34} {:8.2} {:10.1} {:10.1} {:12.1}",
        walk / runs,
        seek(0),
        seek(end - 64 * 48),
        packets
    );
}

fn interleaved(counts: &[u64], blocks: &[(u64, u64, &[i64])]) -> VecLayout {
    let blocks = blocks.iter().map(|&(addr, bytes, strides)| {
        let mut stride = [0; MAX_DIMS];
        stride[..strides.len()].copy_from_slice(strides);
        Block::new(0, addr, bytes, stride)
    });
    Layout::Interleaved(Interleaved::new(counts, blocks.collect()).expect("a layout"))
}

fn main() {
    println!(
        "{:34} {:>8} {:>10} {:>10} {:>12}",
        "ns", "run", "seek first", "seek last", "4 KiB packet"
    );
    report(
        "1e6 blocks of 48 bytes, 1 dim",
        &interleaved(&[1_000_000], &[(0, 48, &[128])]),
    );
    report(
        "1e6 blocks of 48 bytes, 3 dims",
        &interleaved(&[100; 3], &[(0, 48, &[1 << 20, 1 << 14, 128])]),
    );
    report(
        "1e6 blocks of 48 bytes, 6 dims",
        &interleaved(
            &[10; 6],
            &[(0, 48, &[1 << 28, 1 << 24, 1 << 20, 1 << 16, 1 << 12, 128])],
        ),
    );
    report(
        "2 blocks of 48 bytes, 500,000 times",
        &interleaved(&[500_000], &[(0, 48, &[256]), (100, 48, &[192])]),
    );
    report(
        "2 blocks of 48 bytes, 3 dims",
        &interleaved(
            &[80; 3],
            &[
                (0, 48, &[1 << 24, 1 << 16, 256]),
                (100, 48, &[1 << 24, 1 << 16, 192]),
            ],
        ),
    );
    report(
        "1e6 blocks of 48 bytes, contiguous",
        &interleaved(&[1000, 1000], &[(0, 48, &[48_000, 48])]),
    );
    let entries = (0..65_536).map(|i| Entry::new(i as u32 % 3, i * 128, 48));
    report(
        "65,536 entries of 48 bytes",
        &Layout::List(List::new(entries.collect()).expect("a layout")),
    );
}
