// SPDX-License-Identifier: GPL-2.0

//! What is bound to a region: a layout over leaves. Never changed, only replaced.
//!
//! A leaf is memory of a driver's region, or another key. What is bound to that key stays so, for
//! it is pinned (`region/pins.rs`): all that is below a key is as it was checked when the key was bound.
//!
//! # Lifetime
//!
//! The data path reads under SRCU what is bound. An access that may have to wait for pages on
//! demand, and with them for whoever has the pages, is no SRCU reader, nor is one that goes through
//! many small pieces of keys over keys. It counts among the [`Users`], who hold up nobody but those
//! who rebind the same key.

use crate::{
    backend::{Backend, BaseMr, Hw},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::{eloop, eopnotsupp},
        rdma::{mr::Right, Access, Mr, Pd},
        sync::users::{User, Users},
    },
    layout::{Block, Entry, Indexed, Interleaved, Layout, List, Shape},
    limits::owner::OwnerCharge,
    region::{
        flat::{self, Flat},
        indices::{KIndexed, KIndices},
        pins::Pin,
        rights::Peer,
    },
};
use core::{mem::size_of, ops::Deref};
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
        ArcBorrow,
        UniqueArc, //
    },
};

/// Entries or blocks of one binding, at most.
pub(crate) const MAX_ENTRIES: u32 = crate::bindings::IB_MKEY_MAX_ENTRIES;

/// Levels of keys over keys, at most.
pub(crate) const MAX_DEPTH: usize = 8;

/// Levels that an access goes through, at most: a memory window may be over the outermost key.
pub(crate) const MAX_LEVELS: usize = MAX_DEPTH + 1;

/// Pieces of a layout that can be flushed to persistence, at most: a request to flush all of them
/// keeps a queue pair, and whoever rebinds the key, waiting.
const MAX_FLUSHED: u64 = 1 << 20;

/// What an access to a layout may take in its critical section, at most: pieces of a packet of
/// [`PACKET`] bytes, each multiplied by the levels that it is looked up through. More is done outside
/// of it, see [`Binding::users`].
const MAX_STEPS: u64 = 1024;

/// Look-ups of a packet of [`PACKET`] bytes from which on a nest is made flat, if it is not a short one.
const FINE_STEPS: u64 = 64;

/// Bytes of a packet.
const PACKET: u64 = 4096;

/// Bytes in one piece that are flushed in a critical section: more is flushed outside of it.
const LONG_FLUSHED: u64 = 1 << 24;

/// The layout of this module: entries in memory that need not be contiguous. Most are lists, so
/// what only interleaved and indexed ones have is elsewhere.
pub(crate) type KLayout = Layout<KVVec<Entry>, KVVec<Block>, KBox<Shape>, KIndexed>;

/// Makes a layout of `blocks`, repeated `repeat_count` times in each dimension.
///
/// # Errors
///
/// Those of [`Interleaved::new`]; `ENOMEM`.
pub(crate) fn interleaved(repeat_count: &[u64], blocks: KVVec<Block>) -> Result<KLayout> {
    let layout = Interleaved::new(repeat_count, blocks)?
        .with_shape(|shape| KBox::new(shape, GFP_MAYFAIL))?;
    Ok(KLayout::Interleaved(layout))
}

/// Where a leaf's bytes are.
pub(crate) enum Place {
    /// In a region of the driver's.
    Memory {
        /// The region.
        base: <Hw as Backend>::Base,
        /// What to add to an address to have one of `base`.
        delta: u64,
        /// Can what the region allows change? Then it is looked at on each access.
        mutable: bool,
    },
    /// Where the layout of a key says; addresses are offsets in it.
    Key(Arc<Binding>),
}

impl Place {
    fn depth(&self) -> usize {
        match self {
            Self::Memory { .. } => 0,
            Self::Key(bound) => bound.depth(),
        }
    }

    fn is_on_demand(&self) -> bool {
        match self {
            Self::Memory { base, .. } => base.is_on_demand(),
            Self::Key(bound) => bound.on_demand,
        }
    }

    /// Returns the fewest bytes of a piece at the bottom of all levels, cuts of the levels above
    /// apart.
    fn finest(&self) -> u16 {
        match self {
            Self::Memory { .. } => u16::MAX,
            Self::Key(bound) => bound.finest,
        }
    }

