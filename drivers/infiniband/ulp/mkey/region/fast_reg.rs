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
//! is copied under it. It nests in the lock of the pins. It serialises the changes of the binding of
//! the region, which is the active layout.
//!
//! An access takes no lock. It keeps the active layout by a reference, as an access to a key does.
//! The last reference gives the layout back to its place (`Binding::released()`). No reference is
//! dropped under the lock.

use crate::{
    backend::{
        pins::{IsPinned, Unpinned},
        Backend, Claimed, ClaimedMr, Hw,
    },
    kernel_ext::{
        rdma::{mr::Right, mr_key, scatterlist::MappedElements, Access, Pd},
        sync::{
            lock::{new_irq_lock, IrqLock},
            pending::Timeout,
            rcu_arc::{RcuArc, RcuUnique},
        },
    },
    layout::Entry,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace, Registered, MAX_ENTRIES},
        rights::{self, serves_peers, Origin},
        Kind, Pins, Region,
    },
};
use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

/// The state of a region for fast registration.
#[pin_data]
pub(crate) struct FastReg {
    /// The most elements of a layout.
    max: usize,
    #[pin]
    slots: IrqLock<Slots>,
    /// The pins of the device. They are here so that a work request finds them without the device's
    /// data.
    pins: Arc<Pins>,
}

/// The places of the two layouts. Each layout is in one of these places, or is the binding of the
/// region, or is retired, or a mapping is filling it.
struct Slots {
    /// The layout of the next registration.
    staged: Option<RcuUnique<Binding>>,
    /// An unused layout.
    spare: Option<RcuUnique<Binding>>,
    /// The page size that the last mapping asked for.
    page_size: u32,
}

/// The active layout, kept by a leaf of a key.
pub(crate) struct Active {
    pub(crate) binding: RcuArc<Binding>,
    /// The address of its first byte.
    pub(crate) start: u64,
    /// The access flags of the registration.
    pub(crate) access: Access,
}

/// Makes an empty layout with room for `max` elements of `memory`.
fn empty_layout(pd: &Pd, memory: <Hw as Backend>::Base, max: usize) -> Result<RcuUnique<Binding>> {
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
    ) -> Result<Arc<Self>> {
        if max == 0 || max > MAX_ENTRIES {
            return Err(EINVAL);
        }
        let max = max as usize;
        let slots = Slots {
            staged: Some(empty_layout(pd, memory.clone(), max)?),
            spare: Some(empty_layout(pd, memory, max)?),
            page_size: PAGE_SIZE as u32,
        };
        Arc::pin_init(
            pin_init!(Self {
                max,
                slots <- new_irq_lock!(slots, "ib_mkey fast registration"),
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

    /// Gets a layout back that no access uses any more. Stages it, unless a newer one is staged.
    pub(super) fn put_back(&self, layout: RcuUnique<Binding>) {
        let mut slots = self.slots.lock();
        let slots = &mut *slots;
        let place = if slots.staged.is_none() {
            &mut slots.staged
        } else {
            &mut slots.spare
        };
        // There are only two layouts, so the place is empty.
        *place = Some(layout);
    }
}

impl Region {
    /// Makes the staged layout active. `key` becomes the lkey and the rkey.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR that is not for fast registration, if the MR is registered already, has no
    /// staged layout or is in another protection domain, if `key` names another MR, and if an access
    /// flag is not supported.
    pub(crate) fn register(
        self: &Arc<Self>,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        access: Access,
    ) -> Result {
        let fast = self.fast_reg()?;
        // The mapped memory may not be persistent, so it cannot be flushed to persistence.
        let supported = rights::supported(access) && !access.contains(Right::FlushPersistent);
        if mr.pd() != pd.as_raw() || !supported {
            return Err(EINVAL);
        }
        let mut slots = fast.slots.lock();
        let own = mr_key::is_same_index(key, mr.key());
        if !mr.is_free() || !own || !self.binding.is_empty() || !self.retired.is_none() {
            return Err(EINVAL);
        }
        let mapped = slots.staged.take_if(|binding| binding.layout.length() != 0);
        let mut binding = mapped.ok_or(EINVAL)?;
        // The binding always allows local write, because the driver checks that flag of the MR. A
        // peer's write does not require the flag here.
        binding.access = access | Right::LocalWrite;
        if let Some(registered) = binding.registered_mut() {
            *registered = Registered {
                home: Some(fast.clone()),
                // Some ULPs set `iova` to another address than that of the first element, after
                // mapping.
                start: mr.iova(),
                key,
                access,
            };
        }
        // The region has no binding, as the check above showed under the same lock.
        let before = self.exchange_binding(Some(binding));
        mr.register(key, access);
        self.registered_as(key);
        drop(slots);
        drop(before);
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
    pub(super) fn end_registration(
        self: &Arc<Self>,
        fast: &FastReg,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
    ) -> Result<Result, IsPinned> {
        let withdraw = |_: &Unpinned<'_>| self.withdraw(fast, mr, pd, key, origin);
        let withdrawn = fast.pins.if_unpinned(mr.index(), withdraw)?;
        Ok(withdrawn.map(|active| {
            // This gives the layout back, unless accesses keep it.
            drop(active);
            // An endless wait has no error.
            let _ = self.retired.wait(Timeout::Never);
        }))
    }

    /// Takes the active layout out. Does not sleep. The caller holds the lock of the pins, and the
    /// MR is not pinned.
    fn withdraw(
        self: &Arc<Self>,
        fast: &FastReg,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
    ) -> Result<Option<RcuArc<Binding>>> {
        if mr.pd() != pd.as_raw() {
            return Err(EINVAL);
        }
        let _slots = fast.slots.lock();
        if key != mr.key() {
            return Err(EINVAL);
        }
        if origin == Origin::Remote {
            let active = self.binding.get();
            let serves = active
                .as_ref()
                .is_some_and(|active| serves_peers(active.access));
            // The region keeps the layout while the lock is held, so this is not the last reference.
            drop(active);
            if !serves {
                return Err(EINVAL);
            }
        }
        if !self.binding.is_empty() {
            mr.invalidate();
        }
        Ok(self.exchange_binding(None))
    }

    /// Ends a fast registration by LOCAL_INV, or by a peer's SEND with invalidate. Waits at most as
    /// long as `timeout` allows for retired bindings that pin the MR. The errors are those of
    /// [`Self::end_registration`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR that is not for fast registration.
    pub(crate) fn invalidate_registration(
        self: &Arc<Self>,
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        origin: Origin,
        timeout: Timeout,
    ) -> Result {
        let fast = self.fast_reg()?;
        let end = || self.end_registration(fast, mr, pd, key, origin);
        fast.pins.when_unpinned(mr.index(), timeout, end)?
    }

    fn fast_reg(&self) -> Result<&Arc<FastReg>> {
        match &self.kind {
            Kind::FastReg(fast) => Ok(fast),
            _ => Err(EINVAL),
        }
    }

    /// Returns the active layout, for a leaf of a key. The caller holds the lock of the pins, and
    /// drops the layout before it unpins the MR.
    pub(crate) fn active(&self) -> Option<Active> {
        let binding = self.binding.get()?;
        let registered = binding.registered()?;
        let (start, access) = (registered.start, registered.access);
        Some(Active {
            binding,
            start,
            access,
        })
    }

    /// Returns `true` if `length` bytes from address `iova` on are registered.
    pub(crate) fn is_registered(&self, iova: u64, length: u64) -> bool {
        self.binding.get().is_some_and(|active| {
            let whole = active.layout.length();
            length <= whole && iova.wrapping_sub(active.start()) <= whole - length
        })
    }
}
