// SPDX-License-Identifier: GPL-2.0

//! The one type of the objects in the slots of claimed MRs. This file has the implementation alone,
//! so that the backend does not know regions.

// SAFETY: This is the only implementation.
unsafe impl super::rxe::SlotValue for crate::region::Region {}