    fn pieces(&self) -> u64 {
        match self {
            Self::Memory { .. } => 1,
            Self::Key(bound) => bound.pieces.into(),
        }
    }

    /// Returns the levels that an access goes through.
    fn levels(&self) -> usize {
        match self {
            Self::Memory { .. } => 0,
            Self::Key(bound) => bound.levels.into(),
        }
    }
}

/// A range of memory that a layout refers to, by its lkey.
// Fields are dropped in order: nobody who is pinned is referred to from here when its pin goes.
pub(crate) struct Leaf {
    /// The lkey that was named.
    pub(crate) lkey: u32,
    /// First address that may be named.
    pub(crate) start: u64,
    /// Bytes from `start` on.
    pub(crate) len: u64,
    /// Rights at the time of the bind.
    pub(crate) access: Access,
    /// Where the bytes are.
    pub(crate) place: Place,
    /// Keeps what was named. Device memory's own regions have none: the core counts them in
    /// `ib_dm.usecnt`.
    pub(crate) _pin: Option<Pin>,
}

/// What is bound to a region.
// Fields are dropped in order: a flat list refers to bindings that the pins of leaves keep.
pub(crate) struct Binding {
    /// What few bindings have.
    extra: Option<KBox<Extra>>,
    /// Which bytes, in which order. Its leaves are indices of `leaves`.
    pub(crate) layout: KLayout,
    /// The memory.
    pub(crate) leaves: KVVec<Leaf>,
    /// The rights of the region.
    pub(crate) access: Access,
    /// The protection domain in which leaves must be.
    pub(crate) pd: usize,
    /// A number that its pieces, at the bottom of all levels, do not exceed. The most that the type
    /// can say stands for all that is larger.
    pieces: u32,
    /// Bytes of the smallest piece: what entries, blocks or the levels below say. The most that
    /// the type can say stands for all that is larger.
    finest: u16,
    /// Levels of keys, this one counted.
    depth: u8,
    /// Levels of keys that an access goes through, this one counted.
    levels: u8,
    /// Does it reach pages that come on demand?
    on_demand: bool,
    /// Those who are in it outside of SRCU, where an access can take long: it waits for pages, or
    /// goes through many pieces.
    pub(crate) users: Option<Arc<Users>>,
    /// What it takes of the kernel's memory; [`None`] where the region has paid for it.
    _charge: Option<OwnerCharge>,
}

/// What a binding has that is not an ordinary one.
enum Extra {
    /// What is particular to a memory window.
    Window(Window),
    /// The bytes of a nest, as ranges of memory.
    Flat(Flat),
}

/// What a binding of a memory window has beside that of a key.
pub(crate) struct Window {
    /// The address of its first byte.
    pub(crate) start: u64,
    /// Its protection domain.
    pub(crate) pd: usize,
    /// The QP that it is for; 0 for a window of type 1, which is for all in the domain.
    pub(crate) qp: usize,
}

// What a user is told that a binding over one leaf costs beyond its entries: this, its reference
// count, the shape, the leaf, and the leaf's place among the pins, each of a size that the allocator
// has. Only an interleaved layout has a shape; what an indexed one has in its place is smaller.
const _: () = {
    const BOUND: usize = 128;
    const SHAPE: usize = 256;
    const LEAF: usize = 96;
    // An `rb_node`, index and count: what the pins of one region take, however many.
    type Pinned = (usize, usize, usize, u32, u32);
    assert!(size_of::<Binding>() + size_of::<usize>() <= BOUND);
    assert!(size_of::<Shape>() <= SHAPE);
    assert!(size_of::<Indexed<KIndices>>() <= SHAPE);
    assert!(size_of::<KLayout>() <= size_of::<List<KVVec<Entry>>>() + size_of::<usize>());
    assert!(size_of::<Leaf>() <= LEAF);
    assert!(BOUND + SHAPE + LEAF + size_of::<Pinned>() <= 512);
};

