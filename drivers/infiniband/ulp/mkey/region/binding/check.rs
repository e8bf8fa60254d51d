// SPDX-License-Identifier: GPL-2.0

//! Checks a layout against its leaves and makes a binding of them.

use super::{
    Binding,
    Extra,
    KLayout,
    Leaf,
    Window,
    MAX_LEVELS,
    ON_DEMAND, //
};
use crate::{
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::{eloop, eopnotsupp},
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
    /// Checks the layout against its leaves and makes the binding. The layout of keys over keys may
    /// have `most_pieces` pieces of memory.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for access flags that a leaf lacks,
    /// `ELOOP` for more than [`MAX_LEVELS`] levels, the errors of [`flat::make`] for keys over
    /// keys, `EOPNOTSUPP` for the flag `FLUSH_PERSISTENT` with ODP leaves, with more than
    /// [`MAX_FLUSHED`] pieces, or with more than [`MAX_FLUSHED_BYTES`] bytes if each leaf has fewer
    /// bytes, `ENOMEM`. A key names a leaf by its lkey. Every write, also a peer's, therefore needs
    /// the leaf's flag `LOCAL_WRITE`.
    pub(crate) fn new(
        layout: KLayout,
        leaves: KVVec<Leaf>,
        access: Access,
        pd: &Pd,
        mut charge: Option<OwnerCharge>,
        window: Option<Window>,
        most_pieces: usize,
    ) -> Result<Self> {
        check_access(access, &leaves)?;
        layout.reach(|reach| check_extent(&reach.extent, &leaves))?;
        let below = leaves.iter().map(|leaf| leaf.place.depth()).max();
        let depth = below.unwrap_or(0).saturating_add(1);
        if depth > MAX_LEVELS {
            return Err(eloop());
        }
        let extra = over_keys(&layout, &leaves, window, most_pieces, &mut charge)?;
        let on_demand = leaves.iter().any(|leaf| leaf.place.is_on_demand());
        if access.contains(Right::FlushPersistent) {
            let pieces = pieces(extra.as_deref(), &layout);
            if on_demand || pieces > MAX_FLUSHED || flushes_long(&layout, &leaves) {
                return Err(eopnotsupp());
            }
        }
        Ok(Self {
            extra,
            layout,
            leaves,
            access,
            pd: pd.as_raw() as usize,
            // This is at most `MAX_LEVELS`.
            depth: depth as u8,
            tag: 0,
            marks: if on_demand { ON_DEMAND } else { 0 },
            number: 0,
            home: None,
            _charge: charge,
        })
    }
}

/// Returns what a binding of `layout` has besides the layout: the range of a key, or the layout over
/// memory if a leaf is a key; and the `window`.
///
/// # Errors
///
/// The errors of [`flat::make`].
fn over_keys(
    layout: &KLayout,
    leaves: &[Leaf],
    window: Option<Window>,
    most_pieces: usize,
    charge: &mut Option<OwnerCharge>,
) -> Result<Option<KBox<Extra>>> {
    let has_keys = leaves.iter().any(Leaf::is_key);
    let range = if has_keys {
        flat::range(layout, leaves)
    } else {
        None
    };
    let extra = match (window, range) {
        (Some(window), range) => Extra::Window(Window { range, ..window }),
        (None, Some(range)) => {
            if let Some(charge) = charge {
                charge.grow(cost::RANGE)?;
            }
            Extra::Range(range)
        }
        (None, None) if has_keys => {
            // Only keys, whose bindings are charged, have leaves that are keys.
            let charge = charge.as_ref().ok_or(EINVAL)?;
            Extra::Flat(flat::make(layout, leaves, most_pieces, charge)?)
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(KBox::new(extra, GFP_MAYFAIL)?))
}

/// Returns the number of pieces of memory of a binding, or an upper bound for a range of a key.
fn pieces(extra: Option<&Extra>, layout: &KLayout) -> u64 {
    let memory = match extra {
        Some(Extra::Flat(flat)) => &flat.layout,
        Some(
            Extra::Range(range)
            | Extra::Window(Window {
                range: Some(range), ..
            }),
        ) => range.binding.memory().0,
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

/// Returns `true` if a flush of `layout` would take much longer than one of each of `leaves`.
fn flushes_long(layout: &KLayout, leaves: &[Leaf]) -> bool {
    let length = layout.length();
    let longest = leaves.iter().map(|leaf| leaf.len).max();
    length > MAX_FLUSHED_BYTES.max(longest.unwrap_or(0))
}

/// Checks that each leaf has the access flags that a layout with the flags `access` needs.
///
/// # Errors
///
/// `EACCES` if one of them is missing.
fn check_access(access: Access, leaves: &[Leaf]) -> Result {
    let writes = access.contains(Right::LocalWrite)
        || access.contains(Right::RemoteWrite)
        || access.contains(Right::RemoteAtomic);
    for leaf in leaves {
        if writes && !leaf.access.contains(Right::LocalWrite) {
            return Err(EACCES);
        }
        for flush in [Right::FlushGlobal, Right::FlushPersistent] {
            if access.contains(flush) && !leaf.access.contains(flush) {
                return Err(EACCES);
            }
        }
    }
    Ok(())
}

/// Checks that pieces stay within their leaf.
///
/// # Errors
///
/// `ERANGE` if they do not.
fn check_extent(extent: &Extent, leaves: &[Leaf]) -> Result {
    let leaf = leaves.get(extent.leaf() as usize).ok_or(EINVAL)?;
    Ok(extent.check_within(leaf.start, leaf.len)?)
}
