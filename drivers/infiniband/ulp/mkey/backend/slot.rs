// SPDX-License-Identifier: GPL-2.0

//! The slot of a claimed MR: a pointer in the driver's own structure, by which the data path finds
//! the object of an MR without a look-up.
//!
//! The slot is a part of the MR, so only code that has a reference to the MR fills and empties it
//! ([`ClaimedMr::slot`](super::interface::ClaimedMr::slot)). The data path reads it under SRCU.

/// The type of the objects in slots.
///
/// # Safety
///
/// Only one type implements this trait, because a slot does not record the type of its object.
pub(crate) unsafe trait SlotValue: Send + Sync + 'static {}
