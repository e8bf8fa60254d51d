// SPDX-License-Identifier: GPL-2.0

//! The pins of a device: the MRs to which bindings refer. An MR that is pinned cannot be
//! deregistered. A key that is pinned cannot be rebound or unbound.
//!
//! # Locking
//!
//! Each device has one spinlock, `Pins::counts`, which any context may take. A bind looks an lkey
//! up and pins the MR in one critical section. `dereg_mr` looks for pins and suspends the MR in one
//! critical section. So either the bind does not find the MR, or `dereg_mr` finds the pin.
//! `dereg_mr` releases the lock before it waits for accesses. A rebind of a key replaces the
//! binding under this lock too.
//!
//! The lock nests in a region's `edit`. SRCU and `FastReg::slots` nest in it.
//!
//! A look-up of an MR takes a [`NoDereg`], and `Backend::suspend` takes an [`Unpinned`]. Both are
//! made here alone, under this lock, so safe code cannot run the two at the same time. A device has
//! one such lock, because [`Pins::new`] consumes a [`NewDevice`].

use crate::kernel_ext::{
    alloc::GFP_MAYFAIL,
    rdma::{device::NewDevice, Device, Mr},
    sync::lock::{new_irq_lock, IrqLock, IrqSpin},
};
use core::{marker::PhantomData, ops::Deref, ptr};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNode, RBTreeNodeReservation},
    sync::{lock::Guard, Arc},
};

/// The error of a change of an MR that is pinned.
pub(crate) struct IsPinned;

impl From<IsPinned> for Error {
    fn from(_: IsPinned) -> Self {
        EBUSY
    }
}

/// Runs `attempt`. If the MR is pinned, runs `wait` and then `attempt` once more, because the
/// only pin may be that of an old binding that a work request replaced.
///
/// # Errors
///
/// `EBUSY` if something else pins the MR; those of `wait`.
#[inline]
pub(crate) fn when_unpinned<T>(
    mut attempt: impl FnMut() -> Result<T, IsPinned>,
    wait: impl FnOnce() -> Result,
) -> Result<T> {
    if let Ok(done) = attempt() {
        return Ok(done);
    }
    wait()?;
    Ok(attempt()?)
}

/// A proof that the lock of the pins is held. No other thread suspends, pins or unpins an MR of the
/// device while this exists.
pub(crate) struct NoDereg<'a> {
    /// The address of the device.
    device: usize,
    _lock: PhantomData<&'a Guard<'a, Counts, IrqSpin>>,
}

impl NoDereg<'_> {
    /// Returns `true` if this is a proof for the MRs of `device`.
    #[inline]
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
#[inline]
fn address(device: &Device) -> usize {
    ptr::from_ref(device) as usize
}

/// The numbers of pins.
struct Counts {
    /// The number of pins of each MR that has any, by the index of the MR.
    pinned: RBTree<u32, u32>,
    /// The memory of a node that was removed, for the next node: a program that binds a key for
    /// each message pins and unpins an MR repeatedly.
    unused: Option<RBTreeNodeReservation<u32, u32>>,
}

/// The number of pins of each MR of a device.
#[pin_data]
pub(crate) struct Pins {
    /// The address of the device.
    device: usize,
    #[pin]
    counts: IrqLock<Counts>,
}

impl Pins {
    /// Makes an empty set for the MRs of a device. A device has one set only, because the lock of
    /// the set is what [`NoDereg`] and [`Unpinned`] prove. So this consumes `device`.
    #[allow(clippy::needless_pass_by_value, reason = "it is used up")]
    pub(crate) fn new(device: NewDevice<'_>) -> Result<Arc<Self>> {
        Self::of(address(&device))
    }

