// SPDX-License-Identifier: GPL-2.0

//! The pins of a device: the MRs to which bindings refer. An MR that is pinned cannot be
//! deregistered. A key that is pinned cannot be rebound or unbound.
//!
//! The pins of an MR are listed by its index, in the order in which they were made. A pin says which
//! key it was made for, and for which binding of that key. So a deregistration that finds its MR
//! pinned looks at what refers to that MR, and at nothing else.
//!
//! A pin is *live* if the key has that binding, or may get it: the thread that describes the binding
//! may be the one that finds the pin, or may wait for a lock that this one holds. A pin is not live
//! after that, while accesses keep the binding (it is *retired* then).
//!
//! # Locking
//!
//! Each device has one spinlock, `Pins::list`, which any context may take. A bind looks an lkey up
//! and pins the MR in one critical section. `dereg_mr` looks for pins and suspends the MR in one
//! critical section. So either the bind does not find the MR, or `dereg_mr` finds the pin.
//! `dereg_mr` releases the lock before it waits for accesses. A rebind of a key replaces the
//! binding under this lock too.
//!
//! The lock nests in a region's `edit`. `FastReg::slots` nests in it.
//!
//! A look-up of an MR takes a [`NoDereg`], and `rxe::suspend()` takes an [`Unpinned`]. Both are
//! made here alone, under this lock, so safe code cannot run the two at the same time. A device has
//! one such lock, because [`Pins::new`] consumes a [`NewDevice`].

use crate::kernel_ext::{
    alloc::GFP_MAYFAIL,
    rdma::{device::NewDevice, Device, Mr},
    sched,
    sync::{
        lock::{new_irq_lock, IrqLock},
        pending::{Deadline, Timeout},
    },
};
use core::{marker::PhantomData, ops::Deref, ptr};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::Arc,
};

/// The most pins of an MR that are counted.
const MOST_COUNTED: usize = 1 << 16;

/// The error of a change of an MR that is pinned.
pub(crate) struct IsPinned;

impl From<IsPinned> for Error {
    fn from(_: IsPinned) -> Self {
        EBUSY
    }
}

/// A key for whose bindings MRs are pinned.
pub(crate) trait Holder: Send + Sync {
    /// Returns `true` if the key has the binding with `number`. The caller holds the lock of the
    /// pins.
    fn is_bound_to(&self, number: u64) -> bool;

    /// Returns `true` if the key may get the binding with `number`, which it does not have: its
    /// description is in progress. The caller holds the lock of the pins.
    fn may_get(&self, number: u64) -> bool;
}

/// The binding for which an MR is pinned.
pub(crate) struct PinnedFor<H> {
    /// The key.
    pub(crate) holder: Arc<H>,
    /// The number of the binding, which differs from those of all other bindings of the key.
    pub(crate) number: u64,
}

impl<H> Clone for PinnedFor<H> {
    fn clone(&self) -> Self {
        Self {
            holder: self.holder.clone(),
            number: self.number,
        }
    }
}

/// A pin, as a search finds it.
pub(crate) struct FoundPin<H> {
    /// The number of the pin. Later pins of the device have greater numbers.
    pub(crate) number: u64,
    /// The binding; [`None`] for the pin of a window, and of a request that reads its description.
    pub(crate) of: Option<PinnedFor<H>>,
    /// `true` if the key has the binding or may get it, or if there is no key.
    pub(crate) is_live: bool,
}

/// A proof that the lock of the pins is held. No other thread suspends, pins or unpins an MR of the
/// device while this exists.
pub(crate) struct NoDereg<'a> {
    /// The address of the device.
    device: usize,
    _lock: PhantomData<&'a ()>,
}

impl NoDereg<'_> {
    /// Returns `true` if this is a proof for the MRs of `device`.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.device == address(device)
    }
}

/// A proof that an MR is not pinned while this exists.
pub(crate) struct Unpinned<'a> {
    held: NoDereg<'a>,
    index: u32,
}

