// SPDX-License-Identifier: GPL-2.0

//! Regions that kernel users map scatterlists to and register by work requests
//! (`IB_MR_TYPE_SG_GAPS`).
//!
//! A registration has three steps. `ib_map_mr_sg()`, in any context, *stages* a layout. REG_MR, in
//! the order of the queue, makes the staged layout *active*: accesses see it from then on.
//! LOCAL_INV, or SEND with invalidate, deactivates the layout. It is then staged again, unless a
//! newer layout is staged, because some ULPs register the same elements repeatedly. There are two
//! layouts, so mapping never changes the active one.
//!
//! # Locking
//!
//! `FastReg::slots` protects the places of the layouts. Any context may take this spinlock; no byte
//! is copied under it. It nests in the lock of the pins, and serialises the writers of
//! `FastReg::active`.
//!
//! An access takes no lock. It is counted as a reader of the active layout, and an invalidation
//! waits until that count is zero. The wait may be in a critical section of SRCU, because the
//! readers wait for nothing. A grace period of SRCU, for which the module waits elsewhere, is too
//! slow here: storage ULPs invalidate an MR once for each of their requests, and the queue waits
//! meanwhile. LOCAL_INV takes 2 us with the count, 48 us with an expedited grace period and 50 us
//! with an ordinary one (medians of 1,000 in an idle guest without KVM).

use crate::{
    backend::{
        pins::{IsPinned, Pins, Unpinned},
        Backend, Claimed, ClaimedMr, Hw,
    },
    kernel_ext::{
        rdma::{mr::Right, mr_key, scatterlist::MappedElements, Access, Pd},
        sync::{
            counted::{CountedCell, Reader, Taken},
            lock::{new_irq_lock, IrqLock},
        },
    },
    layout::Entry,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace, Registered, MAX_ENTRIES},
        rights::{self, serves_peers, Origin},
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, UniqueArc},
};

/// The state of a region for fast registration.
#[pin_data]
pub(crate) struct FastReg {
    /// The most elements of a layout.
    max: usize,
    #[pin]
    slots: IrqLock<Slots>,
    /// The layout that is registered.
    active: CountedCell<Binding>,
    /// The pins of the device. They are here so that a work request finds them without the device's
    /// data.
    pins: Arc<Pins>,
}

/// The places of the two layouts. Each layout is in one of these places or in `FastReg::active`, or
/// a mapping is filling it.
struct Slots {
    /// The layout of the next registration.
    staged: Option<UniqueArc<Binding>>,
    /// An unused layout.
    spare: Option<UniqueArc<Binding>>,
    /// The page size that the last mapping asked for.
    page_size: u32,
    /// The number of invalidations that wait for accesses.
    waiting: usize,
}

/// The active layout, kept by a leaf of a key.
pub(crate) struct Active {
    pub(crate) binding: Arc<Binding>,
    /// The address of its first byte.
    pub(crate) start: u64,
    /// The access flags of the registration.
    pub(crate) access: Access,
}

impl Slots {
    /// Stages a layout that is not active any more, unless a newer one is staged.
    fn put_back(&mut self, binding: Arc<Binding>) {
        // No leaf of a key keeps the layout, because the MR was not pinned.
        let Some(binding) = Arc::into_unique_or_drop(binding).map(Pin::into_inner) else {
            return;
        };
        if self.staged.is_none() {
            self.staged = Some(binding);
        } else {
            self.spare = Some(binding);
        }
    }
}

/// The end of a registration.
#[must_use]
enum Withdrawn {
    /// No access is in progress, and the layout is staged again.
    Unread,
    /// Accesses to the layout, or to an earlier one, may be in progress.
    Read(Option<Taken<Binding>>),
}

/// Makes an empty layout with room for `max` elements of `memory`.
fn empty_layout(pd: &Pd, memory: <Hw as Backend>::Base, max: usize) -> Result<UniqueArc<Binding>> {
    let mut leaves = KVVec::with_capacity(1, GFP_KERNEL)?;
    leaves.push(
        Leaf {
            lkey: 0,
            start: 0,
            len: u64::MAX,
            access: Access::from(Right::LocalWrite),
            place: LeafPlace::Memory {
                base: memory,
                delta: 0,
                mutable: false,
            },
            _pin: None,
        },
        GFP_KERNEL,
    )?;
    Binding::unfilled(KVVec::with_capacity(max, GFP_KERNEL)?, leaves, pd)
}

