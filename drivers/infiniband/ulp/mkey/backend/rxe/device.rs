// SPDX-License-Identifier: GPL-2.0

//! The devices of rxe that have this module as their provider.

use super::bindings;
use crate::kernel_ext::rdma::Device;

/// Returns `true` if `device` belongs to an rxe that this module was built with, and has this module
/// as its provider.
#[inline]
pub(super) fn is_ours(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { bindings::ib_mkey_rxe_is_ours(device.as_raw()) }
}
