// SPDX-License-Identifier: GPL-2.0

//! Regions that kernel users map scatterlists to and register by work requests
//! (`IB_MR_TYPE_SG_GAPS`).
//!
//! `region/registration.rs` has the registrations. A registration has three steps. `ib_map_mr_sg()`, in any context, *stages* a layout. REG_MR, in
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
    backend::BaseMr,
    kernel_ext::{
        rdma::{mr::Right, scatterlist::MappedElements, Access, Pd},
        sync::{
            lock::{new_irq_lock, IrqLock},
            rcu_arc::RcuUnique,
        },
    },
    layout::Entry,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace, MAX_ENTRIES},
        state::Pins,
    },
};
use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

/// The state of a region for fast registration.
#[pin_data]
pub(crate) struct FastReg {
    /// The most elements of a layout.
    max: usize,
    #[pin]
    pub(super) slots: IrqLock<Slots>,
    /// The pins of the device. They are here so that a work request finds them without the device's
    /// data.
    pub(super) pins: Arc<Pins>,
}

/// The places of the two layouts. Each layout is in one of these places, or is the binding of the
/// region, or is retired, or a mapping is filling it.
pub(super) struct Slots {
    /// The layout of the next registration.
    pub(super) staged: Option<RcuUnique<Binding>>,
    /// An unused layout.
    spare: Option<RcuUnique<Binding>>,
    /// The page size that the last mapping asked for.
    page_size: u32,
}

/// Makes an empty layout with room for `max` elements of `memory`.
fn empty_layout(pd: &Pd, memory: BaseMr, max: usize) -> Result<RcuUnique<Binding>> {
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
    /// Fails with `EINVAL` if `max` is 0 or exceeds [`MAX_ENTRIES`], and with `ENOMEM`.
    pub(crate) fn new(pd: &Pd, memory: BaseMr, max: u32, pins: Arc<Pins>) -> Result<Arc<Self>> {
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
