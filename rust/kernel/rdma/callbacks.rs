// SPDX-License-Identifier: GPL-2.0

//! The functions that `ib_core` calls for a device, device memory and memory windows of a device with
//! the [`Operations`](super::table::Operations) of a module. `mr_callbacks.rs` has those for MRs, and
//! `fast_reg.rs` those for fast registration.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::{DriverDm, GivenUpDm},
    mr::Mw,
    ops::DeviceOps,
    pd::UserContext,
    uapi::Attrs,
};
use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr::NonNull;
use kernel::{
    error::{from_result, to_result},
    ffi::c_int,
    prelude::*,
};

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.query_device` of a device of `T`.
pub(super) unsafe extern "C" fn query_device<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a device that is registered, or is being registered.
        let data = T::of(unsafe { Device::from_raw(raw) })?;
        let driver = T::driver();
        let driver = driver.table().query_device.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        to_result(unsafe { driver(raw, attr, udata) })?;
        // The core calls without a process when it registers the device. Kernel users find that
        // result in `ib_device.attrs`.
        let size = if udata.is_null() {
            data.dm_size()
        } else {
            data.announced_dm_size()
        };
        // SAFETY: `attr` is valid for writes.
        unsafe { (*attr).max_dm_size = size };
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.alloc_dm` of a device of `T`.
pub(super) unsafe extern "C" fn alloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    context: *mut bindings::ib_ucontext,
    attr: *mut bindings::ib_dm_alloc_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_dm {
    // SAFETY: The core calls with a registered device and attributes that are its own.
    let (device, attr) = unsafe { (Device::from_raw(raw), &*attr) };
    let alloc = || {
        // SAFETY: The core calls for a method of a process.
        let class = T::dm_class(&unsafe { Attrs::from_raw(attrs) })?;
        // SAFETY: The core passes the context of the process.
        let user = T::user(unsafe { UserContext::from_raw(context) });
        T::of(device)?
            .alloc_dm(attr, class, Some(user))
            .map(DriverDm::into_raw)
    };
    alloc().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dealloc_dm` of a device of `T`.
pub(super) unsafe extern "C" fn dealloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_dm,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: The core frees an object that `alloc_dm()` made, once.
        unsafe { GivenUpDm::<T::Dm>::from_raw(raw) }.free()?;
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dealloc_mw` of a device of `T`.
pub(super) unsafe extern "C" fn dealloc_mw<T: DeviceOps>(raw: *mut bindings::ib_mw) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a window, which it frees when this has returned.
        let mw = unsafe { Mw::from_raw(raw) };
        let data = T::of(mw.device())?;
        let driver = T::driver().table().dealloc_mw.ok_or_else(eopnotsupp)?;
        data.close_mw(mw)?;
        // SAFETY: The argument is the core's.
        to_result(unsafe { driver(raw) })?;
        drop(data.forget_mw(mw));
        Ok(0)
    })
}
