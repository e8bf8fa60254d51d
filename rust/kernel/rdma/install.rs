// SPDX-License-Identifier: GPL-2.0

//! Installs a client's operations in a device, and removes them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    callbacks,
    client::{Adding, Removing},
    fast_reg, mr_callbacks,
    ops::{DeviceOps, Overlay},
};
use crate::bindings;
use core::ptr;
use kernel::prelude::*;

impl Overlay {
    /// Fills in missing operations and wraps others, with functions that call `T`.
    ///
    /// Users that were registered before the client may call these operations at any time, even
    /// while the operations are removed. `ib_uverbs` can be such a user
    /// ([`uverbs`](super::uverbs)). Objects that it makes with `alloc_dm` and `reg_user_mr_dmabuf`
    /// would outlive the client's data, so these two fail then. `rereg_user_mr`, `advise_mr` and
    /// `dereg_mr` leave only objects of the driver behind, so they do not fail.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this overlay was made for another device.
    pub(crate) fn install<T: DeviceOps>(&self, device: &Adding<'_>, max_dm_size: u64) -> Result {
        let raw = device.as_raw();
        if !ptr::eq(raw, self.device) {
            return Err(EINVAL);
        }
        // SAFETY: The device is being added (type invariant of `Adding`), so no user that was
        // registered later calls an operation or reads `driver_def`. A concurrent call, such as the
        // core's own call of `query_device`, finds the old pointer or the new one.
        unsafe {
            let ops = &raw mut (*raw).ops;
            if self.fills_dm() {
                (*ops).alloc_dm = Some(callbacks::alloc_dm::<T>);
                (*ops).dealloc_dm = Some(callbacks::dealloc_dm::<T>);
                (*ops).reg_dm_mr = Some(mr_callbacks::reg_dm_mr::<T>);
                (*ops).query_device = Some(callbacks::query_device::<T>);
                (*raw).attrs.max_dm_size = max_dm_size;
            }
            if self.fills_gaps() {
                (*ops).alloc_mr = Some(fast_reg::alloc_mr::<T>);
                (*ops).map_mr_sg = Some(fast_reg::map_mr_sg::<T>);
                (*raw).attrs.kernel_cap_flags |=
                    u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
            }
            (*ops).dereg_mr = Some(mr_callbacks::dereg_mr::<T>);
            if self.stock.dealloc_mw.is_some() {
                (*ops).dealloc_mw = Some(callbacks::dealloc_mw::<T>);
            }
            if self.stock.reg_user_mr_dmabuf.is_none() {
                (*ops).reg_user_mr_dmabuf = Some(mr_callbacks::reg_user_mr_dmabuf::<T>);
            }
            if self.stock.rereg_user_mr.is_some() {
                (*ops).rereg_user_mr = Some(mr_callbacks::rereg_user_mr::<T>);
            }
            if self.stock.advise_mr.is_some() {
                (*ops).advise_mr = Some(mr_callbacks::advise_mr::<T>);
            }
            if self.stock.destroy_ah.is_some() {
                (*ops).destroy_ah = Some(callbacks::destroy_ah::<T>);
            }
            if self.stock.create_qp.is_some() {
                (*ops).create_qp = Some(callbacks::create_qp::<T>);
                (*ops).destroy_qp = Some(callbacks::destroy_qp::<T>);
            }
            (*raw).driver_def = self.chain.fill(self.stock_def, T::DEFINITIONS);
        }
        Ok(())
    }

    /// Restores the operations of the device for which this overlay was made. Does nothing for
    /// another device. Running operations continue, see [`Self::drain`].
    pub(crate) fn uninstall(&self, device: &Removing<'_>) {
        let raw = device.as_raw();
        if !ptr::eq(raw, self.device) {
            return;
        }
        // SAFETY: As for `install()`, by the type invariant of `Removing`. By the type invariant,
        // the restored operations are the device's own.
        unsafe {
            let ops = &raw mut (*raw).ops;
            (*ops).alloc_dm = self.stock.alloc_dm;
            (*ops).dealloc_dm = self.stock.dealloc_dm;
            (*ops).reg_dm_mr = self.stock.reg_dm_mr;
            (*ops).query_device = self.stock.query_device;
            (*ops).alloc_mr = self.stock.alloc_mr;
            (*ops).map_mr_sg = self.stock.map_mr_sg;
            (*ops).dereg_mr = self.stock.dereg_mr;
            (*ops).dealloc_mw = self.stock.dealloc_mw;
            (*ops).reg_user_mr_dmabuf = self.stock.reg_user_mr_dmabuf;
            (*ops).rereg_user_mr = self.stock.rereg_user_mr;
            (*ops).advise_mr = self.stock.advise_mr;
            (*ops).destroy_ah = self.stock.destroy_ah;
            (*ops).create_qp = self.stock.create_qp;
            (*ops).destroy_qp = self.stock.destroy_qp;
            (*raw).attrs.max_dm_size = self.stock_max_dm_size;
            (*raw).attrs.kernel_cap_flags = self.stock_cap_flags;
            (*raw).driver_def = self.stock_def;
        }
    }

    /// Waits for running operations, which kernel users that were registered before the client may
    /// have called. Sleeps.
    pub(crate) fn drain() {
        // SAFETY: No preconditions.
        unsafe { bindings::rdma_ops_drain() };
    }
}
