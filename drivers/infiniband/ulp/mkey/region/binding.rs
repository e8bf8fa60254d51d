// SPDX-License-Identifier: GPL-2.0

//! The binding of a region: a layout over leaves. A binding that accesses can find is not changed,
//! only replaced. `region/binding/check.rs` checks and completes bindings, and
//! `region/binding/rights.rs` says which peers may use one. `region/binding/room.rs` keeps the
//! memory of short ones.
//!
//! A leaf is memory of one of the driver's MRs, or another key. A key that is a leaf is pinned
//! (`backend/pins.rs`), so its binding stays. All levels below a key therefore stay as the bind
//! checked them.

mod check;
pub(crate) mod rights;
mod room;

use crate::{
    backend::BaseMr,
    errors::Refused,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{Access, Pd},
        sync::rcu_arc::{RcuArc, RcuShared, RcuUnique},
    },
    layout::{
        AsIndexed, Block, Entry, IndexSlice, Indexed, Indices, Interleaved, Layout, List, Shape,
    },
    limits::owner::OwnerCharge,
    region::state::{LeafPin, PinnedFor},
};
pub(crate) use room::{keep, Room};

use core::mem::size_of;
use kernel::{prelude::*, sync::Arc};

/// The most entries or blocks of one binding.
pub(crate) const MAX_ENTRIES: u32 = crate::bindings::IB_MKEY_MAX_ENTRIES;

/// The most indices of one key.
pub(crate) const MAX_INDICES: u32 = crate::bindings::IB_MKEY_MAX_INDICES;

/// The most levels of keys over keys.
pub(crate) const MAX_DEPTH: usize = 8;

/// The layout type of this module. Its memory need not be contiguous. The parts that only
/// interleaved and indexed layouts have are in boxes, because most layouts are lists.
pub(crate) type KLayout = Layout<KVVec<Entry>, KVVec<Block>, KBox<Shape>, KIndexed>;

/// The indices of an indexed layout, in the size in which the caller gave them. Their memory need
/// not be contiguous.
pub(crate) enum KIndices {
    /// Of 32 bits.
    U32(KVVec<u32>),
    /// Of 64 bits.
    U64(KVVec<u64>),
}

impl Indices for KIndices {
    fn as_slice(&self) -> IndexSlice<'_> {
        match self {
            Self::U32(indices) => IndexSlice::U32(indices),
            Self::U64(indices) => IndexSlice::U64(indices),
        }
    }
}

/// An indexed layout of this module. It is in a box, so that [`KLayout`] is not larger for other
/// layouts.
pub(crate) type KIndexed = KBox<Indexed<KIndices>>;

impl AsIndexed for KIndexed {
    type Indices = KIndices;

    fn as_indexed(&self) -> &Indexed<KIndices> {
        self
    }
}

/// Makes a layout of `blocks`, repeated `repeat_count` times in each dimension.
pub(crate) fn interleaved(
    repeat_count: &[u64],
    (blocks, shape): (KVVec<Block>, KBox<Shape>),
) -> Result<KLayout, Refused> {
    let layout = Interleaved::in_place(repeat_count, blocks, shape)?;
    Ok(KLayout::Interleaved(layout))
}

/// The place of the bytes of a leaf.
pub(crate) enum LeafPlace {
    /// In one of the driver's MRs.
    Memory {
        /// The MR.
        base: BaseMr,
        /// The offset to add to an address of the leaf. The sum is an address of `base`.
        delta: u64,
        /// `true` if the access flags of the MR can change. Then each access checks them.
        mutable: bool,
    },
    /// In the layout of a key.
    Key(RcuArc<Binding>),
}

impl LeafPlace {
    fn depth(&self) -> usize {
        match self {
            Self::Memory { .. } => 0,
            Self::Key(binding) => binding.depth(),
        }
    }

    /// Returns `true` if a read of the bytes may wait for a process.
    pub(crate) fn is_on_demand(&self) -> bool {
        match self {
            Self::Memory { base, .. } => base.is_on_demand(),
            Self::Key(binding) => binding.is_on_demand(),
        }
    }
}

