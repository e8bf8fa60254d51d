// SPDX-License-Identifier: GPL-2.0

//! Checks a layout against its leaves and makes a binding of them.

use super::{Binding, Extra, KLayout, Leaf, Window, MAX_LEVELS};
use crate::{
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::{eloop, eopnotsupp},
        rdma::{mr::Right, Access, Pd},
        sync::users::Users,
    },
    limits::owner::OwnerCharge,
    region::flat,
};
use kernel::{prelude::*, sync::Arc};

/// The most pieces of a layout that can be flushed to persistence. A QP, and a rebind of the key,
/// wait while a request flushes all of them.
const MAX_FLUSHED: u64 = 1 << 20;

/// The most look-ups of an access under SRCU: the pieces of a packet of [`PACKET`] bytes,
/// multiplied by the levels. An access with more look-ups leaves SRCU, see `Binding::users`.
const MAX_STEPS: u64 = 1024;

/// The most look-ups of a packet of [`PACKET`] bytes for which a nest is left as it is, unless it
/// is short.
const FINE_STEPS: u64 = 64;

/// Bytes of a packet.
const PACKET: u64 = 4096;

/// The most bytes of one piece that are flushed under SRCU. A longer flush leaves SRCU.
const LONG_FLUSHED: u64 = 1 << 24;

impl Binding {
    /// Checks the layout against its leaves and makes the binding.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for access flags that a leaf lacks,
    /// `ELOOP` for more than [`MAX_LEVELS`] levels, `EOPNOTSUPP` for the flag `FLUSH_PERSISTENT`
    /// with ODP leaves or more than [`MAX_FLUSHED`] pieces, `ENOMEM`. A key names a leaf by its
    /// lkey. Every write, also a peer's, therefore needs the leaf's flag `LOCAL_WRITE`.
    pub(crate) fn new(
        layout: KLayout,
        leaves: KVVec<Leaf>,
        access: Access,
        pd: &Pd,
        mut charge: Option<OwnerCharge>,
        window: Option<Window>,
    ) -> Result<Arc<Self>> {
        let writes = access.contains(Right::LocalWrite)
            || access.contains(Right::RemoteWrite)
            || access.contains(Right::RemoteAtomic);
        for leaf in leaves.iter() {
            if writes && !leaf.access.contains(Right::LocalWrite) {
                return Err(EACCES);
            }
            for flush in [Right::FlushGlobal, Right::FlushPersistent] {
                if access.contains(flush) && !leaf.access.contains(flush) {
                    return Err(EACCES);
                }
            }
        }
        let Survey {
            own,
            pieces,
            finest,
        } = survey(&layout, &leaves)?;
        let below = leaves.iter().map(|leaf| leaf.place.depth()).max();
        let depth = below.unwrap_or(0).saturating_add(1);
        if depth > MAX_LEVELS {
            return Err(eloop());
        }
        let on_demand = leaves.iter().any(|leaf| leaf.place.is_on_demand());
        let flushed = access.contains(Right::FlushPersistent);
        if flushed && (on_demand || pieces > MAX_FLUSHED) {
            return Err(eopnotsupp());
        }
        let flat = match &mut charge {
            Some(charge) if window.is_none() => {
                flat::make(&layout, &leaves, own, is_fine(depth, finest), charge)?
            }
            _ => None,
        };
        let levels = match &flat {
            Some(flat) if !flat.has_keys => 1,
            _ => {
                let below = leaves.iter().map(|leaf| leaf.place.levels()).max();
                below.unwrap_or(0).saturating_add(1)
            }
        };
        let extra = flat.map(Extra::Flat).or(window.map(Extra::Window));
        let extra = extra
            .map(|extra| KBox::new(extra, GFP_MAYFAIL))
            .transpose()?;
        let long = pieces > 1 || layout.length() > LONG_FLUSHED;
        let users = if on_demand || (flushed && long) || is_slow(levels, finest) {
            Some(Users::new(GFP_MAYFAIL)?)
        } else {
            None
        };
        Ok(Arc::new(
            Self {
                extra,
                layout,
                leaves,
                access,
                pd: pd.as_raw() as usize,
                depth: depth as u8,
                levels: levels as u8,
                pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
                finest,
                on_demand,
                users,
                _charge: charge,
            },
            GFP_MAYFAIL,
        )?)
    }
}

/// The pieces of a layout.
struct Survey {
    /// The number of pieces.
    own: u64,
    /// An upper bound of the number of pieces at the bottom of all levels.
    pieces: u64,
    /// The bytes of the smallest piece at the bottom.
    finest: u16,
}

/// Checks that `layout` stays within its leaves, and counts its pieces. A block is cut where a
/// piece of a level below ends.
///
/// # Errors
///
/// `ERANGE` for a block outside of its leaf.
fn survey(layout: &KLayout, leaves: &[Leaf]) -> Result<Survey> {
    let (mut own, mut pieces, mut finest) = (0u64, 0u64, u16::MAX);
    layout.reach(|reach| {
        let leaf = leaves.get(reach.extent.leaf() as usize).ok_or(EINVAL)?;
        reach.extent.check_within(leaf.start, leaf.len)?;
        own = own.saturating_add(reach.count);
        pieces = pieces.saturating_add(reach.count.saturating_mul(leaf.place.pieces()));
        let len = u16::try_from(reach.len).unwrap_or(u16::MAX);
        finest = finest.min(len).min(leaf.place.finest());
        Ok::<_, Error>(())
    })?;
    Ok(Survey {
        own,
        pieces,
        finest,
    })
}

/// Returns the number of look-ups for a packet through `levels` levels: each level looks up each
/// piece of the level above. Cuts at the ends of pieces are not counted.
fn steps(levels: usize, finest: u16) -> u64 {
    let pieces = PACKET.checked_div(finest.into()).unwrap_or(PACKET);
    pieces.saturating_mul(levels as u64)
}

/// Returns `true` if an access to keys over keys can take so long that only a rebind of the same
/// key may wait for it.
fn is_slow(levels: usize, finest: u16) -> bool {
    levels > 1 && steps(levels, finest) > MAX_STEPS
}

/// Returns `true` if the pieces are so small that an access through all levels costs many times as
/// much as an access to memory.
fn is_fine(depth: usize, finest: u16) -> bool {
    steps(depth, finest) > FINE_STEPS
}
