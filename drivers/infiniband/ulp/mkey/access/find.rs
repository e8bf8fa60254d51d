// SPDX-License-Identifier: GPL-2.0

//! Finds the region of an MR without the data of its device.

use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::Mr,
        sync::srcu::{self, Cell, Guard},
    },
    region::Region,
};
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
};

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

/// Returns the region of `mr`, if accesses find it. The region of a key may outlive the data of its
/// device. An access in progress can take arbitrarily long, and removal of another device must not wait
/// for it. A caller that waits for accesses therefore does not keep those data.
///
/// A request that uses the result is no reader of `rdma_ops_srcu`, so the removal of the device does not
/// wait for it there. It need not: a process has keys only if ib_uverbs is a younger client of `ib_core`,
/// which destroys the queue pairs of processes first.
pub(super) fn exposed(mr: &Mr) -> Option<Arc<Region>> {
    let guard = srcu::read();
    let region = region_of(mr, &guard).ok()?;
    Some(region.into())
}
