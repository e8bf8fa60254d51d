// SPDX-License-Identifier: GPL-2.0

//! The copy of blocks at the places that indices give. Most blocks are in another page than the
//! block before.
//!
//! A block of a common size that begins at a multiple of its size is in one page, so no test for
//! the end of the page is needed. If the blocks are in few pages, these pages are looked up once
//! for a packet. If the blocks are so far apart that most are not in the cache, many of them are
//! prefetched at a time.

use super::{page_table::PageTable, pages::Pages, pinned::PAGE, scattered::Access};
use crate::{
    backend::{
        copy_places::{copy_ahead, copy_each},
        moved::Moved,
        payload::{Direction, Payload},
    },
    layout::Scale,
};
use core::mem::size_of;
use kernel::prelude::*;

/// Returns `true` if all pieces of `access` begin at multiples of `T`'s size in the pages of the
/// MR, and a `T` is as long as a piece.
#[inline(always)]
fn are_aligned<T>(scale: &Scale, access: &Access) -> bool {
    const { assert!(size_of::<T>().is_power_of_two() && size_of::<T>() as u64 <= PAGE) };
    let low = size_of::<T>() as u64 - 1;
    access.row.len == low + 1 && (scale.unit | access.delta) & low == 0
}

impl Pages<'_> {
    /// Copies between `payload` and the pieces of `indices`, if they have a common size at which
    /// they are aligned. Returns [`None`] otherwise. The place of index 0 is that of `access`,
    /// whose row is one piece. [`Payload::check`] has accepted all of them.
    ///
    /// # Errors
    ///
    /// `EFAULT` for a place outside of the MR.
    #[inline(always)]
    pub(super) fn copy_indexed<I: Copy + Into<u64>>(
        &mut self,
        (indices, scale): (&[I], &Scale),
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Option<Result> {
        let from = (indices, scale);
        Some(if are_aligned::<u64>(scale, access) {
            self.copy_aligned::<u64, I>(from, access, payload)
        } else if are_aligned::<[u64; 8]>(scale, access) {
            self.copy_aligned::<[u64; 8], I>(from, access, payload)
        } else if are_aligned::<[u64; 2]>(scale, access) {
            self.copy_aligned::<[u64; 2], I>(from, access, payload)
        } else {
            return None;
        })
    }

    /// Copies as [`Self::copy_indexed`] does, if the pieces [`are_aligned`].
    #[inline(never)]
    fn copy_aligned<T: Moved, I: Copy + Into<u64>>(
        &mut self,
        (indices, scale): (&[I], &Scale),
        access: &Access,
        payload: &mut Payload<'_>,
    ) -> Result {
        let packet = payload.at(access.row.at);
        let writes = payload.direction() == Direction::ToMemory;
        let offset = |index: I| {
            let far: u64 = index.into();
            far.wrapping_mul(scale.unit).wrapping_add(access.delta)
        };
        // Converts an address of the layout to an offset from the first page of the MR.
        let end = |place: u64| place.wrapping_sub(scale.addr).wrapping_add(access.delta);
        // With fewer than two pieces in a page, a look-up for each piece takes less time.
        let most = indices.len() / 2;
        if let Some(near) = self.table.near(end(scale.start), end(scale.last), most) {
            let locate = |index| Ok(near.place(offset(index)));
            // SAFETY: By the caller, and by the type invariant of `near`. A place at a multiple of
            // a size that divides the size of a page is followed by as many bytes of the page.
            return unsafe {
                if writes {
                    copy_each::<T, I, Error, true>(indices, packet, locate)
                } else {
                    copy_each::<T, I, Error, false>(indices, packet, locate)
                }
            };
        }
        let is_wide = PageTable::is_wide(end(scale.start), end(scale.last));
        let locate = |index| {
            let offset = offset(index);
            Ok((self.table.map(offset)?, (offset % PAGE) as usize))
        };
        // SAFETY: As above. The page is mapped until the next one is, or, if it is wide, as long as
        // the MR keeps it.
        unsafe {
            match (is_wide, writes) {
                (false, false) => copy_each::<T, I, Error, false>(indices, packet, locate),
                (false, true) => copy_each::<T, I, Error, true>(indices, packet, locate),
                (true, false) => copy_ahead::<T, I, Error, false>(indices, packet, locate),
                (true, true) => copy_ahead::<T, I, Error, true>(indices, packet, locate),
            }
        }
    }
}
