// SPDX-License-Identifier: GPL-2.0

//! The driver whose devices ib_mkey extends.
//!
//! | file | what |
//! |---|---|
//! | `backend/copy.rs` | the copy of strided segments, page by page |
//! | `backend/pins.rs` | the pins of the MRs to which bindings refer |
//! | `backend/rxe.rs`, `backend/rxe/` | software RoCE |
//! | `backend/slot_value.rs` | the type of the objects in the slots of claimed MRs |
//!
//! Only the backend knows its driver's private structures. For an object of another driver, a
//! function of `rxe.rs` returns an error, or does nothing if it cannot return one.

mod copy;
pub(crate) mod pins;
pub(crate) mod rxe;
mod slot_value;

use crate::kernel_ext::sync::racing;

pub(crate) use copy::{Direction, Payload};
pub(crate) use rxe::{
    device::{data as device_data, rxe_keeps},
    BaseMr, Claimed, LookedUp, MrRange, OdpStats,
};
