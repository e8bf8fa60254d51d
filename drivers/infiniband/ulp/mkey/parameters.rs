// SPDX-License-Identifier: GPL-2.0

//! The parameters of the module, and its `ThisModule`.

use crate::{
    api::bindings,
    dm::Offer,
    kernel_ext::{export_c::string_parameter, memory::total_ram},
};
use core::borrow::Borrow;
use kernel::{prelude::*, sync::SetOnce};

/// This module, from its initialisation on.
static THIS: SetOnce<&'static ThisModule> = SetOnce::new();

/// Sets what [`this_module`] returns. The module's initialisation calls this.
pub(crate) fn set_module(module: &'static ThisModule) {
    THIS.populate(module);
}

/// Returns this module.
/// Fails with `ENODEV` before it is initialised.
pub(crate) fn this_module() -> Result<&'static ThisModule> {
    THIS.as_ref().copied().ok_or(ENODEV)
}

/// Returns a parameter's value. Linux 7.2 returns a reference, 7.3 the value.
fn value<T: Copy>(parameter: impl Borrow<T>) -> T {
    *parameter.borrow()
}

/// Returns the bytes of RAM that each device offers.
pub(crate) fn max_dm_size() -> u64 {
    value(crate::module_parameters::max_dm_size.value())
}

/// Returns the bytes of device memory that each user may take of a device, or [`None`] for half of
/// each memory.
pub(crate) fn max_dm_size_per_user() -> Option<u64> {
    match value(crate::module_parameters::max_dm_size_per_user.value()) {
        0 => None,
        bytes => Some(bytes),
    }
}

/// Returns the bytes of the kernel's memory that the keys of a device and its regions over dma-bufs
/// may take.
pub(crate) fn max_key_memory() -> u64 {
    match value(crate::module_parameters::max_key_memory.value()) {
        0 => (total_ram() / 8).min(8 << 30),
        bytes => bytes,
    }
}

/// Returns the bytes of [`max_key_memory`] that each user may take of a device.
pub(crate) fn max_key_memory_per_user() -> u64 {
    match value(crate::module_parameters::max_key_memory_per_user.value()) {
        0 => max_key_memory() / 2,
        bytes => bytes,
    }
}

/// Returns `true` if the standard query of a device returns the size of device memory.
pub(crate) fn announce_dm() -> bool {
    value::<u8>(crate::module_parameters::announce_dm.value()) != 0
}

/// Returns the classes of memory that devices offer.
/// Fails with `EINVAL` if an entry names no class.
pub(crate) fn dm_classes() -> Result<Offer<'static>> {
    Offer::new(string_parameter!(bindings::ib_mkey_dm_class).to_str()?)
}
