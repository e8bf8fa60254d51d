// SPDX-License-Identifier: GPL-2.0

//! The slot of a claimed MR: a pointer in the driver's own structure, by which the data path finds
//! the object of an MR without a look-up.
//!
//! # Locking
//!
//! `MrSlot.cell` is a spinlock that is taken with interrupts off. Nothing nests in it. It decides
//! between deregistration and the removal of the device, which both empty the slot. The data path
//! reads the slot under SRCU and takes no lock.

use crate::kernel_ext::sync::{
    lock::{new_irq_lock, IrqLock},
    srcu::{Cell, Retired},
};
use core::ptr::NonNull;
use kernel::{prelude::*, sync::Arc};

/// The type of the objects in slots.
///
/// # Safety
///
/// Only one type implements this trait, because a slot does not record the type of its object.
pub(crate) unsafe trait SlotValue: Send + Sync + 'static {}

/// The cell of a claimed MR, while it holds an object.
///
/// # Invariants
///
/// The pointer is valid: the MR is not freed before [`MrSlot::empty`] was called. All MRs with an
/// object are deregistered by `DeviceOps::dereg_mr()` or by the self-test, which both call it
/// first.
struct FilledCell<T: SlotValue>(NonNull<Cell<T>>);

// SAFETY: Any thread may use a cell.
unsafe impl<T: SlotValue> Send for FilledCell<T> {}

/// A part of an object by which the object is put into the slot of its MR and taken out again.
#[pin_data]
pub(crate) struct MrSlot<T: SlotValue> {
    #[pin]
    cell: IrqLock<Option<FilledCell<T>>>,
}

impl<T: SlotValue> MrSlot<T> {
    /// Makes the part of an object that is in no slot.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cell <- new_irq_lock!(None, "ib_mkey slot"),
        })
    }

    /// Puts `value`, the object of which this is a part, into `cell`, the slot of its MR. The caller
    /// calls [`Self::empty`] before the MR is freed.
    pub(crate) fn fill(&self, cell: &Cell<T>, value: Arc<T>) {
        let mut filled = self.cell.lock();
        let old = cell.swap(Some(value));
        // INVARIANT: The cell is valid. All code that frees its MR calls `empty()` first.
        *filled = Some(FilledCell(NonNull::from(cell)));
        drop(filled);
        drop(old);
    }

    /// Empties the slot. No access finds the object any more. The caller waits for accesses in
    /// progress when it drops the result, which sleeps.
    pub(crate) fn empty(&self) -> Option<Retired<T>> {
        let mut filled = self.cell.lock();
        let cell = filled.take()?;
        // SAFETY: By the type invariant, a thread that frees the MR calls this function first. That
        // call waits for the lock, so the MR is not freed yet.
        Some(unsafe { cell.0.as_ref() }.swap(None))
    }
}
