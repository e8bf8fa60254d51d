// SPDX-License-Identifier: GPL-2.0

//! Counts of what the module did since it was loaded, for all devices together.

use crate::errors::Refused;
use kernel::sync::atomic::{ordering, Atomic};

/// A count.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Binds of keys.
    Bind,
    /// Unbinds of keys, by a call or by an invalidation.
    Unbind,
    /// Accesses to an unbound MR, or outside of the bytes of an MR.
    RefusedUnbound,
    /// Accesses without the access flag, or of another protection domain or QP.
    RefusedRights,
    /// Accesses to addresses at which the process has no memory.
    RefusedMemory,
    /// Accesses that failed for another reason.
    RefusedOther,
    /// Accesses to the bytes of an MR, a packet or an atomic operation each.
    Access,
}

/// The names of the counts in debugfs, in their order.
pub(crate) const NAMES: [&str; 7] = [
    "binds",
    "unbinds",
    "refused_unbound",
    "refused_rights",
    "refused_memory",
    "refused_other",
    "accesses",
];

static COUNTS: [Atomic<i64>; NAMES.len()] = [const { Atomic::new(0) }; NAMES.len()];

/// Adds `by` to a count.
pub(crate) fn add(count: Count, by: usize) {
    if let Some(counter) = COUNTS.get(count as usize) {
        counter.add(by as i64, ordering::Relaxed);
    }
}

/// The number of accesses that were refused.
static REFUSED: Atomic<u64> = Atomic::new(0);

/// Counts an access that was refused. Returns its number among all that were refused, from 1 on.
pub(crate) fn refused(why: Refused) -> u64 {
    let count = match why {
        Refused::ACCESS_UNBOUND
        | Refused::ACCESS_RANGE
        | Refused::ACCESS_BASE
        | Refused::ACCESS_PIECES => Count::RefusedUnbound,
        Refused::ACCESS_FLAGS | Refused::ACCESS_PD | Refused::ACCESS_KEY | Refused::ACCESS_LEAF => {
            Count::RefusedRights
        }
        Refused::ACCESS_MEMORY => Count::RefusedMemory,
        _ => Count::RefusedOther,
    };
    add(count, 1);
    REFUSED.fetch_add(1, ordering::Relaxed).wrapping_add(1)
}

/// Returns the counts with their names.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, i64)> {
    let counts = COUNTS.iter().map(|count| count.load(ordering::Relaxed));
    NAMES.into_iter().zip(counts)
}
