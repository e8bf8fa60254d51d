// SPDX-License-Identifier: GPL-2.0

//! The meaning of rows: the byte of memory for each byte of the access, and the guarantees of an
//! order.

use std::collections::HashMap;

use ib_mkey_layout::{
    Block, Cursor, Entry, Error, Layout, List, Order, Pieces, Places, Row, Walker,
};

use super::{Byte, VecLayout};

pub const ORDERS: [Order; 3] = [Order::Any, Order::Leaf, Order::Strict];

/// Checks that `rows`, in this order, are the bytes `wanted`; returns their number.
pub fn check_rows(rows: impl Iterator<Item = Row>, wanted: &[Byte], order: Order) -> usize {
    let mut seen = vec![false; wanted.len()];
    // The last position at which each byte of memory was reached.
    let mut last = HashMap::new();
    let mut next = 0;
    let mut number = 0;
    for row in rows {
        assert!(row.count > 0 && row.len > 0, "{row:?}");
        number += 1;
        for piece in 0..row.count {
            let at = row.at as usize + row.step as usize * piece as usize;
            // In 128 bits nothing wraps, so a wrapped address is not found.
            let addr = i128::from(row.addr) + i128::from(row.stride) * i128::from(piece);
            for byte in 0..row.len as usize {
                let (leaf, wanted_addr, _) = wanted[at + byte];
                let addr = u64::try_from(addr).unwrap() + byte as u64;
                assert_eq!((row.leaf, addr), (leaf, wanted_addr), "{row:?} {piece}");
                assert!(!std::mem::replace(&mut seen[at + byte], true));
                match order {
                    Order::Any => {}
                    Order::Leaf => {
                        let before = last.insert((leaf, addr), at + byte);
                        assert!(before.is_none_or(|before| before < at + byte), "{row:?}");
                    }
                    Order::Strict => assert_eq!(at + byte, next, "{row:?}"),
                }
                next += 1;
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    number
}

/// Returns the rows of some pieces.
fn rows_of_pieces(pieces: Pieces<'_>) -> Vec<Row> {
    match pieces {
        Pieces::Row(row) => vec![row],
        Pieces::Plane(plane) => {
            assert!(plane.rows > 1 && plane.row.stride >= 0, "{plane:?}");
            assert!(plane.row.count == 1 || plane.row.step == plane.row.len);
            plane.rows().collect()
        }
        Pieces::Records(records) => {
            let (lowest, bytes) = records.span().unwrap();
            let places = records.blocks.iter().map(Block::addr);
            assert_eq!(places.clone().min(), Some(lowest));
            // The end of the highest block may be beyond 64 bits.
            assert_eq!(places.max(), Some(lowest + (bytes - records.len)));
            records.rows().collect()
        }
        Pieces::Scattered(scattered) => {
            let count = scattered.places.count();
            assert!(count > 1 && scattered.places.get(count).is_none());
            let rows: Vec<Row> = scattered.rows().collect();
            if let Places::U32(_, scale) | Places::U64(_, scale) = scattered.places {
                let within = |row: &Row| {
                    row.addr >= scale.start && scale.last - row.addr >= scattered.len - 1
                };
                assert!(rows.iter().all(within), "{scale:?} {rows:?}");
            }
            rows
        }
    }
}

/// Takes rows and scattered pieces; returns these as rows, too.
struct Pieced;

impl<'a> Walker<'a> for Pieced {
    type Output = Vec<Row>;

    fn walk(self, mut rows: impl Cursor<'a>) -> Vec<Row> {
        let mut all = Vec::new();
        while let Some(pieces) = rows.next_pieces() {
            all.extend(rows_of_pieces(pieces));
            assert_eq!(all.last().map(|row| row.leaf), Some(pieces.leaf()));
        }
        all
    }
}

/// Checks the rest of the entry that `offset` is in. A list whose entries have one length returns a
/// rest for each offset within the list.
fn check_rest(list: &List<Vec<Entry>>, bytes: &[Byte], offset: usize) {
    let rest = list.rest(offset as u64);
    let Some(from) = bytes.get(offset..).filter(|from| !from.is_empty()) else {
        assert_eq!(rest, None);
        return;
    };
    let entry: Vec<_> = from.iter().take_while(|byte| byte.2 == from[0].2).collect();
    let length = list.entries()[0].length();
    match rest {
        Some(rest) => {
            assert_eq!(rest.len, entry.len() as u64);
            for (byte, addr) in entry.into_iter().zip(rest.addr..=u64::MAX) {
                assert_eq!((byte.0, byte.1), (rest.leaf, addr));
            }
        }
        None => assert!(list.entries().iter().any(|entry| entry.length() != length)),
    }
}

/// Checks the rows of `len` bytes from `offset` on, in each order.
pub fn check(layout: &VecLayout, bytes: &[Byte], offset: usize, len: usize) {
    if let Layout::List(list) = layout {
        check_rest(list, bytes, offset);
    }
    for order in ORDERS {
        let rows = layout.rows(offset as u64, len as u64, order);
        match bytes.get(offset..offset + len) {
            Some(wanted) => {
                let rows = rows.unwrap();
                check_rows(rows, wanted, order);
                let pieces = layout.walk(offset as u64, len as u64, order, Pieced);
                match pieces {
                    Ok(pieces) => _ = check_rows(pieces.into_iter(), wanted, order),
                    Err(error) => assert_eq!((len, error), (0, Error::Zero)),
                }
            }
            None => {
                assert_eq!(rows.map(|_| ()), Err(Error::Range));
                let pieces = layout.walk(offset as u64, len as u64, order, Pieced);
                assert_eq!(pieces, Err(Error::Range));
            }
        }
        if let Some(row) = layout.only_row(offset as u64, len as u64) {
            check_rows([row].into_iter(), &bytes[offset..offset + len], order);
        }
        if let Some(pieces) = layout.only_pieces(offset as u64, len as u64) {
            let rows = rows_of_pieces(pieces).into_iter();
            check_rows(rows, &bytes[offset..offset + len], order);
        }
    }
}
