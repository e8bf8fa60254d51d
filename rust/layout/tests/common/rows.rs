// SPDX-License-Identifier: GPL-2.0

//! The meaning of rows: the byte of memory for each byte of the access, in order.

use ib_mkey_layout::{Error, Row, Segment};

use super::{Byte, VecLayout};

/// Checks that `rows` are the bytes `wanted`.
fn check_rows(rows: impl Iterator<Item = Row>, wanted: &[Byte]) {
    let mut next = 0;
    for row in rows {
        assert!(row.count > 0 && row.len > 0, "{row:?}");
        assert_eq!((row.at, row.step), (next as u64, row.len));
        for piece in 0..row.count {
            // In 128 bits nothing wraps, so a wrapped address is not found.
            let addr = i128::from(row.addr) + i128::from(row.stride) * i128::from(piece);
            let addr = u64::try_from(addr).unwrap();
            for byte in 0..row.len {
                let (leaf, wanted_addr, _) = wanted[next];
                assert_eq!(
                    (row.leaf, addr + byte),
                    (leaf, wanted_addr),
                    "{row:?} {piece}"
                );
                next += 1;
            }
        }
    }
    assert_eq!(next, wanted.len());
}

/// Checks that no two of `pieces` share bytes, because these may be written in any order.
fn check_apart(pieces: &[Row]) {
    let mut ranges: Vec<_> = pieces.iter().map(|row| (row.addr, row.len)).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(addr, len), (next, _)] = pair else {
            unreachable!()
        };
        assert!(next - addr >= *len, "{pair:?}");
    }
}

/// Returns the segments of an access as rows.
fn segments(layout: &VecLayout, offset: u64, len: u64) -> Vec<Row> {
    let mut all = Vec::new();
    let mut rows = layout.rows(offset, len).unwrap();
    while let Some(segment) = rows.next_segment() {
        let leaf = segment.leaf();
        match segment {
            Segment::Row(row) => all.push(row),
            Segment::Rows(rows) => {
                let (len, mut next) = (rows.piece_len(), None);
                for row in rows {
                    assert_eq!((row.len, row.at), (len, next.unwrap_or(row.at)));
                    next = Some(row.at + row.len * row.count);
                    all.push(row);
                }
            }
            // The pieces in the order of the access. Their order in memory is tested below.
            Segment::Records(rows) => {
                let before = all.len();
                for row in rows {
                    let pieces = (0..row.count).map(|piece| {
                        let Row { addr, at, len, .. } = row.skip(piece);
                        Row {
                            at,
                            ..Row::of(leaf, addr, len)
                        }
                    });
                    all.extend(pieces);
                }
                all[before..].sort_by_key(|row| row.at);
                check_apart(&all[before..]);
            }
            Segment::List(list) => {
                let (mut at, len, count) = (list.at, list.len, list.pieces.count());
                assert!(count > 1);
                for piece in 0..count {
                    let piece = list.pieces.get(piece).unwrap();
                    assert_eq!((piece.leaf, piece.len), (leaf, len));
                    let row = Row::of(leaf, piece.addr, len);
                    all.push(Row { at, ..row });
                    at += len;
                }
            }
        }
        assert_eq!(all.last().map(|row| row.leaf), Some(leaf));
    }
    all
}

/// Checks the rows of `len` bytes from `offset` on, and the segments.
pub fn check(layout: &VecLayout, bytes: &[Byte], offset: usize, len: usize) {
    let rows = layout.rows(offset as u64, len as u64);
    match bytes.get(offset..offset + len) {
        Some(wanted) => {
            let rows: Vec<Row> = rows.unwrap().collect();
            if let Some(row) = layout.only_row(offset as u64, len as u64) {
                assert_eq!(rows, [row]);
            }
            check_rows(rows.into_iter(), wanted);
            check_rows(
                segments(layout, offset as u64, len as u64).into_iter(),
                wanted,
            );
        }
        None => {
            assert_eq!(rows.map(|_| ()), Err(Error::Range));
            assert_eq!(layout.only_row(offset as u64, len as u64), None);
        }
    }
}