/// Fills `binding` with the first `max` of `elements`. Returns their number and their total length.
fn fill(
    binding: &mut Binding,
    elements: impl Iterator<Item = (u64, u64)>,
    max: usize,
) -> Result<(usize, u64)> {
    let KLayout::List(list) = &mut binding.layout else {
        return Err(EINVAL);
    };
    list.refill(|entries| {
        entries.clear();
        for (addr, length) in elements.take(max) {
            // `max` entries fit.
            let _ = entries.push_within_capacity(Entry::new(0, addr, length));
        }
    })?;
    Ok((list.entries().len(), list.length()))
}

impl FastReg {
    /// Makes two layouts with room for `max` elements each. `memory` is an MR over all memory,
    /// `pins` are those of the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `max` is 0 or exceeds [`MAX_ENTRIES`]; `ENOMEM`.
    pub(crate) fn new(
        pd: &Pd,
        memory: <Hw as Backend>::Base,
        max: u32,
        pins: Arc<Pins>,
    ) -> Result<Pin<KBox<Self>>> {
        if max == 0 || max > MAX_ENTRIES {
            return Err(EINVAL);
        }
        let max = max as usize;
        let slots = Slots {
            staged: Some(empty_layout(pd, memory.clone(), max)?),
            spare: Some(empty_layout(pd, memory, max)?),
            page_size: PAGE_SIZE as u32,
            waiting: 0,
        };
        let active = CountedCell::new()?;
        KBox::pin_init(
            pin_init!(Self {
                max,
                slots <- new_irq_lock!(slots, "ib_mkey fast registration"),
                active,
                pins,
            }),
            GFP_KERNEL,
        )
    }

    /// Stages a layout of as many of the first `elements` as fit. Each has an address and a length.
    /// Does not sleep. [`Self::page_size`] returns `page_size` from then on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no element or an element of 0 bytes; `EOVERFLOW`; `EBUSY` if another thread
    /// maps at the same time. The layout that was staged before stays.
    pub(crate) fn map(
        &self,
        elements: impl Iterator<Item = (u64, u64)> + Clone,
        page_size: u32,
    ) -> Result<MappedElements> {
        let spare = self.slots.lock().spare.take();
        let mut binding = match spare {
            Some(binding) => binding,
            // No unused layout is left, so the staged one is overwritten. The elements are checked
            // first, because a failure after this would lose the staged layout.
            None => {
                let entries = elements.clone().take(self.max);
                Entry::total(entries.map(|(addr, length)| Entry::new(0, addr, length)))?;
                self.slots.lock().staged.take().ok_or(EBUSY)?
            }
        };
        let start = elements.clone().next().map_or(0, |(addr, _)| addr);
        let result = fill(&mut binding, elements, self.max);
        let mut slots = self.slots.lock();
        if result.is_ok() {
            slots.page_size = page_size;
            let before = slots.staged.replace(binding);
            // There are only two layouts, `binding` and `before`, so `spare` is empty.
            if before.is_some() {
                slots.spare = before;
            }
        } else {
            slots.spare = Some(binding);
        }
        drop(slots);
        result.map(|(count, length)| MappedElements {
            count,
            start,
            length,
        })
    }

    /// Returns the page size that the last mapping asked for.
    pub(crate) fn page_size(&self) -> u32 {
        self.slots.lock().page_size
    }

    /// Makes the staged layout active. `key` becomes the lkey and the rkey.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the MR is registered already, has no staged layout or is in another protection
    /// domain, if `key` names another MR, and if an access flag is not supported.
    pub(crate) fn register(&self, mr: &Claimed, pd: &Pd, key: u32, access: Access) -> Result {
        // The mapped memory may not be persistent, so it cannot be flushed to persistence.
        let supported = rights::supported(access) && !access.contains(Right::FlushPersistent);
        if mr.pd() != pd.as_raw() || !supported {
            return Err(EINVAL);
        }
        let mut slots = self.slots.lock();
        let own = mr_key::is_same_index(key, mr.key());
        if !mr.is_free() || !own || self.active.is_filled() || slots.waiting != 0 {
            return Err(EINVAL);
        }
        let mapped = slots.staged.take_if(|binding| binding.layout.length() != 0);
        let mut binding = mapped.ok_or(EINVAL)?;
        // The binding always allows local write, because the driver checks that flag of the MR. A
        // peer's write does not require the flag here.
        binding.access = access | Right::LocalWrite;
        // Some ULPs set `iova` to another address than that of the first element, after mapping.
        let start = mr.iova();
        binding.register(Registered { start, key, access });
        // The cell is empty: `is_filled()` returned `false` under the same lock.
        let _ = self.active.fill(binding.into());
        mr.register(key, access);
        Ok(())
    }

