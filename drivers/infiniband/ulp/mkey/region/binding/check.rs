// SPDX-License-Identifier: GPL-2.0

//! Checks a layout against its leaves, and completes their binding.

use super::{
    Binding,
    Extra,
    KLayout,
    Leaf,
    MAX_DEPTH,
    ON_DEMAND, //
};
use crate::{
    errors::{Refused, Result},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{mr::Right, Access, Pd},
    },
    layout::Extent,
    limits::{cost, owner::OwnerCharge},
    region::flat,
};
use kernel::prelude::*;

/// The most pieces of a layout that can be flushed to persistence. A QP, and a rebind of the key,
/// wait while a request flushes all of them.
const MAX_FLUSHED: u64 = 1 << 20;

/// The most bytes that can be flushed to persistence, for the same reason. A layout may be as long
/// as its longest leaf, because a whole leaf can be flushed anyway. The sum of the leaves is no
/// bound: many MRs and keys may be over the same bytes.
const MAX_FLUSHED_BYTES: u64 = 1 << 33;

impl Binding {
    /// Checks the layout against the leaves and completes the binding. The layout of keys over keys
    /// may have `most_pieces` pieces of memory. A key names a leaf by its lkey. Every write, also a
    /// peer's, therefore needs the leaf's flag `LOCAL_WRITE`.
    pub(crate) fn complete(&mut self, access: Access, pd: &Pd, most_pieces: usize) -> Result {
        let (layout, leaves) = (&self.layout, &self.leaves);
        check_access(access, layout, leaves)?;
        let within = layout.reach(|reach| check_extent(&reach.extent, leaves));
        within.map_err(|mut why| {
            // The entry may be one of several with one extent.
            let at = position(layout, |extent| {
                let checked = check_extent(&extent, leaves);
                checked.inspect_err(|own| why = *own).is_err()
            });
            why.at(at)
        })?;
        let below = leaves.iter().map(|leaf| leaf.place.depth()).max();
        let depth = below.unwrap_or(0).saturating_add(1);
        if depth > MAX_DEPTH {
            return Err(Refused::LEVELS);
        }
        self.extra = over_keys(layout, leaves, most_pieces, &mut self.charge)?;
        let on_demand = leaves.iter().any(|leaf| leaf.place.is_on_demand());
        if access.contains(Right::FlushPersistent) {
            if on_demand {
                return Err(Refused::FLUSH_ON_DEMAND);
            }
            if pieces(self.extra.as_deref(), layout) > MAX_FLUSHED {
                return Err(Refused::FLUSH_PIECES.with(MAX_FLUSHED));
            }
            let most = most_flushed(leaves);
            if layout.length() > most {
                return Err(Refused::FLUSH_BYTES.with(most));
            }
        }
        self.access = access;
        self.pd = pd.as_raw() as usize;
        self.start = 0;
        // This is at most `MAX_DEPTH`.
        self.depth = depth as u8;
        self.marks = if on_demand { ON_DEMAND } else { 0 };
        Ok(())
    }
}

/// Returns what a binding of `layout` has besides the layout if a leaf is a key: the range of a key,
/// or the layout over memory.
fn over_keys(
    layout: &KLayout,
    leaves: &[Leaf],
    most_pieces: usize,
    charge: &mut Option<OwnerCharge>,
) -> Result<Option<KBox<Extra>>> {
    if !leaves.iter().any(Leaf::is_key) {
        return Ok(None);
    }
    // Only keys, whose bindings are charged, have leaves that are keys.
    let charge = charge.as_mut().ok_or(Refused::MEMORY)?;
    let extra = match flat::range(layout, leaves) {
        Some(range) => {
            charge.grow(cost::RANGE)?;
            Extra::Range(range)
        }
        None => Extra::Flat(flat::make(layout, leaves, most_pieces, charge)?),
    };
    Ok(Some(KBox::new(extra, GFP_MAYFAIL)?))
}

/// Returns the number of pieces of memory of a binding, or an upper bound for a range of a key.
fn pieces(extra: Option<&Extra>, layout: &KLayout) -> u64 {
    let memory = match extra {
        Some(Extra::Flat(flat)) => &flat.layout,
        Some(Extra::Range(range)) => range.binding.memory().0,
        _ => layout,
    };
    let mut pieces = 0u64;
    // The function returns no error.
    let _ = memory.reach(|reach| {
        pieces = pieces.saturating_add(reach.count);
        Ok::<_, Error>(())
    });
    pieces
}

/// Returns the most bytes of a layout over `leaves` that can be flushed to persistence.
fn most_flushed(leaves: &[Leaf]) -> u64 {
    let longest = leaves.iter().map(|leaf| leaf.len).max();
    MAX_FLUSHED_BYTES.max(longest.unwrap_or(0))
}

/// Returns the number of the first entry, block or index whose extent is `wanted`. There is one.
fn position(layout: &KLayout, wanted: impl FnMut(Extent) -> bool) -> u32 {
    // CAST: A layout has at most `MAX_INDICES` of them.
    layout.position(wanted).unwrap_or(0) as u32
}

/// Checks that each leaf has the access flags that a layout with the flags `access` needs.
fn check_access(access: Access, layout: &KLayout, leaves: &[Leaf]) -> Result {
    let writes = access.contains(Right::LocalWrite)
        || access.contains(Right::RemoteWrite)
        || access.contains(Right::RemoteAtomic);
    let lacks = |leaf: &Leaf, flag: Right| access.contains(flag) && !leaf.access.contains(flag);
    let refuses = |leaf: &Leaf| {
        (writes && !leaf.access.contains(Right::LocalWrite))
            || lacks(leaf, Right::FlushGlobal)
            || lacks(leaf, Right::FlushPersistent)
    };
    let number = leaves.iter().position(refuses);
    let Some((number, leaf)) = number.and_then(|at| Some((at, leaves.get(at)?))) else {
        return Ok(());
    };
    let entry = position(layout, |extent| extent.leaf() as usize == number);
    Err(Refused::LEAF_ACCESS.with(leaf.lkey).at(entry))
}

/// Checks that pieces stay within their leaf.
fn check_extent(extent: &Extent, leaves: &[Leaf]) -> Result {
    let leaf = leaves.get(extent.leaf() as usize).ok_or(EINVAL)?;
    if extent.start() < leaf.start {
        return Err(Refused::BEFORE_LEAF.with(leaf.start));
    }
    // A leaf has bytes. It may end at 2^64.
    let last = leaf.start.wrapping_add(leaf.len.wrapping_sub(1));
    let within = extent.check_within(leaf.start, leaf.len);
    within.map_err(|_| Refused::BEYOND_LEAF.with(last))
}
