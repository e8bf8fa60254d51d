// SPDX-License-Identifier: GPL-2.0

//! ODP leaves: prefetches of their pages, and the numbers of their page faults.

use super::region_of;
use crate::{
    backend::{BaseMr, Claimed, OdpStats},
    errors::Refused,
    kernel_ext::sched,
    region::binding::{Binding, Leaf, LeafPlace},
};
use kernel::{page::PAGE_SHIFT, prelude::*};

/// The most ranges of pages that a prefetch begins without waiting for them: as many as one call of
/// `ibv_advise_mr()` can name. An access faults in the pages of the others.
const MAX_BEGUN: usize = 4096;

/// The number of pieces between two checks whether the process was killed.
const AT_ONCE: u64 = 1024;

/// Successive pages of a leaf, by the numbers of the first and the last one.
#[derive(Clone, Copy)]
struct Pages {
    leaf: u32,
    first: u64,
    last: u64,
}

impl Pages {
    /// Returns the pages of `len` bytes, at least one, from address `addr` of `leaf` on.
    fn of(leaf: u32, addr: u64, len: u64) -> Self {
        // A leaf may end at 2^64.
        let end = addr.wrapping_add(len.wrapping_sub(1));
        Self {
            leaf,
            first: addr >> PAGE_SHIFT,
            last: end >> PAGE_SHIFT,
        }
    }

    /// Returns both as one range if `next` continues this one.
    fn joined(self, next: Self) -> Option<Self> {
        let continues =
            self.leaf == next.leaf && next.first >= self.first && next.first <= self.last + 1;
        continues.then(|| Self {
            last: self.last.max(next.last),
            ..self
        })
    }

    /// Returns the bytes of the pages that are in `leaf`: the first address and the length.
    fn within(self, leaf: &Leaf) -> (u64, u64) {
        let last_of_leaf = leaf.start.wrapping_add(leaf.len.wrapping_sub(1));
        let start = (self.first << PAGE_SHIFT).max(leaf.start);
        let last = (self.last << PAGE_SHIFT | ((1 << PAGE_SHIFT) - 1)).min(last_of_leaf);
        (start, last.wrapping_sub(start).saturating_add(1))
    }
}

/// The walk over the ranges of a prefetch.
struct Walk<'a, F> {
    binding: &'a Binding,
    leaves: &'a [Leaf],
    writes: bool,
    /// The number of ranges that may follow.
    left: usize,
    run: F,
}

impl<F: FnMut(&BaseMr, u64, u64) -> Result> Walk<'_, F> {
    /// Prefetches one range. Leaves out memory that is not on demand. Returns `false` if there may
    /// be no more ranges.
    fn prefetch(&mut self, pages: Pages) -> Result<bool> {
        let (base, delta) = self.binding.open(self.leaves, pages.leaf, self.writes)?;
        if !base.is_on_demand() {
            return Ok(true);
        }
        let leaf = self.leaves.get(pages.leaf as usize).ok_or(EFAULT)?;
        let (addr, len) = pages.within(leaf);
        (self.run)(base, addr.wrapping_add(delta), len)?;
        self.left = self.left.saturating_sub(1);
        Ok(self.left > 0)
    }
}

/// Calls `run` for each range of pages of the ODP leaves that have the bytes `(addr, len)` of `mr`,
/// with the MR of the leaf, an address of that MR and a length. Without `wait`, `run` only begins a
/// prefetch, and is called [`MAX_BEGUN`] times at most.
///
/// # Errors
///
/// `EINVAL` if nothing is bound; `EFAULT` for bytes outside of the binding; `EPERM` for a leaf that
/// does not allow the access any more; `EINTR` if the process is killed; the errors of `run`.
pub(crate) fn prefetch(
    mr: &Claimed,
    (addr, len): (u64, u64),
    writes: bool,
    wait: bool,
    run: impl FnMut(&BaseMr, u64, u64) -> Result,
) -> Result {
    let binding = region_of(mr)?.binding.get().ok_or(EINVAL)?;
    let located = binding.locate(addr.wrapping_sub(binding.start), len);
    let (binding, offset) = located.map_err(|_| EFAULT)?;
    if len == 0 || !binding.is_on_demand() {
        return Ok(());
    }
    let (layout, leaves) = binding.memory();
    let mut walk = Walk {
        binding,
        leaves,
        writes,
        left: if wait { usize::MAX } else { MAX_BEGUN },
        run,
    };
    let mut open: Option<Pages> = None;
    let mut seen = 0u64;
    for row in layout.rows(offset, len)? {
        for piece in 0..row.count {
            if seen % AT_ONCE == 0 {
                sched::check_killed()?;
            }
            seen = seen.wrapping_add(1);
            let next = Pages::of(row.leaf, row.skip(piece).addr, row.len);
            let joined = open.and_then(|pages| pages.joined(next));
            if let (None, Some(pages)) = (joined, open) {
                if !walk.prefetch(pages).map_err(of_access)? {
                    return Ok(());
                }
            }
            open = Some(joined.unwrap_or(next));
        }
    }
    if let Some(pages) = open {
        walk.prefetch(pages).map_err(of_access)?;
    }
    Ok(())
}

/// Returns the errno value of `ibv_advise_mr()`.
fn of_access(error: Error) -> Error {
    if error == Refused::ACCESS_LEAF.into() {
        EPERM
    } else {
        error
    }
}

/// Adds the numbers of the ODP leaves of `mr` to `sum`. A leaf counts once for each key that it is
/// below. Returns `false` if there are none.
pub(crate) fn add_odp_stats(mr: &Claimed, sum: &mut OdpStats) -> bool {
    let Some(binding) = region_of(mr).ok().and_then(|region| region.binding.get()) else {
        return false;
    };
    if !binding.is_on_demand() {
        return false;
    }
    let mut seen = 0u64;
    for leaf in binding.target().0.memory().1 {
        if seen % AT_ONCE == 0 {
            sched::cond_resched();
        }
        seen = seen.wrapping_add(1);
        if let LeafPlace::Memory { base, .. } = &leaf.place {
            base.add_odp_stats(sum);
        }
    }
    true
}
