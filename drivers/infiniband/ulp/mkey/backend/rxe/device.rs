// SPDX-License-Identifier: GPL-2.0

//! The devices of rxe.

use crate::{bindings::rdma_driver_id_RDMA_DRIVER_RXE, kernel_ext::rdma::Device};

/// Returns `true` if `device` belongs to rxe.
#[inline]
pub(super) fn is_rxe(device: &Device) -> bool {
    device.driver_id() == rdma_driver_id_RDMA_DRIVER_RXE
}
