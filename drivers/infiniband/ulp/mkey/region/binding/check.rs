// SPDX-License-Identifier: GPL-2.0

//! Checks a layout against its leaves and makes a binding of them.

use super::{
    both,
    work,
    Binding,
    Extra,
    Flat,
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
        sync::users::Users,
    },
    layout::{Granularity, Reach},
    limits::owner::OwnerCharge,
    region::flat,
};
use kernel::{
    prelude::*,
    sync::{atomic::Atomic, Arc},
};

/// The most pieces of a layout that can be flushed to persistence. A QP, and a rebind of the key,
/// wait while a request flushes all of them.
const MAX_FLUSHED: u64 = 1 << 20;

/// The most bytes that can be flushed to persistence, for the same reason. A layout may be as long
/// as its longest leaf, because a whole leaf can be flushed anyway. The sum of the leaves is no
/// bound: many MRs and keys may be over the same bytes.
const MAX_FLUSHED_BYTES: u64 = 1 << 33;

/// The most bytes of one piece that are flushed under SRCU. A longer flush leaves SRCU.
const LONG_FLUSHED: u64 = 1 << 24;

impl Binding {
    /// Checks the layout against its leaves and makes the binding.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for access flags that a leaf lacks,
    /// `ELOOP` for more than [`MAX_LEVELS`] levels, and for small pieces through which a packet
    /// could take more than [`work::MAX`], `EOPNOTSUPP` for the flag `FLUSH_PERSISTENT` with ODP
    /// leaves, with more than [`MAX_FLUSHED`] pieces, or with more than [`MAX_FLUSHED_BYTES`] bytes
    /// if each leaf has fewer bytes, `ENOMEM`. A key names a leaf by its lkey. Every write, also
    /// a peer's, therefore needs the leaf's flag `LOCAL_WRITE`.
    pub(crate) fn new(
        layout: KLayout,
        leaves: KVVec<Leaf>,
        access: Access,
        pd: &Pd,
        charge: Option<OwnerCharge>,
        window: Option<Window>,
    ) -> Result<Arc<Self>> {
        check_access(access, &leaves)?;
        let mut survey = Survey::new();
        layout.reach(|reach| survey.add(&reach, &leaves))?;
        let Survey {
            own,
            pieces,
            granularity,
        } = survey.end();
        let below = leaves.iter().map(|leaf| leaf.place.depth()).max();
        let depth = below.unwrap_or(0).saturating_add(1);
        if depth > MAX_LEVELS {
            return Err(eloop());
        }
        let on_demand = leaves.iter().any(|leaf| leaf.place.is_on_demand());
        let flushed = access.contains(Right::FlushPersistent);
        if flushed && (on_demand || pieces > MAX_FLUSHED || flushes_long(&layout, &leaves)) {
            return Err(eopnotsupp());
        }
        let Walked {
            flat,
            levels,
            granularity,
            work,
        } = match &charge {
            Some(charge) if depth > 1 && window.is_none() => {
                Walked::new((&layout, &leaves), (own, granularity), on_demand, charge)?
            }
            _ => Walked::described(&layout, &leaves, granularity, on_demand),
        };
        let search = work::search(flat.as_ref().map_or(&layout, |flat| &flat.layout), &leaves);
        let extra = flat.map(Extra::Flat).or(window.map(Extra::Window));
        let extra = extra
            .map(|extra| KBox::new(extra, GFP_MAYFAIL))
            .transpose()?;
        let long = pieces > 1 || layout.length() > LONG_FLUSHED;
        let users = if on_demand || (flushed && long) || (levels > 1 && work > work::LONG) {
            Some(Users::new(GFP_MAYFAIL)?)
        } else {
            None
        };
        let binding = Self {
            extra,
            layout,
            leaves,
            access,
            pd: pd.as_raw() as usize,
            levels: both(depth, levels),
            tag: Atomic::new(0),
            marks: Atomic::new(if on_demand { ON_DEMAND } else { 0 }),
            pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
            granularity,
            search,
            users,
            _charge: charge,
        };
        Ok(Arc::new(binding, GFP_MAYFAIL)?)
    }
}

