// SPDX-License-Identifier: GPL-2.0

//! The drivers whose devices ib_mkey can extend.
//!
//! | file | what |
//! |---|---|
//! | `backend/interface.rs` | the interface between a backend and the rest of the module |
//! | `backend/copy.rs` | the copy of strided segments, page by page |
//! | `backend/pins.rs` | the pins of the MRs to which bindings refer |
//! | `backend/rxe.rs`, `backend/rxe/` | software RoCE |
//! | `backend/slot_value.rs` | the type of the objects in the slots of claimed MRs |
//!
//! Only a backend knows its driver's private structures. The rest of the module names the backend's
//! type only by [`Hw`].

mod copy;
pub(crate) mod interface;
pub(crate) mod pins;
mod rxe;
mod slot_value;

use crate::kernel_ext::sync::racing;

pub(crate) use copy::{Direction, Payload};
pub(crate) use interface::{Backend, BaseMr, ClaimedMr, LookedUp, MrRange};
pub(crate) use rxe::device::{data as device_data, rxe_keeps};

/// The backend of every device that this build extends.
pub(crate) type Hw = rxe::Rxe;

/// An MR that the backend has claimed.
pub(crate) type Claimed = <Hw as Backend>::Claimed;