impl Unpinned<'_> {
    /// Returns `true` if this is a proof for `mr`.
    pub(crate) fn proves(&self, mr: &Mr) -> bool {
        self.is_of(mr.device()) && self.index == mr.index()
    }
}

impl<'a> Deref for Unpinned<'a> {
    type Target = NoDereg<'a>;

    fn deref(&self) -> &NoDereg<'a> {
        &self.held
    }
}

/// Returns a value that differs from that of all other devices that exist.
fn address(device: &Device) -> usize {
    ptr::from_ref(device) as usize
}

/// The pins.
struct List<H> {
    /// Each pin, by the index of its MR and its own number.
    pins: RBTree<(u32, u64), Option<PinnedFor<H>>>,
    /// The number of the next pin.
    next: u64,
}

impl<H> List<H> {
    /// Returns the number of the first pin of the MR at `index` with at least the number `from`.
    fn first(&self, index: u32, from: u64) -> Option<u64> {
        let cursor = self.pins.cursor_lower_bound(&(index, from))?;
        let &(found, number) = cursor.current().0;
        (found == index).then_some(number)
    }
}

/// The pins of the MRs of a device.
#[pin_data]
pub(crate) struct Pins<H> {
    /// The address of the device.
    device: usize,
    #[pin]
    list: IrqLock<List<H>>,
}

impl<H: Holder> Pins<H> {
    /// Makes an empty set for the MRs of a device. A device has one set only, because the lock of
    /// the set is what [`NoDereg`] and [`Unpinned`] prove. So this consumes `device`.
    #[allow(clippy::needless_pass_by_value, reason = "it is used up")]
    pub(crate) fn new(device: NewDevice<'_>) -> Result<Arc<Self>> {
        Self::of(address(&device))
    }