/// Returns `true` if a flush of `layout` would take much longer than one of each of `leaves`.
fn flushes_long(layout: &KLayout, leaves: &[Leaf]) -> bool {
    let length = layout.length();
    let longest = leaves.iter().map(|leaf| leaf.len).max();
    length > MAX_FLUSHED_BYTES.max(longest.unwrap_or(0))
}

/// The levels that an access walks over.
struct Walked {
    /// The list that replaces the layout.
    flat: Option<Flat>,
    /// The number of levels.
    levels: usize,
    /// The granularity of the first level.
    granularity: Granularity,
    /// A bound of the work of a packet; 0 if all leaves are memory, to which no limit applies.
    work: u64,
}

impl Walked {
    /// Returns the levels of a layout without a flat list.
    fn described(
        layout: &KLayout,
        leaves: &[Leaf],
        granularity: Granularity,
        on_demand: bool,
    ) -> Self {
        let below = leaves.iter().map(|leaf| leaf.place.levels()).max();
        let below = below.unwrap_or(0);
        Self {
            flat: None,
            levels: below.saturating_add(1),
            granularity,
            work: if below == 0 {
                0
            } else {
                work::of_packet(layout, granularity, leaves, on_demand)
            },
        }
    }

    /// Returns the levels of a nest whose accesses use the list `flat`.
    fn flattened(flat: Flat, described: &Self, leaves: &[Leaf], on_demand: bool) -> Self {
        let granularity = work::granularity(&flat.layout);
        let levels = if flat.has_keys { described.levels } else { 1 };
        let leaves = if flat.has_keys { leaves } else { &[] };
        Self {
            levels,
            granularity,
            work: work::of_packet(&flat.layout, granularity, leaves, on_demand),
            flat: Some(flat),
        }
    }

    /// Makes a list of a nest of small pieces. `own` is the number of pieces of `layout`.
    ///
    /// # Errors
    ///
    /// `ELOOP` if a packet could take too long, and all ranges of the nest are too many for a list;
    /// those of [`flat::make`].
    fn new(
        (layout, leaves): (&KLayout, &[Leaf]),
        (own, granularity): (u64, Granularity),
        on_demand: bool,
        charge: &OwnerCharge,
    ) -> Result<Self> {
        let mut walked = Self::described(layout, leaves, granularity, on_demand);
        let is_fine = walked.work > work::FINE;
        if let Some(flat) = flat::make(layout, leaves, own, is_fine, charge)? {
            walked = Self::flattened(flat, &walked, leaves, on_demand);
        }
        if walked.work > work::MAX {
            if let Some(flat) = flat::make_all(layout, leaves, own, charge)? {
                walked = Self::flattened(flat, &walked, leaves, on_demand);
            }
        }
        Ok(walked)
    }
}

/// Checks that each leaf has the access flags that a layout with the flags `access` needs.
///
/// # Errors
///
/// `EACCES` if one of them is missing.
#[inline]
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

/// The pieces of a layout.
struct Survey {
    /// The number of pieces.
    own: u64,
    /// An upper bound of the number of pieces at the bottom of all levels.
    pieces: u64,
    /// The granularity of the pieces.
    granularity: Granularity,
}

impl Survey {
    /// Makes a survey without pieces.
    fn new() -> Self {
        Self {
            own: 0,
            pieces: 0,
            granularity: Granularity::NONE,
        }
    }

    /// Checks that pieces stay within their leaf, and counts them. Counts a block once for each
    /// piece of the level below, because it may be cut at the end of each of them.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf.
    #[inline]
    fn add(&mut self, reach: &Reach, leaves: &[Leaf]) -> Result {
        let leaf = leaves.get(reach.extent.leaf() as usize).ok_or(EINVAL)?;
        reach.extent.check_within(leaf.start, leaf.len)?;
        self.own = self.own.saturating_add(reach.count);
        let pieces = reach.count.saturating_mul(leaf.place.pieces());
        self.pieces = self.pieces.saturating_add(pieces);
        self.granularity = self.granularity.join(reach.granularity);
        Ok(())
    }

    /// Returns the result after all pieces were added.
    fn end(self) -> Self {
        Self {
            granularity: if self.own == 1 {
                self.granularity.alone()
            } else {
                self.granularity
            },
            ..self
        }
    }
}
