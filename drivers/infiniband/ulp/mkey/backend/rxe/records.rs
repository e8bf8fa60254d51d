// SPDX-License-Identifier: GPL-2.0

//! The copy of records: several pieces at a place, one place after another.

use super::{
    base::Pages,
    place::{Any, CopyPlace, Large, Lines, One},
    scattered::{steps, Access, Window},
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
    /// Copies between the records of an MR with pinned pages and `payload`. `delta` is added to their
    /// addresses.
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
            span,
            step: bytes,
            delta: delta.wrapping_add(records.offset).wrapping_add(lowest),
        };
        let (records, access) = ((records, lowest), &access);
        match (payload.direction(), records.0.len) {
            (Direction::ToMemory, 8) => {
                self.copy_each_record::<One<u64, true>>(records, access, payload)
            }
            (Direction::ToMemory, 16) => {
                self.copy_each_record::<One<[u64; 2], true>>(records, access, payload)
            }
            (Direction::ToMemory, 64) => {
                self.copy_each_record::<One<[u64; 8], true>>(records, access, payload)
            }
            (Direction::FromMemory, 8) => {
                self.copy_each_record::<One<u64, false>>(records, access, payload)
            }
            (Direction::FromMemory, 16) => {
                self.copy_each_record::<One<[u64; 2], false>>(records, access, payload)
            }
            (Direction::FromMemory, 64) => {
                self.copy_each_record::<One<[u64; 8], false>>(records, access, payload)
            }
            (Direction::ToMemory, len @ 65..) => {
                if is_small(len) {
                    self.copy_each_record::<Lines<true>>(records, access, payload)
                } else {
                    self.copy_each_record::<Large<true>>(records, access, payload)
                }
            }
            (Direction::FromMemory, len @ 65..) => {
                if is_small(len) {
                    self.copy_each_record::<Lines<false>>(records, access, payload)
                } else {
                    self.copy_each_record::<Large<false>>(records, access, payload)
                }
            }
            _ => self.copy_each_record::<Any>(records, access, payload),
        }
    }

    /// Copies the pieces of records. A place of `access` is a record: the address of its lowest byte,
    /// which is that of the given block in the first one. The rest is as for [`Self::copy_close`].
    ///
    /// One test finds out whether all pieces of a record are in the mapped page.
    #[inline(always)]
    fn copy_each_record<C: CopyPlace>(
        &mut self,
        (records, lowest): (&Records<'_>, u64),
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = Window::NONE;
        let mut packet = payload.at(access.row.at);
        let len = access.row.len as usize;
        for far in steps(0, records.far, records.count) {
            let mut in_page = far.wrapping_sub(page.start);
            if in_page >= page.starts {
                page = self.window(far, access);
                in_page = far.wrapping_sub(page.start);
                if in_page >= page.starts {
                    self.copy_record::<C>((records, lowest), far, packet, access, payload)?;
                    page = Window::NONE;
                    packet = packet.wrapping_add(access.step as usize);
                    continue;
                }
            }
            let record = page.at.as_ptr().wrapping_add(in_page as usize);
            let record = record.wrapping_sub(lowest as usize);
            for block in records.blocks {
                let memory = record.wrapping_add(block.addr() as usize);
                // SAFETY: The page is mapped, and the record begins so far before the end of the
                // page that the page contains it. By the caller, the payload was checked. A packet
                // is never part of an MR's memory.
                unsafe { C::copy(payload, memory, packet, &access.row) };
                packet = packet.wrapping_add(len);
            }
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
            span: row.len,
            step: row.len,
            delta: access.delta.wrapping_sub(lowest).wrapping_add(far),
        };
        let places = records.blocks.iter().map(Block::addr);
        self.copy_close::<C>(places, &access, payload)
    }
}
