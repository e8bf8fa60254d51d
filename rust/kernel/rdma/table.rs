// SPDX-License-Identifier: GPL-2.0

//! The table of device operations of a module that extends the devices of a driver.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{callbacks, fast_reg, mr_callbacks, ops::DeviceOps};
use crate::bindings;

/// A table of device operations. The driver sets them in a device before it sets its own, and
/// `ib_core` keeps the operations that are set first.
#[repr(transparent)]
pub(crate) struct Operations(bindings::ib_device_ops);

// SAFETY: The table is only read.
unsafe impl Sync for Operations {}

impl Operations {
    /// Makes the table of `T`.
    pub(crate) const fn new<T: DeviceOps>() -> Self {
        let mut ops: bindings::ib_device_ops = pin_init::zeroed();
        ops.query_device = Some(callbacks::query_device::<T>);
        ops.alloc_dm = Some(callbacks::alloc_dm::<T>);
        ops.dealloc_dm = Some(callbacks::dealloc_dm::<T>);
        ops.reg_dm_mr = Some(mr_callbacks::reg_dm_mr::<T>);
        ops.reg_user_mr_dmabuf = Some(mr_callbacks::reg_user_mr_dmabuf::<T>);
        ops.rereg_user_mr = Some(mr_callbacks::rereg_user_mr::<T>);
        ops.dereg_mr = Some(mr_callbacks::dereg_mr::<T>);
        ops.alloc_mr = Some(fast_reg::alloc_mr::<T>);
        ops.map_mr_sg = Some(fast_reg::map_mr_sg::<T>);
        ops.dealloc_mw = Some(callbacks::dealloc_mw::<T>);
        Self(ops)
    }

    /// Returns the table.
    pub(crate) const fn as_raw(&self) -> *const bindings::ib_device_ops {
        &self.0
    }
}