    /// Ends the registration, unless a bound key refers to its elements. No access to them is left
    /// when this returns. Sleeps if accesses are in progress. The wait is short, because these
    /// accesses copy kernel memory and wait for nothing.
    ///
    /// # Errors
    ///
    /// [`IsPinned`] if a bound key refers to the elements. In the inner result: `EINVAL` for
    /// another key or protection domain than those of the registration, and for a peer if the
    /// registration has no remote access flag.
    pub(crate) fn end(
        &self,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
    ) -> Result<Result, IsPinned> {
        let withdraw = |_: &Unpinned<'_>| self.withdraw(mr, pd, key, origin);
        let withdrawn = self.pins.if_unpinned(mr.index(), withdraw)?;
        Ok(withdrawn.map(|withdrawn| {
            if let Withdrawn::Read(active) = withdrawn {
                self.wait_for_accesses(active);
            }
        }))
    }

    /// Ends the registration. Does not sleep. If the result is [`Withdrawn::Read`], the caller
    /// calls [`Self::wait_for_accesses`], and no registration begins before that returns. The
    /// caller holds the lock of the pins, and the MR is not pinned.
    fn withdraw(&self, mr: &Claimed, pd: &Pd, key: u32, origin: Origin) -> Result<Withdrawn> {
        if mr.pd() != pd.as_raw() {
            return Err(EINVAL);
        }
        let mut slots = self.slots.lock();
        if key != mr.key() {
            return Err(EINVAL);
        }
        let serves = |active: &Binding| serves_peers(active.access);
        if origin == Origin::Remote && !self.active.read().is_some_and(|active| serves(&active)) {
            return Err(EINVAL);
        }
        if self.active.is_filled() {
            mr.invalidate();
        }
        match self.active.take_unread() {
            Ok(active) => {
                if let Some(binding) = active {
                    slots.put_back(binding);
                }
                Ok(Withdrawn::Unread)
            }
            Err(active) => {
                slots.waiting = slots.waiting.saturating_add(1);
                Ok(Withdrawn::Read(active))
            }
        }
    }

    /// Waits until no access is left through a layout that was active. Sleeps.
    fn wait_for_accesses(&self, active: Option<Taken<Binding>>) {
        // Another invalidation may wait for accesses. This one waits for them, too.
        self.active.wait_for_readers();
        let active = active.and_then(Taken::wait);
        let mut slots = self.slots.lock();
        slots.waiting = slots.waiting.saturating_sub(1);
        if let Some(binding) = active {
            slots.put_back(binding);
        }
    }

    /// Returns the active layout, for a leaf of a key. The caller holds the lock of the pins, and
    /// drops the layout before it unpins the MR.
    pub(crate) fn active(&self) -> Option<Active> {
        let active = self.active.read()?;
        let registered = active.registered()?;
        Some(Active {
            binding: active.keep(),
            start: registered.start,
            access: registered.access,
        })
    }

    /// Returns `true` if `length` bytes from address `iova` on are registered.
    pub(crate) fn contains(&self, iova: u64, length: u64) -> bool {
        let inside = |active: &Binding| {
            let whole = active.layout.length();
            let start = active.registered()?.start;
            Some(length <= whole && iova.wrapping_sub(start) <= whole - length)
        };
        self.active
            .read()
            .is_some_and(|active| inside(&active).unwrap_or(false))
    }

    /// Begins an access at address `iova`. Returns the active layout, which stays until the result
    /// is dropped, and the offset of `iova` in it. `rkey` is that of a peer's request.
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is registered, `EACCES` for the rkey of another registration.
    #[inline(always)]
    pub(crate) fn begin(&self, iova: u64, rkey: Option<u32>) -> Result<(Reader<'_, Binding>, u64)> {
        let active = self.active.read().ok_or(EINVAL)?;
        let registered = active.registered().ok_or(EINVAL)?;
        if rkey.is_some_and(|rkey| rkey != registered.key) {
            return Err(EACCES);
        }
        let at = iova.wrapping_sub(registered.start);
        Ok((active, at))
    }
}
