// SPDX-License-Identifier: GPL-2.0

//! What is bound to a region: a layout over leaves. A binding is never changed, only replaced.
//! `region/binding/check.rs` makes one.
//!
//! A leaf is memory of a driver's MR, or another key. That key is pinned (`region/pins.rs`), so that
//! its binding stays: all below a key is as it was checked when the key was bound.
//!
//! # Lifetime
//!
//! The data path reads bindings under SRCU. An access that may wait for pages on demand is no SRCU
//! reader, because a process decides how long that takes. Neither is an access that goes through many
//! small pieces of keys over keys. Such an access counts among the [`Users`] of the binding: only a
//! rebind of the same key waits for it.

mod check;

use crate::{
    backend::{Backend, BaseMr, Hw},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{Access, Mr, Pd},
        sync::users::{User, Users},
    },
    layout::{Block, Entry, Indexed, Interleaved, Layout, List, Shape},
    limits::owner::OwnerCharge,
    region::{
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

/// A place of the bytes of a leaf.
pub(crate) enum LeafPlace {
    /// In a region of the driver's.
    Memory {
        /// The region.
        base: <Hw as Backend>::Base,
        /// What to add to an address to have one of `base`.
        delta: u64,
        /// `true` if the rights of the MR can change. Then each access checks them.
        mutable: bool,
    },
    /// In a key; addresses are offsets in its layout.
    Key(Arc<Binding>),
}

impl LeafPlace {
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
// Fields drop in declaration order: `place` releases the pinned MR before `_pin` unpins it.
pub(crate) struct Leaf {
    /// The lkey that was named.
    pub(crate) lkey: u32,
    /// First address that may be named.
    pub(crate) start: u64,
    /// Bytes from `start` on.
    pub(crate) len: u64,
    /// Rights at the time of the bind.
    pub(crate) access: Access,
    /// The place of its bytes.
    pub(crate) place: LeafPlace,
    /// Keeps what was named. Device memory's own regions have none: the core counts them in
    /// `ib_dm.usecnt`.
    pub(crate) _pin: Option<Pin>,
}

/// What is bound to a region.
// Fields drop in declaration order: a flat list refers to bindings that the pins of leaves keep.
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
    /// `true` if it reaches pages that come on demand.
    on_demand: bool,
    /// The accesses outside of SRCU, if an access can take long: it waits for pages, or goes through
    /// many pieces.
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

/// A leaf of a flat list.
pub(crate) struct Reached {
    /// The binding whose leaf it is; [`None`] for the binding that has the list.
    pub(super) key: Option<Arc<Binding>>,
    /// The number of the leaf there.
    pub(super) index: u32,
}

/// A nest as one list.
pub(crate) struct Flat {
    /// The list. Its leaves are indices of `leaves`.
    pub(super) layout: KLayout,
    pub(super) leaves: KVVec<Reached>,
    /// `true` if an entry is a range of a key.
    pub(super) has_keys: bool,
}

impl Flat {
    /// Returns the binding whose leaf `index` of the list is, or [`None`] for the binding that has the
    /// list; and the number of the leaf there.
    #[inline]
    pub(crate) fn leaf(&self, index: u32) -> Option<(Option<&Arc<Binding>>, u32)> {
        let reached = self.leaves.get(index as usize)?;
        Some((reached.key.as_ref(), reached.index))
    }
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

    /// Returns `true` if it is for `peer`, which reaches it by way of `mr`.
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

    /// Makes a binding that describes nothing, over memory that is always there. Its only owner fills
    /// it before others see it, see `region/fast_reg.rs`.
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

/// Accesses that were done outside of SRCU since the module was loaded.
static OUTSIDE: Atomic<i64> = Atomic::new(0);

/// Returns the number of accesses that were done outside of SRCU since the module was loaded.
pub(crate) fn accesses_outside() -> i64 {
    OUTSIDE.load(ordering::Relaxed)
}

/// A binding, kept by one of its users.
// Fields drop in declaration order: the binding, and its pins, go before a wait for the users ends.
// That wait may have been given up, and the last reference may be here.
pub(crate) struct Held {
    bound: Arc<Binding>,
    _user: User,
}

impl Held {
    /// Keeps `bound` for an SRCU reader that is about to leave; [`None`] if accesses to it are short.
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
