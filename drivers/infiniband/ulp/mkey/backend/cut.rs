// SPDX-License-Identifier: GPL-2.0

//! Cuts rows at the ends of memory blocks, which are mapped one at a time.

use crate::layout::Row;

/// The pieces of a row in order, cut at the ends of memory blocks; an iterator over [`Row`].
///
/// One result covers all successive pieces in one block. A piece in several blocks is returned in
/// parts.
///
/// It is an iterator and not a function that calls a closure, so that the compiler inlines the copy
/// of a row into the loop.
pub(super) struct Cut {
    /// The pieces that are left, or the rest of a piece that was cut.
    left: Row,
    /// The pieces after `left`.
    after: Option<Row>,
    /// The size of a block in bytes.
    size: u64,
}

impl Cut {
    /// Cuts `row` at the ends of blocks of `size` bytes, a power of two.
    #[inline(always)]
    pub(super) fn new(row: Row, size: u64) -> Self {
        Self {
            left: row,
            after: None,
            size,
        }
    }

    /// Returns the part of the first piece up to the end of the block, which is `room` bytes long.
    #[inline(always)]
    fn part(&mut self, room: u64) -> Row {
        let whole = self.left;
        if whole.count > 1 {
            self.after = Some(whole.skip(1));
        }
        self.left = Row {
            addr: whole.addr.wrapping_add(room),
            at: whole.at.wrapping_add(room),
            len: whole.len.wrapping_sub(room),
            count: 1,
            ..whole
        };
        Row {
            len: room,
            count: 1,
            ..whole
        }
    }
}

impl Iterator for Cut {
    type Item = Row;

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        if self.left.count == 0 {
            self.left = self.after.take()?;
        }
        let in_block = self.left.addr & self.size.wrapping_sub(1);
        let room = self.size.wrapping_sub(in_block);
        if self.left.len > room {
            return Some(self.part(room));
        }
        let count = fitting(&self.left, in_block, room.wrapping_sub(self.left.len));
        let whole = self.left;
        self.left = whole.skip(count);
        Some(Row { count, ..whole })
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
