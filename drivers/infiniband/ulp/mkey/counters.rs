// SPDX-License-Identifier: GPL-2.0

//! Counts of what the module did since it was loaded, for all devices together.

use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
};

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

/// Counts an access that failed with `err`.
pub(crate) fn refused(err: &Error) {
    let count = match *err {
        EINVAL => Count::RefusedUnbound,
        EACCES => Count::RefusedRights,
        EFAULT => Count::RefusedMemory,
        _ => Count::RefusedOther,
    };
    add(count, 1);
}

/// Returns the counts with their names.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, i64)> {
    let counts = COUNTS.iter().map(|count| count.load(ordering::Relaxed));
    NAMES.into_iter().zip(counts)
}
