// SPDX-License-Identifier: GPL-2.0

//! The drivers whose devices ib_mkey can extend.
//!
//! | file | what |
//! |---|---|
//! | `backend/interface.rs` | the interface between a backend and the rest of the module |
//! | `backend/leaf.rs` | the interface of the MRs that are the memory of leaves |
//! | `backend/payload.rs`, `backend/copy_row.rs` | the bytes of a packet, and copies of rows |
//! | `backend/moved.rs`, `backend/assembly.rs` | moves of small pieces |
//! | `backend/copy_places.rs` | copies of pieces at places in any order |
//! | `backend/fetch.rs` | prefetches |
//! | `backend/cut.rs` | cuts of rows at the ends of blocks |
//! | `backend/pins.rs` | the pins of the MRs to which bindings refer |
//! | `backend/slot.rs`, `backend/slot_value.rs` | the object of an MR, found by a pointer in the MR |
//! | `backend/rxe.rs`, `backend/rxe/` | software RoCE |
//!
//! Only a backend knows its driver's private structures. The rest of the module names the backend's
//! type only by [`Hw`].

#[cfg(target_arch = "x86_64")]
mod assembly;
mod copy_places;
mod copy_row;
mod cut;
mod fetch;
pub(crate) mod interface;
mod leaf;
mod moved;
mod payload;
pub(crate) mod pins;
mod rxe;
pub(crate) mod slot;
mod slot_value;

use crate::kernel_ext::sync::racing;

pub(crate) use interface::{Backend, ClaimedMr, DriverWindow, LookedUp, MrRange};
pub(crate) use leaf::{BaseMr, CopyPages};
pub(crate) use payload::{Direction, Payload};
pub(crate) use rxe::device::{data as device_data, rxe_keeps};

/// The backend of every device that this build extends.
pub(crate) type Hw = rxe::Rxe;

/// An MR that the backend has claimed.
pub(crate) type Claimed = <Hw as Backend>::Claimed;
