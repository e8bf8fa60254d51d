// SPDX-License-Identifier: GPL-2.0

//! Limits of the numbers, one by one.

use crate::common::runs::HasRuns;
use crate::common::{coarse, reaches, Spec, VecLayout, OVERFLOW, ZERO};
use ib_mkey_layout::{pieces, Entry, Error, Extent, Layout, List, Row, Run, MAX_DIMS};

const MAX: u64 = u64::MAX;

fn list(entries: &[(u64, u64)]) -> Result<VecLayout, Error> {
    Spec::List(
        entries
            .iter()
            .map(|&(addr, length)| (0, addr, length))
            .collect(),
    )
    .build()
}

fn block(counts: &[u64], addr: u64, bytes: u64, strides: &[i64]) -> Result<VecLayout, Error> {
    Spec::Interleaved(counts.to_vec(), vec![(0, addr, bytes, strides.to_vec())]).build()
}

fn error(layout: Result<VecLayout, Error>) -> Option<Error> {
    layout.err().map(coarse)
}

/// Returns the extent of the only block, or of adjacent entries.
fn extent(layout: &VecLayout) -> Extent {
    reaches(layout)[0].extent
}

fn run(addr: u64, len: u64) -> Run {
    Run { leaf: 0, addr, len }
}

#[test]
fn list_length() {
    assert_eq!(list(&[(0, MAX)]).unwrap().length(), MAX);
    assert_eq!(list(&[(0, MAX - 1), (5, 1)]).unwrap().length(), MAX);
    assert_eq!(error(list(&[(0, MAX), (5, 1)])), Some(OVERFLOW));
    assert_eq!(error(list(&[(0, MAX), (0, MAX)])), Some(OVERFLOW));
}

#[test]
fn list_refilled() {
    let entries = |list: &[(u64, u64)]| -> Vec<Entry> {
        list.iter()
            .map(|&(addr, length)| Entry::new(0, addr, length))
            .collect()
    };
    let mut layout = VecLayout::List(List::unfilled(Vec::new()));
    assert_eq!(layout.length(), 0);
    assert_eq!(layout.runs(0, 1).err(), Some(Error::Range));
    for (fill, length) in [
        (&[(7, 3), (1, 2)][..], Ok(5)),
        (&[(9, 4)], Ok(4)),
        (&[(9, 4), (0, 0)], Err(ZERO)),
        (&[(2, MAX)], Err(OVERFLOW)),
        (&[], Err(ZERO)),
        (&[(1, 1), (3, 1), (5, 1)], Ok(3)),
    ] {
        let Layout::List(list) = &mut layout else {
            unreachable!()
        };
        let result = list.refill(|storage| *storage = entries(fill));
        assert_eq!(result.map(|()| list.length()).map_err(coarse), length);
        let total = Entry::total(entries(fill).into_iter());
        assert_eq!(total.map_err(coarse), length);
        // A list that was refused has no bytes.
        assert_eq!(list.length(), length.unwrap_or(0));
        assert_eq!(
            layout.runs(0, layout.length() + 1).err(),
            Some(Error::Range)
        );
        assert_eq!(layout.resolve(0, 1).is_ok(), result.is_ok());
    }
    let runs: Vec<_> = layout.runs(1, 2).unwrap().collect();
    assert_eq!(runs, [run(3, 1), run(5, 1)]);
}

#[test]
fn list_addresses() {
    assert!(list(&[(MAX - 1, 1)]).is_ok());
    // The last address, alone and after all other bytes but one.
    assert!(list(&[(MAX, 1)]).is_ok());
    assert!(list(&[(1, MAX)]).is_ok());
    assert_eq!(error(list(&[(MAX, 2)])), Some(OVERFLOW));
    assert_eq!(error(list(&[(2, MAX)])), Some(OVERFLOW));
    // The first wrong entry is the reason.
    assert_eq!(error(list(&[(2, MAX), (0, 0)])), Some(OVERFLOW));
    assert_eq!(error(list(&[(0, 0), (2, MAX)])), Some(ZERO));
    assert_eq!(error(list(&[])), Some(ZERO));
}

#[test]
fn dimensions() {
    assert_eq!(error(block(&[], 0, 1, &[])), Some(ZERO));
    assert!(block(&[1; MAX_DIMS], 0, 1, &[1; MAX_DIMS]).is_ok());
    assert_eq!(
        error(block(&[1; MAX_DIMS + 1], 0, 1, &[1; MAX_DIMS])),
        Some(Error::TooManyDims)
    );
    assert_eq!(error(block(&[1, 0], 0, 1, &[1, 1])), Some(ZERO));
    assert_eq!(error(block(&[1], 0, 0, &[1])), Some(ZERO));
    assert_eq!(
        error(Spec::Interleaved(vec![1], vec![]).build()),
        Some(ZERO)
    );
}

