// SPDX-License-Identifier: GPL-2.0

//! Finds the region of an MR without the data of its device.

use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::Mr,
        sync::srcu::{Cell, Guard},
    },
    region::Region,
};
use kernel::{prelude::*, sync::ArcBorrow};

/// Finds the slot of `mr`, an MR of this module.
#[inline]
pub(super) fn slot_of(mr: &Mr) -> Result<&Cell<Region>> {
    Hw::slot::<Region>(mr).ok_or(EINVAL)
}

/// Finds the region of `mr`, for as long as the critical section lasts.
#[inline]
pub(super) fn region_of<'a>(mr: &'a Mr, guard: &'a Guard) -> Result<ArcBorrow<'a, Region>> {
    slot_of(mr)?.get(guard).ok_or(EINVAL)
}
