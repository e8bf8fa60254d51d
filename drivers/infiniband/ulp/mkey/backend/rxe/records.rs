// SPDX-License-Identifier: GPL-2.0

//! The copy of records. A record is the pieces of several blocks in one repetition.

use super::{
    pages::Pages,
    place::{Any, CopyPlace, Long, One, Short},
    scattered::{by_size, starts, steps, Access, Window},
};
use crate::{
    backend::{
        copy_row::is_small,
        payload::{Direction, Payload},
    },
    layout::{Block, Records, Row},
};
use kernel::prelude::*;

impl Pages<'_> {
    /// Copies between the records of an MR with pinned pages and `payload`. `delta` is added to
    /// their addresses.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy_far`].
    #[inline(never)]
    pub(super) fn copy_blocks(
        &mut self,
        records: &Records<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let bytes = records.record_bytes();
        let row = Row {
            at: records.at,
            ..Row::of(records.leaf, 0, records.len)
        };
        payload.check(&Row {
            len: bytes,
            step: bytes,
            count: records.count,
            ..row
        })?;
        // An empty record has no first place.
        let (lowest, span) = records.span().ok_or(EFAULT)?;
        let delta = delta.wrapping_sub(self.table.first());
        let access = Access {
            row,
            starts: starts(span),
            step: bytes,
            delta: delta.wrapping_add(records.offset).wrapping_add(lowest),
        };
        let (records, access) = ((records, lowest), &access);
        by_size!(self.copy_each_record, One, records, access, payload)
    }

    /// Copies the pieces of records. A place of `access` is the lowest byte of a record. `lowest`
    /// is the address of that byte in the first record. The caller has checked the payload as for
    /// [`Self::copy_close`].
    #[inline(always)]
    fn copy_each_record<C: CopyPlace>(
        &mut self,
        (records, lowest): (&Records<'_>, u64),
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let (from, row) = ((records, lowest), &access.row);
        if C::HAS_FOURS {
            if let [a, b, c, d] = records.blocks {
                let places = [a, b, c, d].map(|block| block.addr() as usize);
                let copy = |payload: &mut Payload<'_>, record, packet| {
                    // SAFETY: By `copy_whole()`.
                    unsafe { C::copy_four(payload, record, places, packet, row) };
                };
                // SAFETY: The closure copies the blocks of one record.
                return unsafe { self.copy_whole::<C>(from, access, payload, copy) };
            }
        }
        let copy = |payload: &mut Payload<'_>, record: *mut u8, mut packet: *mut u8| {
            for block in records.blocks {
                let memory = record.wrapping_add(block.addr() as usize);
                // SAFETY: By `copy_whole()`.
                unsafe { C::copy(payload, memory, packet, row) };
                packet = packet.wrapping_add(row.len as usize);
            }
        };
        // SAFETY: As above.
        unsafe { self.copy_whole::<C>(from, access, payload, copy) }
    }

    /// Copies records as [`Self::copy_each_record`] does. If a record is in one page, which one
    /// test finds out, one call of `copy` copies it.
    ///
    /// `copy` gets the payload, the address at which a block of address zero would be, and the
    /// address in the packet.
    ///
    /// # Safety
    ///
    /// `copy` must access only the bytes of the blocks of a record, and the `access.step` bytes of
    /// the packet. They are valid for reads and writes.
    #[inline(always)]
    unsafe fn copy_whole<C: CopyPlace>(
        &mut self,
        (records, lowest): (&Records<'_>, u64),
        access: &Access,
        payload: &mut Payload<'_>,
        copy: impl Fn(&mut Payload<'_>, *mut u8, *mut u8),
    ) -> Result {
        let mut page = Window::NONE;
        let mut packet = payload.at(access.row.at);
        for far in steps(0, records.far, records.count) {
            let mut in_page = far.wrapping_sub(page.start);
            if in_page >= page.starts {
                page = self.window(far, access);
                in_page = far.wrapping_sub(page.start);
            }
            if in_page < page.starts {
                // The page is mapped, and the record begins so far before the end of the page that
                // the page contains it. By the caller, the payload was checked. A packet is never
                // part of an MR's memory.
                let record = page.at.as_ptr().wrapping_add(in_page as usize);
                copy(payload, record.wrapping_sub(lowest as usize), packet);
            } else {
                self.copy_record::<C>((records, lowest), far, packet, access, payload)?;
                page = Window::NONE;
            }
            packet = packet.wrapping_add(access.step as usize);
        }
        Ok(())
    }

    /// Copies the pieces of the record at place `far` to or from `packet` one by one. As for
    /// [`Self::copy_each_record`].
    #[inline(never)]
    fn copy_record<C: CopyPlace>(
        &mut self,
        (records, lowest): (&Records<'_>, u64),
        far: u64,
        packet: *mut u8,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let row = Row {
            at: payload.position(packet),
            ..access.row
        };
        let access = Access {
            row,
            starts: starts(row.len),
            step: row.len,
            delta: access.delta.wrapping_sub(lowest).wrapping_add(far),
        };
        let places = records.blocks.iter().map(Block::addr);
        self.copy_close::<C>(places, &access, payload)
    }
}