#[test]
fn strides_of_absent_dimensions() {
    let layout = block(&[1, 2], 100, 1, &[1, 2, i64::MIN, i64::MAX, -1, 1, 2, 3]).unwrap();
    let extent = extent(&layout);
    assert_eq!((extent.start(), extent.last()), (100, 102));
    let Layout::Interleaved(layout) = layout else {
        unreachable!()
    };
    assert_eq!(layout.blocks()[0].stride(), &[1, 2, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn interleaved_length() {
    // Strides of zero, so that only the length grows.
    assert_eq!(block(&[MAX], 0, 1, &[0]).unwrap().length(), MAX);
    assert_eq!(error(block(&[MAX], 0, 2, &[0])), Some(OVERFLOW));
    let half = 1 << 32;
    assert_eq!(error(block(&[half, half], 0, 1, &[0, 0])), Some(OVERFLOW));
    assert_eq!(
        block(&[half, half - 1], 0, 1, &[0, 0]).unwrap().length(),
        MAX - half + 1
    );
    assert_eq!(
        error(block(&[MAX; MAX_DIMS], 0, MAX, &[0; MAX_DIMS])),
        Some(OVERFLOW)
    );
    let both = |bytes| vec![(0, 0, MAX - 1, vec![0]), (0, 0, bytes, vec![0])];
    assert!(Spec::Interleaved(vec![1], both(1)).build().is_ok());
    assert_eq!(
        error(Spec::Interleaved(vec![1], both(2)).build()),
        Some(OVERFLOW)
    );
}

#[test]
fn interleaved_addresses() {
    assert!(block(&[2], MAX - 10, 1, &[10]).is_ok());
    assert_eq!(error(block(&[2], MAX - 9, 1, &[10])), Some(OVERFLOW));
    assert!(block(&[2], MAX - 19, 10, &[10]).is_ok());
    assert_eq!(error(block(&[2], MAX - 18, 10, &[10])), Some(OVERFLOW));
    assert!(block(&[2], 10, 1, &[-10]).is_ok());
    assert_eq!(error(block(&[2], 9, 1, &[-10])), Some(OVERFLOW));
    assert_eq!(error(block(&[3], 19, 1, &[-10])), Some(OVERFLOW));
    // One dimension compensates the other, but not at every index.
    assert_eq!(error(block(&[2, 2], 9, 1, &[-10, 10])), Some(OVERFLOW));
    assert!(block(&[2, 2], 10, 1, &[-10, 10]).is_ok());
    // Only the product is too large.
    assert_eq!(error(block(&[5], 0, 1, &[i64::MAX])), Some(OVERFLOW));
    assert_eq!(
        error(block(&[1 << 40], MAX, 1, &[i64::MIN])),
        Some(OVERFLOW)
    );
    // A stride that is not used is never an error.
    assert!(block(&[1], 0, 1, &[i64::MIN]).is_ok());
    assert!(block(&[1], MAX, 1, &[i64::MAX]).is_ok());
}

#[test]
fn extreme_strides() {
    let layout = block(&[2], 1 << 63, 1, &[i64::MIN]).unwrap();
    let runs: Vec<_> = layout.runs(0, 2).unwrap().collect();
    assert_eq!(runs, [run(1 << 63, 1), run(0, 1)]);
    assert_eq!(error(block(&[3], 1 << 63, 1, &[i64::MIN])), Some(OVERFLOW));

    let layout = block(&[3], 0, 1, &[i64::MAX]).unwrap();
    let runs: Vec<_> = layout.runs(1, 2).unwrap().collect();
    assert_eq!(runs, [run((1 << 63) - 1, 1), run(MAX - 1, 1)]);

    // From end to end, and back.
    let layout = block(&[2, 3], 1 << 63, 1, &[i64::MIN, (1 << 62) - 1]).unwrap();
    let runs: Vec<_> = layout.runs(0, 6).unwrap().map(|run| run.addr).collect();
    let step = (1 << 62) - 1;
    let top = 1 << 63;
    assert_eq!(runs, [top, top + step, top + 2 * step, 0, step, 2 * step]);
}

#[test]
fn long_pieces() {
    // A block with a size that no stride can have.
    let layout = block(&[1, 2], 7, 1 << 62, &[i64::MIN, 1 << 62]).unwrap();
    let runs: Vec<_> = layout.runs(3, (1 << 63) - 4).unwrap().collect();
    assert_eq!(runs, [run(10, (1 << 63) - 4)]);

    let layout = list(&[(0, 1 << 63), (1 << 63, (1 << 63) - 1)]).unwrap();
    assert_eq!(
        layout.runs(0, MAX).unwrap().collect::<Vec<_>>(),
        [run(0, MAX)]
    );
    assert_eq!(layout.resolve((1 << 63) - 1, 2), Err(Error::Straddles));
}

#[test]
fn joined_pieces() {
    // The caller of `pieces()` counts rows, so a row of joined pieces takes a bounded time.
    let inner = list(&(0..4096).map(|at| (at, 1)).collect::<Vec<_>>()).unwrap();
    let outer = block(&[2], 0, 4096, &[0]).unwrap();
    let (mut rows, mut bytes) = (0, 0);
    let each = |_, row: Row| {
        (rows, bytes) = (rows + 1, bytes + row.len * row.count);
        Ok::<_, Error>(())
    };
    pieces(&outer, |_| Some((&inner, 0)), each).unwrap();
    assert_eq!(bytes, 2 * 4096);
    assert!(rows >= 2 * 4096 / 256, "{rows} rows");
}

#[test]
fn ranges() {
    let layout = list(&[(100, 10)]).unwrap();
    for (offset, len) in [(11, 0), (10, 1), (0, 11), (MAX, 1), (1, MAX), (MAX, MAX)] {
        assert_eq!(layout.runs(offset, len).err(), Some(Error::Range));
        assert_eq!(layout.resolve(offset, len), Err(Error::Range));
    }
    for offset in [0, 5, 10] {
        assert_eq!(layout.runs(offset, 0).unwrap().count(), 0);
        assert_eq!(layout.resolve(offset, 0), Err(ZERO));
    }
}

#[test]
fn resolve_keeps_to_blocks() {
    // The blocks are contiguous, but there are two.
    let layout = block(&[4], 100, 8, &[8]).unwrap();
    assert_eq!(layout.runs(4, 8).unwrap().count(), 1);
    assert_eq!(layout.resolve(4, 8), Err(Error::Straddles));
    assert_eq!(layout.resolve(8, 8), Ok(run(108, 8)));
}

#[test]
fn within_a_leaf() {
    let some = extent(&block(&[3], 100, 10, &[-20]).unwrap());
    assert_eq!((some.leaf(), some.start(), some.last()), (0, 60, 109));
    assert_eq!(some.check_within(60, 50), Ok(()));
    assert_eq!(some.check_within(0, MAX), Ok(()));
    assert_eq!(some.check_within(60, MAX), Ok(()));
    assert_eq!(some.check_within(61, 50), Err(Error::OutOfLeaf));
    assert_eq!(some.check_within(60, 49), Err(Error::OutOfLeaf));
    assert_eq!(some.check_within(110, 50), Err(Error::OutOfLeaf));
    assert_eq!(some.check_within(111, MAX), Err(Error::OutOfLeaf));
    assert_eq!(some.check_within(0, 0), Err(Error::OutOfLeaf));

    let top = extent(&list(&[(MAX - 1, 1)]).unwrap());
    // A leaf may contain the last address.
    assert_eq!(top.check_within(MAX - 1, 2), Ok(()));
    assert_eq!(top.check_within(MAX, 1), Err(Error::OutOfLeaf));

    let last = extent(&list(&[(MAX - 9, 10)]).unwrap());
    assert_eq!((last.start(), last.last()), (MAX - 9, MAX));
    assert_eq!(last.check_within(MAX - 9, 10), Ok(()));
    assert_eq!(last.check_within(MAX - 9, 9), Err(Error::OutOfLeaf));
    assert_eq!(last.check_within(1, MAX), Ok(()));
    assert_eq!(last.check_within(0, MAX), Err(Error::OutOfLeaf));
}

/// Address zero does not follow the last address.
#[test]
fn no_run_wraps() {
    let wanted = [run(MAX - 4, 5), run(0, 7)];
    let layout = list(&[(MAX - 4, 5), (0, 7)]).unwrap();
    assert_eq!(layout.runs(0, 12).unwrap().collect::<Vec<_>>(), wanted);
    let both = vec![(0, MAX - 4, 5, vec![0]), (0, 0, 7, vec![0])];
    let layout = Spec::Interleaved(vec![1], both).build().unwrap();
    assert_eq!(layout.runs(0, 12).unwrap().collect::<Vec<_>>(), wanted);
    // Two rows of blocks; the first one ends with the last address.
    let layout = block(&[2, 2], 1 << 63, 1, &[i64::MIN, i64::MAX]).unwrap();
    let wanted = [1 << 63, MAX, 0, (1 << 63) - 1].map(|addr| run(addr, 1));
    assert_eq!(layout.runs(0, 4).unwrap().collect::<Vec<_>>(), wanted);
}

fn indexed(addr: u64, unit: u64, len: u64, indices: &[u64]) -> Result<VecLayout, Error> {
    Spec::Indexed((0, addr, unit, len), indices.to_vec()).build()
}

#[test]
fn indexed_numbers() {
    assert_eq!(error(indexed(0, 1, 1, &[])), Some(ZERO));
    assert_eq!(error(indexed(0, 0, 1, &[1])), Some(ZERO));
    assert_eq!(error(indexed(0, 1, 0, &[1])), Some(ZERO));
    assert!(indexed(0, 1, 1, &[MAX]).is_ok());
    assert_eq!(error(indexed(1, 1, 1, &[MAX])), Some(OVERFLOW));
    assert_eq!(error(indexed(0, 1, 2, &[MAX, 0])), Some(OVERFLOW));
    assert!(indexed(0, 1, 2, &[MAX - 1, 0]).is_ok());
    assert!(indexed(MAX - 1, MAX, 1, &[0]).is_ok());
    assert_eq!(error(indexed(0, 1 << 33, 1, &[5, 1 << 31])), Some(OVERFLOW));
    let layout = indexed(0, 1 << 32, 1 << 32, &[u64::from(u32::MAX) - 1, 0]).unwrap();
    assert_eq!(layout.length(), 1 << 33);
    // The sum of the bytes overflows, although all are at one place.
    assert_eq!(error(indexed(0, 1, 1 << 63, &[0, 0])), Some(OVERFLOW));
    let extent = extent(&indexed(3, 10, 4, &[7, 2, 5]).unwrap());
    assert_eq!((extent.leaf(), extent.start(), extent.last()), (0, 23, 76));
}

#[test]
fn rows_across_all_addresses() {
    let rows = |layout: VecLayout| -> Vec<_> {
        let rows = layout.rows(0, layout.length()).unwrap();
        rows.map(|row| (row.addr, row.stride, row.count)).collect()
    };
    let half = 1 << 63;
    // Back and forth by a distance that no stride can have: no row.
    let there = rows(indexed(0, 1, 1, &[0, half, 0, half]).unwrap());
    assert!(there.iter().all(|row| row.2 <= 2), "{there:?}");
    assert_eq!(there.iter().map(|row| row.2).sum::<u64>(), 4);
    let there = rows(list(&[(0, 1), (half, 1), (0, 1), (half, 1)]).unwrap());
    assert!(there.iter().all(|row| row.2 <= 2), "{there:?}");
    // The largest and the smallest stride.
    let up = list(&[(0, 1), (half - 1, 1), (MAX - 1, 1)]).unwrap();
    assert_eq!(rows(up), [(0, i64::MAX, 3)]);
    let down = indexed(0, 1, 1, &[half, 0]).unwrap();
    assert_eq!(rows(down), [(half, i64::MIN, 2)]);
    let down = indexed(0, 1, 1, &[MAX - 1, half - 1, 0]).unwrap();
    assert_eq!(rows(down), [(MAX - 1, -i64::MAX, 3)]);
}

/// Lists whose entries have equal distances only modulo 2^64, rows of two, and what is refused.
#[test]
fn lists_at_the_ends() {
    let quarter = 1u64 << 62;
    let round = [
        (0, 1),
        (quarter, 1),
        (2 * quarter, 1),
        (3 * quarter, 1),
        (0, 1),
        (quarter, 1),
    ];
    assert_eq!(list(&round).unwrap().length(), 6);
    let mut back = round;
    back.reverse();
    assert_eq!(list(&back).unwrap().length(), 6);
    // Equal steps up to the end of the address space, and one that ends at its start; and down.
    let step = 1u64 << 57;
    let mut up: Vec<_> = (0..65)
        .map(|k| ((2 * quarter).wrapping_add(k * step), 1))
        .collect();
    assert_eq!(up[64], (0, 1));
    assert_eq!(list(&up).unwrap().length(), 65);
    up.reverse();
    assert_eq!(list(&up).unwrap().length(), 65);
    assert!(list(&[(5, 2), (9, 2), (9, 2), (9, 2), (8, 2)]).is_ok());
    assert!(list(&[(5, 2), (9, 2), (5, 2), (9, 3), (13, 3), (17, 2)]).is_ok());
    assert_eq!(error(list(&[(0, 0)])), Some(ZERO));
    assert_eq!(error(list(&[(0, 0), (0, 0)])), Some(ZERO));
    assert_eq!(error(list(&[(4, 2), (4, 0)])), Some(ZERO));
    assert_eq!(error(list(&[(4, 2), (6, 2), (8, 0), (8, 0)])), Some(ZERO));
    assert_eq!(error(list(&[(4, 2), (MAX, 2), (8, 0)])), Some(OVERFLOW));
    assert_eq!(error(list(&[(4, 2), (8, 0), (MAX, 2)])), Some(ZERO));
    assert_eq!(
        error(list(&[(MAX - 7, 4), (MAX - 3, 4), (MAX - 2, 4)])),
        Some(OVERFLOW)
    );
    assert_eq!(
        error(list(&[(0, MAX / 2), (0, MAX / 2), (0, MAX / 2)])),
        Some(OVERFLOW)
    );
}