impl Binding {
    /// Checks the layout against its leaves.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for a right that a leaf does not give,
    /// `ELOOP` for more than [`MAX_LEVELS`] levels, `EOPNOTSUPP` for the right to be flushed to
    /// persistence with pages on demand or more than [`MAX_FLUSHED`] pieces, `ENOMEM`. A leaf is
    /// used by its lkey, so local rights count: whatever writes, here or from afar, needs local
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
            Some(Flat {
                has_keys: false, ..
            }) => 1,
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

    /// Returns the levels of keys, this one counted.
    pub(crate) fn depth(&self) -> usize {
        self.depth.into()
    }

    /// Returns the flat list, if accesses use one.
    #[inline]
    pub(crate) fn flat(&self) -> Option<&Flat> {
        match self.extra.as_deref() {
            Some(Extra::Flat(flat)) => Some(flat),
            _ => None,
        }
    }

    /// Returns the layout that accesses use.
    #[inline]
    pub(crate) fn walked(&self) -> &KLayout {
        self.flat().map_or(&self.layout, |flat| &flat.layout)
    }

    /// Returns what is particular to a memory window.
    #[inline]
    fn window(&self) -> Option<&Window> {
        match self.extra.as_deref() {
            Some(Extra::Window(window)) => Some(window),
            _ => None,
        }
    }

    /// Returns the address of the first byte.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.window().map_or(0, |window| window.start)
    }

    /// Returns `true` if it is for `peer`, who reaches it by way of `mr`.
    #[inline]
    pub(crate) fn admits(&self, mr: &Mr, peer: &Peer) -> bool {
        match self.window() {
            None => mr.pd() as usize == peer.pd,
            Some(window) => window.pd == peer.pd && (window.qp == 0 || window.qp == peer.qp),
        }
    }

    /// Returns `true` if an access to it leaves SRCU, see [`Held`].
    pub(crate) fn is_slow(&self) -> bool {
        self.users.is_some()
    }

    /// Makes one that describes nothing, over memory that is there at all times. It is filled by
    /// who has it to himself, before anybody else sees it, see `region/fast_reg.rs`.
    pub(crate) fn unfilled(
        entries: KVVec<Entry>,
        leaves: KVVec<Leaf>,
        pd: &Pd,
    ) -> Result<UniqueArc<Self>> {
        Ok(UniqueArc::new(
            Self {
                extra: None,
                layout: KLayout::List(List::unfilled(entries)),
                leaves,
                access: Access::default(),
                pd: pd.as_raw() as usize,
                depth: 1,
                levels: 1,
                pieces: 0,
                finest: u16::MAX,
                on_demand: false,
                users: None,
                _charge: None,
            },
            GFP_KERNEL,
        )?)
    }
}

/// What the pieces of a layout are.
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

/// Can an access to keys over keys take so long that no other process is to wait for it?
fn is_slow(levels: usize, finest: u16) -> bool {
    levels > 1 && steps(levels, finest) > MAX_STEPS
}

/// Returns `true` if the pieces are so small that an access through all levels costs many times a
/// plain one.
fn is_fine(depth: usize, finest: u16) -> bool {
    steps(depth, finest) > FINE_STEPS
}

/// Accesses that were done outside of SRCU since the module was loaded.
static OUTSIDE: Atomic<i64> = Atomic::new(0);

/// Returns the number of accesses that were done outside of SRCU since the module was loaded.
pub(crate) fn accesses_outside() -> i64 {
    OUTSIDE.load(ordering::Relaxed)
}

/// What is bound, kept by one of its users.
// Fields are dropped in order: what is bound, and with it the pins, is gone when a wait for the users
// ends. Who waits may have given up and left the last reference here.
pub(crate) struct Held {
    bound: Arc<Binding>,
    _user: User,
}

impl Held {
    /// Keeps `bound` for an SRCU reader who is going to leave; [`None`] if no access to it waits.
    #[inline]
    pub(crate) fn new(bound: ArcBorrow<'_, Binding>) -> Option<Self> {
        let user = User::new(bound.users.as_ref()?);
        let bound = bound.into();
        OUTSIDE.add(1, ordering::Relaxed);
        Some(Self { bound, _user: user })
    }
}

impl Deref for Held {
    type Target = Binding;

    fn deref(&self) -> &Binding {
        &self.bound
    }
}
