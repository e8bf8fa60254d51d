// SPDX-License-Identifier: GPL-2.0

//! The copy of blocks at the places that indices give, most of which are in another page than the one
//! before.
//!
//! A block of a common size that begins at a multiple of its size is in one page, so no test for the
//! end of the page is needed. If the blocks are in few pages, these are looked up once for a packet.

use super::{
    base::{Pages, PAGE},
    scattered::Access,
};
use crate::{
    backend::{
        moved::Moved,
        payload::{Direction, Payload},
    },
    layout::Scale,
};
use core::mem::size_of;
use kernel::prelude::*;

/// Returns `true` if all pieces of `access` begin at multiples of `T`'s size in the pages of the MR, and
/// a `T` is as long as a piece.
#[inline(always)]
fn are_aligned<T>(scale: &Scale, access: &Access) -> bool {
    const { assert!(size_of::<T>().is_power_of_two() && size_of::<T>() as u64 <= PAGE) };
    let low = size_of::<T>() as u64 - 1;
    access.row.len == low + 1 && (scale.unit | access.delta) & low == 0
}

impl Pages<'_> {
    /// Copies between `payload` and the pieces of `indices`, if they have a common size at which they
    /// are aligned. Returns [`None`] otherwise. The place of index 0 is that of `access`, whose row
    /// is one piece. [`Payload::check`] has accepted all of them.
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

    /// Copies pieces, which [`are_aligned`]. As for [`Self::copy_indexed`].
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
        // An address of the layout, counted from the first page of the MR.
        let end = |place: u64| place.wrapping_sub(scale.addr).wrapping_add(access.delta);
        // If there are fewer pieces in a page, a look-up for each piece takes less.
        let most = indices.len() / 2;
        if let Some(near) = self.table.near(end(scale.start), end(scale.last), most) {
            let locate = |index| Ok(near.place(offset(index)));
            // SAFETY: By the caller, and by the type invariant of `near`.
            return unsafe { copy_all::<T, I>(indices, packet, writes, locate) };
        }
        let locate = |index| {
            let offset = offset(index);
            Ok((self.table.map(offset)?, (offset % PAGE) as usize))
        };
        // SAFETY: By the caller. The page is mapped until the next one is.
        unsafe { copy_all::<T, I>(indices, packet, writes, locate) }
    }
}

/// Copies as [`copy_each`] does, to the memory if `writes`.
///
/// # Errors
///
/// Those of `locate`.
///
/// # Safety
///
/// As for [`copy_each`].
#[inline(always)]
unsafe fn copy_all<T: Moved, I: Copy>(
    indices: &[I],
    packet: *mut u8,
    writes: bool,
    locate: impl FnMut(I) -> Result<(*mut u8, usize)>,
) -> Result {
    // SAFETY: By the safety requirements.
    unsafe {
        if writes {
            copy_each::<T, I, true>(indices, packet, locate)
        } else {
            copy_each::<T, I, false>(indices, packet, locate)
        }
    }
}

/// Copies between the packet and the piece of each index, eight in each turn. `locate` returns an
/// address and a number; the piece begins so many bytes after that address.
///
/// # Errors
///
/// Those of `locate`.
///
/// # Safety
///
/// - The page of a place that `locate` returns must be valid for reads and writes until the next call.
/// - A place must be a multiple of the size of a `T`, counted from the start of its page.
/// - `packet` must be valid for reads and writes of as many pieces as there are indices, and no part of
///   these pages.
#[inline(always)]
unsafe fn copy_each<T: Moved, I: Copy, const TO_MEMORY: bool>(
    indices: &[I],
    mut packet: *mut u8,
    mut locate: impl FnMut(I) -> Result<(*mut u8, usize)>,
) -> Result {
    /// Copies the piece of an index to or from the piece of the packet with that number.
    macro_rules! copy {
        ($nth:literal, $index:expr) => {
            let (page, place) = locate(*$index)?;
            // SAFETY: By the safety requirements: a place at a multiple of a size that divides the size
            // of a page is followed by as many bytes of the page.
            unsafe { T::copy_nth::<TO_MEMORY, $nth>(page, place, packet) };
        };
    }
    let eights = indices.chunks_exact(8);
    let rest = eights.remainder();
    for eight in eights {
        let [a, b, c, d, e, f, g, h] = eight else {
            break;
        };
        copy!(0, a);
        copy!(1, b);
        copy!(2, c);
        copy!(3, d);
        copy!(4, e);
        copy!(5, f);
        copy!(6, g);
        copy!(7, h);
        packet = packet.wrapping_add(8 * size_of::<T>());
    }
    for index in rest {
        copy!(0, index);
        packet = packet.wrapping_add(size_of::<T>());
    }
    Ok(())
}
