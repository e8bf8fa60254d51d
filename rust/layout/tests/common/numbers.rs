// SPDX-License-Identifier: GPL-2.0

//! The verdict on layouts of any numbers, without listing their bytes, of which there may be 2^64.

use ib_mkey_layout::{Error, MAX_DIMS};

use super::{reaches, Spec, VecLayout};

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

/// Returns what is wrong with the layout, or its number of bytes if it is valid.
pub fn verdict(spec: &Spec) -> Result<u64, Error> {
    let (length, zero, fits) = match spec {
        Spec::List(entries) => (
            entries
                .iter()
                .try_fold(0, |sum: u128, entry| sum.checked_add(entry.2.into())),
            entries.is_empty() || entries.iter().any(|entry| entry.2 == 0),
            entries
                .iter()
                .all(|&(_, addr, length)| fits(addr, length, [].into_iter())),
        ),
        Spec::Interleaved(counts, blocks) => {
            if counts.len() > MAX_DIMS {
                return Err(Error::TooManyDims);
            }
            let group = blocks.iter().map(|block| u128::from(block.2)).sum();
            (
                counts
                    .iter()
                    .try_fold(group, |n: u128, count| n.checked_mul((*count).into())),
                counts.is_empty()
                    || counts.contains(&0)
                    || blocks.is_empty()
                    || blocks.iter().any(|block| block.2 == 0),
                blocks.iter().all(|(_, addr, bytes, strides)| {
                    fits(
                        *addr,
                        *bytes,
                        strides.iter().copied().zip(counts.iter().copied()),
                    )
                }),
            )
        }
        Spec::Indexed((_, addr, unit, len), indices) => {
            let reach = |index: &u64| {
                let start = u128::from(*addr) + u128::from(*index) * u128::from(*unit);
                start + u128::from(*len) <= 1 << 64
            };
            (
                Some(indices.len() as u128 * u128::from(*len)),
                indices.is_empty() || *unit == 0 || *len == 0,
                indices.iter().all(reach),
            )
        }
    };
    if zero {
        return Err(Error::Zero);
    }
    match length.map(u64::try_from) {
        Some(Ok(length)) if fits => Ok(length),
        _ => Err(Error::Overflow),
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
