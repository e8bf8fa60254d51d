// SPDX-License-Identifier: GPL-2.0

//! Regions that kernel users map scatterlists to and register by work requests
//! (`IB_MR_TYPE_SG_GAPS`).
//!
//! The verbs have it in three steps. `ib_map_mr_sg()`, in any context, makes a layout: it is
//! *staged*. REG_MR, in the order of the queue, makes that the *active* one, which accesses see
//! from then on. LOCAL_INV, or SEND with invalidate, ends that; the layout is staged again unless
//! a newer one is, for some users register the same elements time and again. So there is room for
//! two layouts, and mapping never touches what is registered.
//!
//! # Locking
//!
//! A spinlock that any context may take guards which layout is what; nobody sleeps or copies
//! under it. An access counts as a user of the active layout, and an invalidation waits until none
//! is left. The rest of this module has SRCU for that. Here it would be too slow: storage users
//! invalidate for each of their requests, and their queue waits meanwhile. LOCAL_INV takes 2 us by
//! the count, 48 us with a grace period that is expedited and 50 us with one that is not (medians
//! of 1,000 in a guest without KVM, nothing else under way).

use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::{mr::Right, scatterlist::MappedElements, Access, Mr, Pd},
        sync::lock::{new_irq_lock, IrqLock},
    },
    layout::Entry,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace, MAX_ENTRIES},
        rights::{self, serves_peers, Origin},
    },
};
use kernel::{
    new_condvar,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, CondVar, UniqueArc},
};

/// The part of a key that its owner may change.
const KEY_MASK: u32 = 0xff;

/// What makes a region one for fast registration.
#[pin_data]
pub(crate) struct FastReg {
    /// Elements of a layout, at most.
    max: usize,
    #[pin]
    slots: IrqLock<Slots>,
    #[pin]
    idle: CondVar,
}

/// The layouts: two rooms, each in one of these places or with somebody who maps.
struct Slots {
    /// What the next registration is over.
    staged: Option<UniqueArc<Binding>>,
    /// What nobody needs.
    spare: Option<UniqueArc<Binding>>,
    /// What is registered.
    active: Option<Active>,
    /// The page size that was asked for when a layout was staged last.
    page_size: u32,
    /// Accesses under way, to what is active or was.
    users: usize,
    /// Invalidations that wait for them.
    waiting: usize,
}

struct Active {
    bound: Arc<Binding>,
    /// Address that it starts from.
    start: u64,
}

/// An access under way.
// Fields are dropped in order: whoever waits for the users has the last reference.
struct AccessUser<'a> {
    bound: Arc<Binding>,
    _counted: Counted<'a>,
}

struct Counted<'a>(&'a FastReg);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut slots = self.0.slots.lock();
        slots.users = slots.users.saturating_sub(1);
        if slots.users == 0 && slots.waiting != 0 {
            self.0.idle.notify_all();
        }
    }
}

