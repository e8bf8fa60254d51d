// SPDX-License-Identifier: GPL-2.0

//! The verdict on layouts of any numbers, without listing their bytes, of which there may be 2^64.

use super::runs::HasRuns;
use ib_mkey_layout::{Error, Part, MAX_DIMS};

use super::{reaches, Spec, VecLayout, OVERFLOW, ZERO};

/// Returns `true` if all bytes from `addr` on have a 64-bit address.
fn fits(addr: u64, bytes: u64, steps: impl Iterator<Item = (i64, u64)>) -> bool {
    let mut first = Some(i128::from(addr));
    let mut last = Some(i128::from(addr) + i128::from(bytes) - 1);
    for (stride, count) in steps {
        let reach = i128::from(stride) * (i128::from(count) - 1);
        let side = if reach < 0 { &mut first } else { &mut last };
        *side = side.and_then(|side| side.checked_add(reach));
    }
    let is_address = |at: Option<i128>| at.is_some_and(|at| u64::try_from(at).is_ok());
    is_address(first) && is_address(last)
}

/// Returns the error for the first item that is `wrong`.
fn first<T>(items: &[T], wrong: impl Fn(&T) -> bool, error: fn(u32) -> Error) -> Result<(), Error> {
    match items.iter().position(wrong) {
        Some(at) => Err(error(at as u32)),
        None => Ok(()),
    }
}

/// Checks parts with these numbers of bytes, one after the other, and the sum of the bytes.
fn sum<T>(parts: &[T], bytes: impl Fn(&T) -> u64, fits: impl Fn(&T) -> bool) -> Result<u64, Error> {
    let mut sum = 0u64;
    for (at, part) in parts.iter().enumerate() {
        if !fits(part) {
            return Err(Error::Overflow(Part::Entry(at as u32)));
        }
        sum = sum.checked_add(bytes(part)).ok_or(OVERFLOW)?;
    }
    match sum {
        0 => Err(ZERO),
        _ => Ok(sum),
    }
}

/// Returns what is wrong with the layout, or its number of bytes if it is valid.
pub fn verdict(spec: &Spec) -> Result<u64, Error> {
    let no_bytes = |at| Error::Zero(Part::Entry(at));
    match spec {
        Spec::List(entries) => {
            // The first wrong entry is the reason.
            let zero = entries.iter().position(|entry| entry.2 == 0);
            let before = &entries[..zero.unwrap_or(entries.len())];
            let fits = |entry: &(u32, u64, u64)| fits(entry.1, entry.2, [].into_iter());
            match (sum(before, |entry| entry.2, fits), zero) {
                (Err(error), Some(_)) if !before.is_empty() => Err(error),
                (_, Some(at)) => Err(no_bytes(at as u32)),
                (result, None) => result,
            }
        }
        Spec::Interleaved(counts, blocks) => {
            if counts.is_empty() {
                return Err(ZERO);
            }
            if counts.len() > MAX_DIMS {
                return Err(Error::TooManyDims);
            }
            first(counts, |count| *count == 0, |at| Error::Zero(Part::Dim(at)))?;
            first(blocks, |block| block.2 == 0, no_bytes)?;
            let group = sum(
                blocks,
                |block| block.2,
                |(_, addr, bytes, strides)| {
                    let steps = strides.iter().copied().zip(counts.iter().copied());
                    fits(*addr, *bytes, steps)
                },
            )?;
            let product = |all: u64, count: &u64| all.checked_mul(*count);
            counts.iter().try_fold(group, product).ok_or(OVERFLOW)
        }
        Spec::Indexed((_, addr, unit, len), indices) => {
            let highest = indices.iter().max().ok_or(ZERO)?;
            if *unit == 0 {
                return Err(Error::Zero(Part::Unit));
            }
            if *len == 0 {
                return Err(no_bytes(0));
            }
            let start = u128::from(*addr) + u128::from(*highest) * u128::from(*unit);
            if start + u128::from(*len) > 1 << 64 {
                let overflow = |at| Error::Overflow(Part::Entry(at));
                first(indices, |index| index == highest, overflow)?;
            }
            len.checked_mul(indices.len() as u64).ok_or(OVERFLOW)
        }
    }
}

/// Checks that the layout is refused, or stays within its extents.
pub fn check(spec: &Spec, offset: u64, len: u64) {
    let layout = spec.build();
    let verdict = verdict(spec);
    assert_eq!(
        layout
            .as_ref()
            .map(VecLayout::length)
            .map_err(|error| *error),
        verdict,
        "{spec:?}"
    );
    let Ok(layout) = layout else { return };
    let inside = |leaf: u32, addr: u64| {
        let mut extents = reaches(&layout).into_iter().map(|reach| reach.extent);
        extents.any(|e| e.leaf() == leaf && (e.start()..=e.last()).contains(&addr))
    };
    for offset in [offset, offset % layout.length(), layout.length() - 1] {
        let end = offset.checked_add(len);
        let runs = layout.runs(offset, len);
        assert_eq!(runs.is_ok(), end.is_some_and(|end| end <= layout.length()));
        let mut left = len;
        for run in runs.into_iter().flatten().take(50) {
            assert!(run.len != 0 && run.len <= left);
            assert!(inside(run.leaf, run.addr) && inside(run.leaf, run.addr + (run.len - 1)));
            left -= run.len;
        }
        let rows = layout.rows(offset, len);
        assert_eq!(rows.is_ok(), end.is_some_and(|end| end <= layout.length()));
        let mut left = u128::from(len);
        for row in rows.into_iter().flatten().take(50) {
            // No sum wraps, neither in memory nor in the access.
            let steps = i128::from(row.count) - 1;
            let last =
                i128::from(row.addr) + i128::from(row.stride) * steps * i128::from(steps > 0);
            let last = u64::try_from(last).unwrap();
            assert!(row.len != 0);
            left = left
                .checked_sub(u128::from(row.len) * u128::from(row.count))
                .unwrap();
            for addr in [row.addr, last] {
                assert!(inside(row.leaf, addr) && inside(row.leaf, addr + (row.len - 1)));
            }
        }
        let runs = layout.runs(offset, 1).into_iter().flatten();
        assert!(runs.eq(layout.resolve(offset, 1).ok()));
    }
}