    fn of(device: usize) -> Result<Arc<Self>> {
        let list = List {
            pins: RBTree::new(),
            next: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                device,
                list <- new_irq_lock!(list, "ib_mkey pins"),
            }),
            GFP_KERNEL,
        )
    }

    /// Runs `find`, which must not sleep, and pins the MR at `index` for the binding `of` if `find`
    /// succeeds.
    ///
    /// # Errors
    ///
    /// The errors of `find`; `ENOMEM`.
    pub(crate) fn pin<T>(
        this: &Arc<Self>,
        index: u32,
        of: Option<PinnedFor<H>>,
        find: impl FnOnce(&NoDereg<'_>) -> Result<T>,
    ) -> Result<(T, Pin<H>)> {
        // The lock may not be held during the allocation.
        let node = RBTreeNodeReservation::new(GFP_MAYFAIL)?;
        let mut list = this.list.lock();
        let found = match find(&this.held()) {
            Ok(found) => found,
            Err(error) => {
                drop(list);
                return Err(error);
            }
        };
        let key = (index, list.next);
        list.next = list.next.wrapping_add(1);
        // No other pin has the number, so nothing is replaced.
        drop(list.pins.insert(node.into_node(key, of)));
        drop(list);
        let pins = this.clone();
        Ok((found, Pin { pins, key }))
    }

    /// Runs `look`, which must not sleep, under the lock. No MR is deregistered meanwhile.
    pub(crate) fn exclude<T>(&self, look: impl FnOnce(&NoDereg<'_>) -> T) -> T {
        let _list = self.list.lock();
        look(&self.held())
    }

    /// Returns the proof that the lock is held. The caller holds it longer.
    fn held(&self) -> NoDereg<'_> {
        NoDereg {
            device: self.device,
            _lock: PhantomData,
        }
    }

    /// Runs `change`, which must not sleep, if the MR at `index` is not pinned.
    ///
    /// # Errors
    ///
    /// [`IsPinned`], which differs from every result of `change`.
    pub(crate) fn if_unpinned<T>(
        &self,
        index: u32,
        change: impl FnOnce(&Unpinned<'_>) -> T,
    ) -> Result<T, IsPinned> {
        let list = self.list.lock();
        if list.first(index, 0).is_some() {
            return Err(IsPinned);
        }
        let held = self.held();
        Ok(change(&Unpinned { held, index }))
    }

    /// Runs `change` for each of `items` if no MR at their indices is pinned.
    ///
    /// # Errors
    ///
    /// The first item whose MR is pinned. Nothing is changed then.
    pub(crate) fn if_all_unpinned<'a, I>(
        &self,
        items: &'a mut [I],
        index: impl Fn(&I) -> u32,
        change: impl FnMut(&mut I),
    ) -> Result<(), &'a I> {
        let list = self.list.lock();
        match items
            .iter()
            .position(|item| list.first(index(item), 0).is_some())
        {
            Some(at) => items.get(at).map_or(Ok(()), Err),
            None => {
                items.iter_mut().for_each(change);
                Ok(())
            }
        }
    }

    /// Runs `attempt`. If the MR at `index` is pinned by retired bindings alone, waits until
    /// accesses have left these, and runs `attempt` once more. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::wait_for_retired`]; `EBUSY` if another pin was made meanwhile.
    pub(crate) fn when_unpinned<T>(
        &self,
        index: u32,
        timeout: Timeout,
        mut attempt: impl FnMut() -> Result<T, IsPinned>,
    ) -> Result<T> {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        self.wait_for_retired(index, timeout)?;
        Ok(attempt()?)
    }

    /// Returns the first pin of the MR at `index` with at least the number `from`.
    pub(crate) fn find(&self, index: u32, from: u64) -> Option<FoundPin<H>> {
        let list = self.list.lock();
        let number = list.first(index, from)?;
        let of = list.pins.get(&(index, number))?;
        Some(FoundPin {
            number,
            of: of.clone(),
            is_live: of
                .as_ref()
                .is_none_or(|of| of.holder.is_bound_to(of.number) || of.holder.may_get(of.number)),
        })
    }

    /// Runs `look` on each pin of the MR at `index`. Leaves out pins that are made meanwhile. One
    /// critical section looks at one pin. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `look`.
    pub(crate) fn each(&self, index: u32, mut look: impl FnMut(FoundPin<H>) -> Result) -> Result {
        let end = self.list.lock().next;
        let mut from = 0;
        while let Some(found) = self.find(index, from).filter(|found| found.number < end) {
            from = found.number.wrapping_add(1);
            look(found)?;
        }
        Ok(())
    }

    /// Waits until accesses have left the retired bindings that pin the MR at `index`. Leaves out
    /// pins that are made meanwhile. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a pin is live or becomes live; the errors of [`Deadline::poll`].
    pub(crate) fn wait_for_retired(&self, index: u32, timeout: Timeout) -> Result {
        let must_not_be_live = |found: &FoundPin<H>| {
            if found.is_live {
                Err(EBUSY)
            } else {
                Ok(())
            }
        };
        self.each(index, |found| must_not_be_live(&found))?;
        let deadline = Deadline::new(timeout);
        self.each(index, |found| {
            let mut live = Ok(());
            let number = found.number;
            drop(found);
            deadline.poll(|| {
                let now = self.find(index, number);
                let now = now.filter(|now| now.number == number);
                live = now.as_ref().map_or(Ok(()), must_not_be_live);
                now.is_none() || live.is_err()
            })?;
            live
        })
    }

    /// Returns the number of pins of the MR at `index`, at most [`MOST_COUNTED`]. Sleeps.
    pub(crate) fn count(&self, index: u32) -> usize {
        let mut count = 0usize;
        // An error ends the count.
        let _ = self.each(index, |_| {
            sched::check_killed()?;
            count = count.saturating_add(1);
            if count < MOST_COUNTED {
                Ok(())
            } else {
                Err(EBUSY)
            }
        });
        count
    }
}

/// A pin, which keeps an MR from being deregistered.
pub(crate) struct Pin<H: Holder> {
    pins: Arc<Pins<H>>,
    key: (u32, u64),
}

impl<H: Holder> Drop for Pin<H> {
    fn drop(&mut self) {
        let node = self.pins.list.lock().pins.remove_node(&self.key);
        // This may drop the last reference to the key, which sleeps.
        drop(node);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "pins_kunit.rs"]
mod kunit;