/// A range of memory that a layout refers to, by its lkey.
// Fields drop in declaration order: `place` releases the pinned MR before `_pin` unpins it.
pub(crate) struct Leaf {
    /// The lkey that the description named.
    pub(crate) lkey: u32,
    /// The first address of the leaf.
    pub(crate) start: u64,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The access flags at the time of the bind.
    pub(crate) access: Access,
    /// The place of its bytes.
    pub(crate) place: LeafPlace,
    /// Pins the MR of `lkey`. The leaf of a region over device memory has no pin, because `ib_core`
    /// counts such regions in `ib_dm.usecnt`. The leaf of a fast registration has no pin, because
    /// the MR of all memory is never deregistered.
    pub(crate) _pin: Option<LeafPin>,
}

impl Leaf {
    /// Returns `true` if the leaf is a key.
    pub(crate) fn is_key(&self) -> bool {
        matches!(self.place, LeafPlace::Key(_))
    }

    /// Returns a copy of a leaf that is memory, for a binding over the key with this leaf. The copy
    /// has no pin, because the key keeps its leaves.
    /// Fails with `EFAULT` for a key.
    pub(super) fn copied(&self) -> Result<Self> {
        let LeafPlace::Memory {
            base,
            delta,
            mutable,
        } = &self.place
        else {
            return Err(EFAULT);
        };
        Ok(Self {
            lkey: self.lkey,
            start: self.start,
            len: self.len,
            access: self.access,
            place: LeafPlace::Memory {
                base: base.clone(),
                delta: *delta,
                mutable: *mutable,
            },
            _pin: None,
        })
    }
}

/// A binding of a region.
// Fields drop in declaration order: the layout of keys over keys drops before the leaves, whose
// pins keep the keys below and their memory.
pub(crate) struct Binding {
    /// The parts that few bindings have.
    extra: Option<KBox<Extra>>,
    /// The layout. Its leaves are indices of `leaves`.
    pub(crate) layout: KLayout,
    /// The leaves.
    pub(crate) leaves: KVVec<Leaf>,
    /// The access flags of the region.
    pub(crate) access: Access,
    /// The protection domain of the leaves.
    pub(crate) pd: usize,
    /// The address of the first byte.
    pub(crate) start: u64,
    /// The number of levels of keys, including this one.
    depth: u8,
    /// The key portion of the rkey by which peers name the binding.
    portion: u8,
    /// The bits [`ON_DEMAND`] and [`PEERS_END`].
    marks: u8,
    /// The number among the bindings of a key; 0 for other regions. Pins are made for it.
    pub(crate) number: u64,
    /// The region to which the binding returns; [`None`] until the region is bound to it.
    pub(crate) home: Option<Arc<dyn Home>>,
    /// The charge for the kernel's memory of the binding; [`None`] if the region's charge covers
    /// it.
    charge: Option<OwnerCharge>,
}

/// A part that few bindings have.
enum Extra {
    /// The range of a key that is all bytes of the binding.
    Range(Range),
    /// The bytes of keys over keys, as one layout over memory.
    Flat(Flat),
    /// The registration, in a binding of a fast registration.
    Registered(Registered),
}

/// A region that had a binding.
pub(crate) trait Home: Send + Sync {
    /// Gets a retired binding back, which no access uses any more.
    fn released(&self, binding: RcuUnique<Binding>);
}

/// A fast registration.
#[derive(Default)]
pub(crate) struct Registered {
    /// The lkey and rkey of the registration.
    pub(crate) key: u32,
    /// The access flags.
    pub(crate) access: Access,
}

/// A range of a key.
pub(crate) struct Range {
    /// The binding of the key. All its leaves are memory, or it has a layout over memory.
    pub(super) binding: RcuArc<Binding>,
    /// The offset of the first byte in that binding.
    pub(super) offset: u64,
}

/// Keys over keys as one layout over memory.
pub(crate) struct Flat {
    /// The layout. Its leaves are indices of `leaves`.
    pub(super) layout: KLayout,
    /// The leaves, which are memory.
    pub(super) leaves: KVVec<Leaf>,
    /// The charge for the memory of the layout.
    pub(super) _charge: OwnerCharge,
}

