// SPDX-License-Identifier: GPL-2.0

//! Bindings in the making: a layout is checked against its leaves.

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

/// Pieces of a layout that can be flushed to persistence, at most: a request to flush all of them
/// keeps a QP and a rebind of the key waiting.
const MAX_FLUSHED: u64 = 1 << 20;

/// Look-ups that an access may do in its critical section, at most: pieces of a packet of
/// [`PACKET`] bytes, each multiplied by the levels that it is looked up through. More is done outside
/// of it, see `Binding::users`.
const MAX_STEPS: u64 = 1024;

/// Look-ups of a packet of [`PACKET`] bytes from which on a nest is made flat, if it is not a short one.
const FINE_STEPS: u64 = 64;

/// Bytes of a packet.
const PACKET: u64 = 4096;

/// Bytes in one piece that are flushed in a critical section: more is flushed outside of it.
const LONG_FLUSHED: u64 = 1 << 24;

impl Binding {
    /// Checks the layout against its leaves.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for a right that a leaf does not give,
    /// `ELOOP` for more than [`MAX_LEVELS`] levels, `EOPNOTSUPP` for the right to be flushed to
    /// persistence with pages on demand or more than [`MAX_FLUSHED`] pieces, `ENOMEM`. A leaf is
    /// used by its lkey, so local rights count: every write, also that of a peer, needs local
    /// write.
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
    /// Their number.
    own: u64,
    /// A number that they do not exceed at the bottom of all levels.
    pieces: u64,
    /// Bytes of the smallest one at the bottom.
    finest: u16,
}

/// Checks that `layout` keeps within its leaves. A block that the pieces of a level below straddle
/// is cut where they end, but no more often than it has bytes of the smallest size.
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

/// Returns the look-ups that an access to a packet through `levels` levels may take, cuts at the
/// ends of pieces apart: each level looks up each piece of the one above.
fn steps(levels: usize, finest: u16) -> u64 {
    let pieces = PACKET.checked_div(finest.into()).unwrap_or(PACKET);
    pieces.saturating_mul(levels as u64)
}

/// Returns `true` if an access to keys over keys can take so long that other processes must not wait
/// for it.
fn is_slow(levels: usize, finest: u16) -> bool {
    levels > 1 && steps(levels, finest) > MAX_STEPS
}

/// Returns `true` if the pieces are so small that an access through all levels costs many times a
/// plain one.
fn is_fine(depth: usize, finest: u16) -> bool {
    steps(depth, finest) > FINE_STEPS
}
