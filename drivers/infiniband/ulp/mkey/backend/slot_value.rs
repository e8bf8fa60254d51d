// SPDX-License-Identifier: GPL-2.0

//! The one type of the objects in slots, see `backend/slot.rs`.

// SAFETY: This is the only implementation.
unsafe impl super::slot::SlotValue for crate::region::Region {}
