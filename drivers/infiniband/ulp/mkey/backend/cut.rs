// SPDX-License-Identifier: GPL-2.0

//! Cuts rows at the ends of memory blocks, which are mapped one at a time.

use crate::layout::Row;
use kernel::prelude::*;

/// Visits the pieces of `row` in order. One visit covers all successive pieces in one block of
/// `size` bytes, a power of two. A piece in several blocks is visited in parts.
///
/// # Errors
///
/// Those of `visit`, which end the walk.
#[inline(always)]
pub(super) fn each_block(row: Row, size: u64, mut visit: impl FnMut(Row) -> Result) -> Result {
    let mask = size.wrapping_sub(1);
    let mut left = row;
    loop {
        let in_block = left.addr & mask;
        let room = size.wrapping_sub(in_block);
        let done = if left.len <= room {
            let count = fitting(&left, in_block, room.wrapping_sub(left.len));
            visit(Row { count, ..left })?;
            count
        } else {
            each_part(Row { count: 1, ..left }, mask, &mut visit)?;
            1
        };
        if done == left.count {
            return Ok(());
        }
        left = left.skip(done);
    }
}

/// Returns the number of successive pieces in the block of the first one. The first piece starts
/// `in_block` bytes after the start of the block and ends `room` bytes before its end.
#[inline(always)]
fn fitting(row: &Row, in_block: u64, room: u64) -> u64 {
    if row.count == 1 {
        return 1;
    }
    let distance = row.stride.unsigned_abs();
    let room = if row.stride < 0 { in_block } else { room };
    if distance > room {
        return 1;
    }
    // If all pieces are at one place, all are in the block.
    room.checked_div(distance)
        .map_or(row.count, |more| row.count.min(more.saturating_add(1)))
}

/// Visits the parts of one piece.
#[inline(always)]
fn each_part(mut piece: Row, mask: u64, visit: &mut impl FnMut(Row) -> Result) -> Result {
    loop {
        let room = (mask - (piece.addr & mask)).saturating_add(1);
        let len = piece.len.min(room);
        visit(Row { len, ..piece })?;
        piece.len -= len;
        if piece.len == 0 {
            return Ok(());
        }
        piece.addr = piece.addr.wrapping_add(len);
        piece.at = piece.at.wrapping_add(len);
    }
}
