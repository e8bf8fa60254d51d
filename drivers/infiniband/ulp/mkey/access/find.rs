// SPDX-License-Identifier: GPL-2.0

//! Finds the region of an MR without the data of its device.

use crate::{
    backend::{Claimed, ClaimedMr},
    kernel_ext::sync::srcu::Guard,
    region::Region,
};
use kernel::{prelude::*, sync::ArcBorrow};

/// Finds the region of `mr`, for as long as the critical section lasts.
#[inline]
pub(super) fn region_of<'a>(mr: &'a Claimed, guard: &'a Guard) -> Result<ArcBorrow<'a, Region>> {
    mr.slot::<Region>().get(guard).ok_or(EINVAL)
}