// The documentation says that a binding over one leaf takes 608 bytes beside its entries: the
// binding with its reference count, the shape, the leaf, and the leaf's pin, each rounded up to a
// size of the allocator. Only an interleaved layout has a shape. An indexed layout has a smaller
// box instead.
const _: () = {
    const BOUND: usize = 192;
    const SHAPE: usize = 256;
    const LEAF: usize = 96;
    const PIN: usize = 64;
    // An `rb_node`, index, number and binding.
    type Pinned = ([usize; 3], (u32, u64), Option<PinnedFor>);
    assert!(size_of::<Pinned>() <= PIN);
    assert!(size_of::<Binding>() + size_of::<usize>() <= BOUND);
    assert!(size_of::<Shape>() <= SHAPE);
    assert!(size_of::<Indexed<KIndices>>() <= SHAPE);
    assert!(size_of::<KLayout>() <= size_of::<List<KVVec<Entry>>>() + size_of::<usize>());
    assert!(size_of::<Leaf>() <= LEAF);
    assert!(BOUND + SHAPE + LEAF + PIN <= 608);
};

/// In `Binding::marks`: a leaf at any level is an ODP MR.
const ON_DEMAND: u8 = 1 << 0;
/// In `Binding::marks`: a peer may invalidate the binding even if it has no remote access flag.
const PEERS_END: u8 = 1 << 1;

impl Binding {
    /// Returns the number of levels of keys, including this one.
    pub(crate) fn depth(&self) -> usize {
        self.depth.into()
    }

    /// Returns the range of a key that is all bytes of the binding, if there is one.
    pub(crate) fn range(&self) -> Option<&Range> {
        match self.extra.as_deref() {
            Some(Extra::Range(range)) => Some(range),
            _ => None,
        }
    }

    /// Returns the binding that has the bytes of this one, and the offset of the first byte in it.
    /// That is this binding unless it is one range of a key.
    pub(crate) fn target(&self) -> (&Self, u64) {
        match self.range() {
            None => (self, 0),
            Some(range) => (&range.binding, range.offset),
        }
    }

    /// Returns the layout over memory that accesses use, and its leaves. The binding must be a
    /// [target](Self::target).
    pub(crate) fn memory(&self) -> (&KLayout, &[Leaf]) {
        match self.extra.as_deref() {
            Some(Extra::Flat(flat)) => (&flat.layout, &flat.leaves),
            _ => (&self.layout, &self.leaves),
        }
    }

    /// Returns the fast registration of which this is the binding.
    pub(crate) fn registered(&self) -> Option<&Registered> {
        match self.extra.as_deref() {
            Some(Extra::Registered(registered)) => Some(registered),
            _ => None,
        }
    }

    /// Returns the place for the fast registration of which this is the binding.
    pub(crate) fn registered_mut(&mut self) -> Option<&mut Registered> {
        match self.extra.as_deref_mut() {
            Some(Extra::Registered(registered)) => Some(registered),
            _ => None,
        }
    }

    /// Returns `true` if a leaf at any level is an ODP MR.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.marks & ON_DEMAND != 0
    }

    /// Makes a binding that [`Self::complete`] checks and completes.
    pub(crate) fn new(
        layout: KLayout,
        leaves: KVVec<Leaf>,
        charge: Option<OwnerCharge>,
    ) -> Result<RcuUnique<Self>> {
        let binding = Self {
            extra: None,
            layout,
            leaves,
            access: Access::default(),
            pd: 0,
            start: 0,
            depth: 1,
            portion: 0,
            marks: 0,
            number: 0,
            home: None,
            charge,
        };
        RcuUnique::new(binding, GFP_MAYFAIL)
    }

    /// Makes an empty binding over memory that is never deregistered. The caller fills the binding
    /// before an access can find it, see `region/fast_reg.rs`.
    pub(crate) fn unfilled(
        entries: KVVec<Entry>,
        leaves: KVVec<Leaf>,
        pd: &Pd,
    ) -> Result<RcuUnique<Self>> {
        let mut binding = Self::new(KLayout::List(List::unfilled(entries)), leaves, None)?;
        let registered = Extra::Registered(Registered::default());
        binding.extra = Some(KBox::new(registered, GFP_KERNEL)?);
        binding.pd = pd.as_raw() as usize;
        Ok(binding)
    }
}

impl RcuShared for Binding {
    fn released(mut this: RcuUnique<Self>) {
        match this.home.take() {
            Some(home) => home.released(this),
            None => drop(this),
        }
    }
}
