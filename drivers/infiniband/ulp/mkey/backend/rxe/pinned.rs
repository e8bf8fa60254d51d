// SPDX-License-Identifier: GPL-2.0

//! Pinned pages: the copy of pieces, page by page.

use super::{page_table::PageTable, pages::Pages};
use crate::{
    backend::{cut::Cut, payload::Payload},
    layout::Row,
};
use kernel::{page::PAGE_SIZE, prelude::*};

/// The number of bytes of a page.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;

/// Pieces of at least this size are copied one by one, because few of them are in one page.
const MANY: u64 = PAGE / 8;

/// Returns `true` if `scattered.rs` has a loop for pieces of `len` bytes.
#[inline(always)]
fn has_loop(len: u64) -> bool {
    matches!(len, 8 | 16 | 64) || len >= MANY
}

/// Copies one piece, `row`, page by page.
///
/// # Errors
///
/// `EFAULT` for an address outside of the MR, and for a piece outside of the payload.
#[inline(always)]
pub(super) fn copy_piece(table: &mut PageTable<'_>, row: &Row, payload: &Payload<'_>) -> Result {
    payload.check_piece(row)?;
    let mut offset = row.addr.wrapping_sub(table.first());
    let (mut packet, mut left) = (payload.at(row.at), row.len);
    loop {
        let in_page = offset % PAGE;
        let bytes = left.min(PAGE.wrapping_sub(in_page));
        let page = table.map(offset)?;
        // SAFETY: The page is mapped, and the bytes are in it. The payload was checked. A packet is
        // never part of an MR's memory.
        unsafe { payload.copy_bytes(page.add(in_page as usize), packet, bytes as usize) };
        left = left.wrapping_sub(bytes);
        if left == 0 {
            return Ok(());
        }
        offset = offset.wrapping_add(bytes);
        packet = packet.wrapping_add(bytes as usize);
    }
}

/// The smallest distance of pieces that are copied one by one. Few of them are in one page, so
/// finding the number of pieces in each page would take longer.
const FAR: u64 = PAGE / 16;

impl Pages<'_> {
    /// Copies between the pieces of `row` and `payload`, if entries of the table are whole pages.
    ///
    /// # Errors
    ///
    /// As for [`copy_piece`].
    #[inline(always)]
    pub(super) fn copy_pages(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        if row.count == 1 {
            return copy_piece(&mut self.table, &row, payload);
        }
        if row.stride.unsigned_abs() >= FAR && has_loop(row.len) {
            return self.copy_far(&Row { ..row }, payload);
        }
        self.copy_near(Row { ..row }, payload)
    }

    /// Copies as [`Self::copy_pages`] does, page by page.
    #[inline(never)]
    pub(super) fn copy_near(&mut self, row: Row, payload: &mut Payload<'_>) -> Result {
        payload.check(&row)?;
        let offset = row.addr.wrapping_sub(self.table.first());
        for row in Cut::new(
            Row {
                addr: offset,
                ..row
            },
            PAGE,
        ) {
            let page = self.table.map(row.addr)?;
            // SAFETY: The page is mapped and contains all pieces of the row. They are pieces of the
            // row that was checked. A packet is never part of an MR's memory.
            unsafe { payload.copy(page.add((row.addr % PAGE) as usize), &row) };
        }
        Ok(())
    }
}
