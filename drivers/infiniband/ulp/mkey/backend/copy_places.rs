// SPDX-License-Identifier: GPL-2.0

//! The innermost loops for indices: the pieces are at places in any order in memory, and follow one
//! another in the packet.
//!
//! Like `copy_row.rs`, this file uses no function of the kernel, so `tools/bench/native` can
//! measure it on the host. `copy_row.rs` says why assembly instructions move the pieces.

use super::{fetch::fetch_line, moved::Moved};
use core::mem::{size_of, MaybeUninit};

/// Copies between the packet and the piece of each index, eight in each iteration. `locate` returns
/// an address, and the offset of the piece from that address.
///
/// # Errors
///
/// Those of `locate`.
///
/// # Safety
///
/// - From a place that `locate` returns, a `T` must be valid for reads and writes until the next
///   call.
/// - `packet` must be valid for reads and writes of as many pieces as there are indices, and no
///   part of the memory of the pieces.
#[inline(always)]
pub(crate) unsafe fn copy_each<T: Moved, I: Copy, E, const TO_MEMORY: bool>(
    indices: &[I],
    mut packet: *mut u8,
    mut locate: impl FnMut(I) -> Result<(*mut u8, usize), E>,
) -> Result<(), E> {
    /// Copies the piece of an index to or from the piece of the packet with that number.
    macro_rules! copy {
        ($nth:literal, $index:expr) => {
            let (page, place) = locate(*$index)?;
            // SAFETY: By the safety requirements.
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

/// The number of pieces that [`copy_ahead`] prefetches before it copies them.
const AHEAD: usize = 64;

/// Copies between the packet and the piece of each index, as [`copy_each`] does. Prefetches many
/// pieces before it copies the first of them.
///
/// A processor looks some hundred instructions ahead. Without prefetches, it would load only a few
/// pieces at a time into its cache.
///
/// # Errors
///
/// Those of `locate`. Pieces before that index may not be copied.
///
/// # Safety
///
/// As for [`copy_each`], but a place must be valid until this returns.
#[inline(always)]
pub(crate) unsafe fn copy_ahead<T: Moved, I: Copy, E, const TO_MEMORY: bool>(
    indices: &[I],
    mut packet: *mut u8,
    mut locate: impl FnMut(I) -> Result<(*mut u8, usize), E>,
) -> Result<(), E> {
    /// Finds the place of an index and prefetches the piece.
    macro_rules! find {
        ($place:expr, $index:expr) => {
            let (page, offset) = locate(*$index)?;
            fetch_line(*$place.write(page.wrapping_add(offset)));
        };
    }
    let mut places = [const { MaybeUninit::<*mut u8>::uninit() }; AHEAD];
    for part in indices.chunks(AHEAD) {
        let mut eights = places.chunks_exact_mut(8).zip(part.chunks_exact(8));
        while let Some(([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p])) = eights.next() {
            find!(a, i);
            find!(b, j);
            find!(c, k);
            find!(d, l);
            find!(e, m);
            find!(f, n);
            find!(g, o);
            find!(h, p);
        }
        let pairs = places.iter_mut().zip(part);
        for (place, index) in pairs.skip(part.len() / 8 * 8) {
            find!(place, index);
        }
        // SAFETY: By the safety requirements. The loops found a place for each index of the part:
        // for all eights, and for the indices after them.
        unsafe {
            let found = places.get(..part.len()).unwrap_or_default();
            let locate = |place: MaybeUninit<_>| Ok((place.assume_init(), 0));
            copy_each::<T, _, E, TO_MEMORY>(found, packet, locate)?;
        }
        packet = packet.wrapping_add(part.len() * size_of::<T>());
    }
    Ok(())
}