/// Makes room for a layout of `max` elements of `memory`.
fn room(pd: &Pd, memory: <Hw as Backend>::Base, max: usize) -> Result<UniqueArc<Binding>> {
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

/// Describes the first of `elements`, as many as there is room for. Returns their number and that
/// of their bytes.
fn fill(
    room: &mut Binding,
    elements: impl Iterator<Item = (u64, u64)>,
    max: usize,
) -> Result<(usize, u64)> {
    let KLayout::List(list) = &mut room.layout else {
        return Err(EINVAL);
    };
    list.refill(|entries| {
        entries.clear();
        for (addr, length) in elements.take(max) {
            // There is room.
            let _ = entries.push_within_capacity(Entry::new(0, addr, length));
        }
    })?;
    Ok((list.entries().len(), list.length()))
}

impl FastReg {
    /// Makes room for two layouts of up to `max` elements of `memory`, which is all memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none or more than [`MAX_ENTRIES`], `ENOMEM`.
    pub(crate) fn new(pd: &Pd, memory: <Hw as Backend>::Base, max: u32) -> Result<Pin<KBox<Self>>> {
        if max == 0 || max > MAX_ENTRIES {
            return Err(EINVAL);
        }
        let max = max as usize;
        let slots = Slots {
            staged: Some(room(pd, memory.clone(), max)?),
            spare: Some(room(pd, memory, max)?),
            active: None,
            page_size: PAGE_SIZE as u32,
            users: 0,
            waiting: 0,
        };
        KBox::pin_init(
            pin_init!(Self {
                max,
                slots <- new_irq_lock!(slots, "ib_mkey fast registration"),
                idle <- new_condvar!("ib_mkey fast registration"),
            }),
            GFP_KERNEL,
        )
    }

    /// Stages a layout of the first of `elements`, as many as there is room for: an address and a
    /// length each. Does not sleep. `page_size` is what [`Self::page_size`] returns from then on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none or for one of no bytes, `EOVERFLOW`; `EBUSY` for mapping at two places
    /// at once. What was staged before stays.
    pub(crate) fn map(
        &self,
        elements: impl Iterator<Item = (u64, u64)> + Clone,
        page_size: u32,
    ) -> Result<MappedElements> {
        let spare = self.slots.lock().spare.take();
        let mut room = match spare {
            Some(room) => room,
            // There is no other room but that of what is staged.
            None => {
                let entries = elements.clone().take(self.max);
                Entry::total(entries.map(|(addr, length)| Entry::new(0, addr, length)))?;
                self.slots.lock().staged.take().ok_or(EBUSY)?
            }
        };
        let start = elements.clone().next().map_or(0, |(addr, _)| addr);
        let result = fill(&mut room, elements, self.max);
        let mut slots = self.slots.lock();
        if result.is_ok() {
            slots.page_size = page_size;
            let before = slots.staged.replace(room);
            // Of two rooms: if there is this one, there is no spare one.
            if before.is_some() {
                slots.spare = before;
            }
        } else {
            slots.spare = Some(room);
        }
        drop(slots);
        result.map(|(count, length)| MappedElements {
            count,
            start,
            length,
        })
    }

    /// Returns the page size that was asked for when a layout was staged last.
    pub(crate) fn page_size(&self) -> u32 {
        self.slots.lock().page_size
    }

    /// Makes what is staged active, under a new key.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a region that is registered already or to which nothing is mapped, of another
    /// protection domain, for a key of another region, and for rights that no region has.
    pub(crate) fn register(&self, hw: &Hw, mr: &Mr, pd: &Pd, key: u32, access: Access) -> Result {
        // Nobody knows whether what is mapped is persistent.
        let supported = rights::supported(access) && !access.contains(Right::FlushPersistent);
        if mr.pd() != pd.as_raw() || !supported {
            return Err(EINVAL);
        }
        let mut slots = self.slots.lock();
        let own = (key ^ hw.key(mr)) & !KEY_MASK == 0;
        if !hw.is_free(mr) || !own || slots.active.is_some() || slots.waiting != 0 {
            return Err(EINVAL);
        }
        let mapped = slots.staged.take_if(|room| room.layout.length() != 0);
        let mut room = mapped.ok_or(EINVAL)?;
        // Whether it may be written is for the driver to say, who looks at the region's rights; it
        // does not ask for local write where a peer writes.
        room.access = access | Right::LocalWrite;
        slots.active = Some(Active {
            bound: room.into(),
            // Some users set another than that of the first byte, after they mapped.
            start: mr.iova(),
        });
        hw.register(mr, key, access);
        Ok(())
    }

    /// Ends what [`Self::register`] began. No access is left when this returns. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another key than that of the registration, for another protection domain, and
    /// for a peer if the registration gives a peer no right.
    pub(crate) fn invalidate(&self, hw: &Hw, mr: &Mr, pd: &Pd, key: u32, origin: Origin) -> Result {
        if mr.pd() != pd.as_raw() {
            return Err(EINVAL);
        }
        let mut slots = self.slots.lock();
        if key != hw.key(mr) {
            return Err(EINVAL);
        }
        let access = slots.active.as_ref().map(|active| active.bound.access);
        if origin == Origin::Remote && !access.is_some_and(serves_peers) {
            return Err(EINVAL);
        }
        let active = slots.active.take();
        if active.is_some() {
            hw.invalidate(mr);
        }
        // Of another invalidation's, too.
        slots.waiting = slots.waiting.saturating_add(1);
        while slots.users != 0 {
            self.idle.wait(&mut slots);
        }
        slots.waiting = slots.waiting.saturating_sub(1);
        let room = active.and_then(|active| Arc::into_unique_or_drop(active.bound));
        if let Some(room) = room.map(Pin::into_inner) {
            if slots.staged.is_none() {
                slots.staged = Some(room);
            } else {
                slots.spare = Some(room);
            }
        }
        Ok(())
    }

    /// Are `length` bytes from address `iova` on registered?
    pub(crate) fn contains(&self, iova: u64, length: u64) -> bool {
        let slots = self.slots.lock();
        slots.active.as_ref().is_some_and(|active| {
            let whole = active.bound.layout.length();
            length <= whole && iova.wrapping_sub(active.start) <= whole - length
        })
    }

    /// Does an access to what is registered, at an offset: where in it address `iova` is.
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is registered; those of `access`.
    pub(crate) fn with<T>(
        &self,
        iova: u64,
        access: impl FnOnce(&Binding, u64) -> Result<T>,
    ) -> Result<T> {
        let mut slots = self.slots.lock();
        let active = slots.active.as_ref().ok_or(EINVAL)?;
        let (bound, offset) = (active.bound.clone(), iova.wrapping_sub(active.start));
        slots.users = slots.users.saturating_add(1);
        drop(slots);
        let user = AccessUser {
            bound,
            _counted: Counted(self),
        };
        access(&user.bound, offset)
    }
}