    fn of(device: usize) -> Result<Arc<Self>> {
        let counts = Counts {
            pinned: RBTree::new(),
            unused: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                device,
                counts <- new_irq_lock!(counts, "ib_mkey pins"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the lock. No MR is deregistered, and none is pinned or unpinned, until the result is
    /// dropped. The caller must not sleep or drop a [`Pin`] before.
    pub(crate) fn lock<'a>(self: &'a Arc<Self>) -> LockedPins<'a> {
        LockedPins {
            pins: self,
            counts: self.counts.lock(),
        }
    }

    /// Runs `find`, which must not sleep, and pins the MR at `index` if `find` succeeds.
    ///
    /// # Errors
    ///
    /// Those of `find`; `ENOMEM`.
    pub(crate) fn pin<T>(
        self: &Arc<Self>,
        index: u32,
        find: impl FnOnce(&NoDereg<'_>) -> Result<T>,
    ) -> Result<(T, Pin)> {
        let mut locked = self.lock();
        if locked.can_pin(index) {
            let found = find(&locked.held())?;
            return Ok((found, locked.pin(index).ok_or(EOVERFLOW)?));
        }
        drop(locked);
        // The lock may not be held during the allocation.
        let node = RBTreeNode::new(index, 1, GFP_MAYFAIL)?;
        let mut locked = self.lock();
        let found = find(&locked.held())?;
        if let Some(pin) = locked.pin(index) {
            drop(locked);
            drop(node);
            return Ok((found, pin));
        }
        if locked.counts.pinned.get(&index).is_some() {
            return Err(EOVERFLOW);
        }
        drop(locked.counts.pinned.insert(node));
        let pin = locked.new_pin(index);
        drop(locked);
        Ok((found, pin))
    }

    /// Runs `look`, which must not sleep, under the lock. No MR is deregistered meanwhile.
    pub(crate) fn exclude<T>(&self, look: impl FnOnce(&NoDereg<'_>) -> T) -> T {
        let counts = self.counts.lock();
        look(&self.held(&counts))
    }

    /// Returns the proof that the lock, of which `_counts` is the guard, is held.
    #[inline]
    fn held<'a>(&self, _counts: &'a Guard<'_, Counts, IrqSpin>) -> NoDereg<'a> {
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
        let counts = self.counts.lock();
        if counts.pinned.get(&index).is_some() {
            return Err(IsPinned);
        }
        let held = self.held(&counts);
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
        let counts = self.counts.lock();
        match items
            .iter()
            .position(|item| counts.pinned.get(&index(item)).is_some())
        {
            Some(at) => items.get(at).map_or(Ok(()), Err),
            None => {
                items.iter_mut().for_each(change);
                Ok(())
            }
        }
    }

    /// Returns the number of pins of the MR at `index`.
    pub(crate) fn count(&self, index: u32) -> u32 {
        self.counts.lock().pinned.get(&index).copied().unwrap_or(0)
    }

    fn unpin(&self, index: u32) {
        let mut counts = self.counts.lock();
        match counts.pinned.get_mut(&index) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                let node = counts.pinned.remove_node(&index);
                let surplus = match node.map(RBTreeNode::into_reservation) {
                    Some(unused) => counts.unused.replace(unused),
                    None => None,
                };
                drop(counts);
                drop(surplus);
            }
        }
    }
}

/// The pins of a device, locked.
pub(crate) struct LockedPins<'a> {
    pins: &'a Arc<Pins>,
    counts: Guard<'a, Counts, IrqSpin>,
}

impl LockedPins<'_> {
    /// Returns the proof that the lock is held.
    #[inline]
    pub(crate) fn held(&self) -> NoDereg<'_> {
        self.pins.held(&self.counts)
    }

    /// Returns `true` if [`Self::pin`] can pin the MR at `index`.
    fn can_pin(&self, index: u32) -> bool {
        match self.counts.pinned.get(&index) {
            Some(count) => *count != u32::MAX,
            None => self.counts.unused.is_some(),
        }
    }

    fn new_pin(&self, index: u32) -> Pin {
        Pin {
            pins: self.pins.clone(),
            index,
        }
    }

    /// Pins the MR at `index`, which the caller has found under this lock. Returns [`None`] if the
    /// pin needs an allocation, or if the MR has too many pins. The pin must not be dropped under
    /// the lock.
    pub(crate) fn pin(&mut self, index: u32) -> Option<Pin> {
        let counts = &mut *self.counts;
        match counts.pinned.get_mut(&index) {
            Some(count) => *count = count.checked_add(1)?,
            None => {
                let node = counts.unused.take()?.into_node(index, 1);
                drop(counts.pinned.insert(node));
            }
        }
        Some(self.new_pin(index))
    }
}

/// A pin, which keeps an MR from being deregistered.
pub(crate) struct Pin {
    pins: Arc<Pins>,
    index: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.unpin(self.index);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "pins_kunit.rs"]
mod kunit;
