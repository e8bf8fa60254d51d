// SPDX-License-Identifier: GPL-2.0

//! The copy of records: several pieces at a place, one place after another.

use super::{
    base::Pages,
    scattered::{steps, Access, Any, CopyPlace, One},
};
use crate::{
    backend::{
        copy_row::Moved,
        payload::{Direction, Payload},
    },
    layout::{Block, Records, Row},
};
use core::mem::size_of;
use kernel::{page::PAGE_SIZE, prelude::*};

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
        let access = Access {
            row,
            span,
            step: bytes,
            delta: delta.wrapping_add(records.offset).wrapping_add(lowest),
        };
        match (payload.direction(), records.len) {
            (Direction::ToMemory, 8) => {
                self.copy_each_record::<u64, true>(records, lowest, &access, payload)
            }
            (Direction::ToMemory, 16) => {
                self.copy_each_record::<[u64; 2], true>(records, lowest, &access, payload)
            }
            (Direction::ToMemory, 64) => {
                self.copy_each_record::<[u64; 8], true>(records, lowest, &access, payload)
            }
            (Direction::FromMemory, 8) => {
                self.copy_each_record::<u64, false>(records, lowest, &access, payload)
            }
            (Direction::FromMemory, 16) => {
                self.copy_each_record::<[u64; 2], false>(records, lowest, &access, payload)
            }
            (Direction::FromMemory, 64) => {
                self.copy_each_record::<[u64; 8], false>(records, lowest, &access, payload)
            }
            _ => (0..records.count).try_for_each(|index| {
                let far = (records.far as u64).wrapping_mul(index);
                let at = row.at.wrapping_add(bytes.wrapping_mul(index));
                self.copy_record::<Any>(records, far, &Row { at, ..row }, delta, payload)
            }),
        }
    }

    /// Copies the pieces of one record one by one. The record is `far` bytes after the first one;
    /// `row` has the position of its first piece in the payload.
    fn copy_record<C: CopyPlace>(
        &mut self,
        records: &Records<'_>,
        far: u64,
        row: &Row,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result {
        let access = Access {
            row: *row,
            span: row.len,
            step: row.len,
            delta: delta.wrapping_add(records.offset).wrapping_add(far),
        };
        let places = records.blocks.iter().map(Block::addr);
        self.copy_all::<C>(places, &access, payload)
    }

    /// Copies the pieces of records, which are as long as a `T`. A place of `access` is a record:
    /// the address of its lowest byte, `lowest` in the first one. The rest is as for
    /// [`Self::copy_all`].
    ///
    /// One test finds out whether all pieces of a record are in the mapped page.
    #[inline(always)]
    fn copy_each_record<T: Moved, const TO_MEMORY: bool>(
        &mut self,
        records: &Records<'_>,
        lowest: u64,
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let mut page = self.window(access);
        let mut packet = payload.at(access.row.at);
        for far in steps(0, records.far, records.count) {
            let mut in_page = far.wrapping_sub(page.start);
            if in_page >= page.starts {
                let is_mapped = self.map_record(far, access)?;
                if !is_mapped {
                    let at = payload.position(packet);
                    let delta = access.delta.wrapping_sub(records.offset);
                    let delta = delta.wrapping_sub(lowest);
                    let row = Row { at, ..access.row };
                    self.copy_record::<One<T, TO_MEMORY>>(records, far, &row, delta, payload)?;
                }
                page = self.window(access);
                if !is_mapped {
                    packet = packet.wrapping_add(access.step as usize);
                    continue;
                }
                in_page = far.wrapping_sub(page.start);
            }
            let record = page.at.as_ptr().wrapping_add(in_page as usize);
            for block in records.blocks {
                let memory = record.wrapping_add(block.addr().wrapping_sub(lowest) as usize);
                // SAFETY: The page is mapped, and the record begins so far before the end of the
                // page that the page contains it. By the caller, the payload was checked. A packet
                // is never part of an MR's memory.
                unsafe { One::<T, TO_MEMORY>::copy(payload, memory, packet, &access.row) };
                packet = packet.wrapping_add(size_of::<T>());
            }
        }
        Ok(())
    }

    /// Maps the page of the record at `place` and returns `true`; returns `false` if it is in several
    /// pages.
    #[inline(never)]
    fn map_record(&mut self, place: u64, access: &Access) -> Result<bool> {
        let addr = place.wrapping_add(access.delta);
        let size = PAGE_SIZE as u64;
        let in_page = addr & size.wrapping_sub(1);
        if access.span > size.wrapping_sub(in_page) {
            return Ok(false);
        }
        self.map_pinned(addr.wrapping_sub(in_page))?;
        Ok(true)
    }
}
