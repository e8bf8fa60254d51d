// SPDX-License-Identifier: GPL-2.0

//! The functions that `ib_core` calls in place of a driver's operations for a device, device memory,
//! memory windows, QPs and address handles. `mr_callbacks.rs` has those for MRs, and `fast_reg.rs`
//! those for fast registration.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::Dm,
    mr::Mw,
    ops::{DeviceOps, Running},
    qp::{Ah, Qp},
    uapi::Attrs,
    uverbs,
};
use crate::{
    bindings,
    kernel_ext::{error::eopnotsupp, user::User},
};
use kernel::{
    error::{from_result, to_result},
    ffi::c_int,
    prelude::*,
};

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.query_device` of a device that `T` extends.
pub(super) unsafe extern "C" fn query_device<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a registered device.
        let running = Running::<T>::on(unsafe { Device::from_raw(raw) })?;
        let data = running.data();
        let stock = data.overlay().stock.query_device.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        to_result(unsafe { stock(raw, attr, udata) })?;
        if !uverbs::is_older() {
            // SAFETY: `attr` is valid for writes.
            unsafe { (*attr).max_dm_size = data.announced_dm_size() };
        }
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.alloc_dm` of a device that `T` extends.
pub(super) unsafe extern "C" fn alloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    context: *mut bindings::ib_ucontext,
    attr: *mut bindings::ib_dm_alloc_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_dm {
    // SAFETY: The core calls with a registered device and attributes that are its own.
    let (device, attr) = unsafe { (Device::from_raw(raw), &*attr) };
    let alloc = || {
        uverbs::refuse_older()?;
        let running = Running::<T>::on(device)?;
        // SAFETY: The core calls for a method of a process.
        let class = T::dm_class(&unsafe { Attrs::from_raw(attrs) })?;
        // SAFETY: The core passes the context of the process.
        let user = unsafe { User::of_context(context) };
        T::alloc_dm(running.data(), attr, class, Some(user)).map(Dm::into_raw)
    };
    alloc().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dealloc_dm` of a device that `T` extends.
pub(super) unsafe extern "C" fn dealloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_dm,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: The core frees an object that `alloc_dm()` made, once, and only when no MR refers to
    // it.
    drop(unsafe { Dm::<T::Dm>::take(raw) });
    0
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dealloc_mw` of a device that `T` extends.
pub(super) unsafe extern "C" fn dealloc_mw<T: DeviceOps>(raw: *mut bindings::ib_mw) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a window, which it frees when this has returned.
        let (mw, device) = unsafe { (Mw::from_raw(raw), Device::from_raw((*raw).device)) };
        let running = match Running::<T>::on(device) {
            Ok(running) => running,
            Err(removed) => {
                let _loaded = removed.keep_loaded();
                // SAFETY: The client was removed meanwhile and restored the driver's operation.
                let stock = unsafe { (*device.as_raw()).ops.dealloc_mw };
                // SAFETY: The argument is the core's.
                return stock.map_or(Err(ENODEV), |stock| Ok(unsafe { stock(raw) }));
            }
        };
        let stock = running.data().overlay().stock.dealloc_mw;
        let stock = stock.ok_or_else(eopnotsupp)?;
        running.data().close_mw(mw);
        // SAFETY: The argument is the core's.
        to_result(unsafe { stock(raw) })?;
        let forgotten = running.data().forget_mw(mw);
        // Accesses through the window may take as long as a process likes. Removal of another
        // device must not wait for them. This device is not removed while its user keeps it open.
        let _loaded = running.keep_loaded();
        drop(forgotten);
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.create_qp` of a device that `T` extends.
pub(super) unsafe extern "C" fn create_qp<T: DeviceOps>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a QP whose device is set.
        let qp = unsafe { Qp::from_raw(raw) };
        let running = match Running::<T>::on(qp.device()) {
            Ok(running) => running,
            Err(removed) => {
                let _loaded = removed.keep_loaded();
                // SAFETY: The client was removed meanwhile and restored the driver's operation.
                let stock = unsafe { (*qp.device().as_raw()).ops.create_qp };
                // SAFETY: The arguments are the core's.
                return stock.map_or(Err(ENODEV), |stock| Ok(unsafe { stock(raw, attr, udata) }));
            }
        };
        let stock = running.data().overlay().stock.create_qp;
        let stock = stock.ok_or_else(eopnotsupp)?;
        // The driver writes to user memory. Removal of another device must not wait for that.
        let _loaded = running.keep_loaded();
        // SAFETY: The arguments are the core's.
        to_result(unsafe { stock(raw, attr, udata) })?;
        // The QP of a process may outlive the client if `ib_uverbs` is older.
        if udata.is_null() || !uverbs::is_older() {
            if let Ok(running) = Running::<T>::on(qp.device()) {
                running.data().created_qp(qp);
            }
        }
        Ok(0)
    })
}

/// Ends the bindings of the memory windows that are bound to a closed QP.
fn end_windows<T: DeviceOps>(qp: &Qp) {
    let mut from = 0;
    // The client may be removed meanwhile.
    while let Ok(running) = Running::<T>::on(qp.device()) {
        let Some(ended) = running.data().end_windows(qp, &mut from) else {
            break;
        };
        // As for `dealloc_mw()`.
        drop(running);
        drop(ended);
    }
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.destroy_qp` of a device that `T` extends.
pub(super) unsafe extern "C" fn destroy_qp<T: DeviceOps>(
    raw: *mut bindings::ib_qp,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a QP that is not destroyed.
        let qp = unsafe { Qp::from_raw(raw) };
        let running = match Running::<T>::on(qp.device()) {
            Ok(running) => running,
            Err(removed) => {
                let _loaded = removed.keep_loaded();
                // SAFETY: The client was removed meanwhile and restored the driver's operation.
                let stock = unsafe { (*qp.device().as_raw()).ops.destroy_qp };
                // SAFETY: The arguments are the core's.
                return stock.map_or(Err(ENODEV), |stock| Ok(unsafe { stock(raw, udata) }));
            }
        };
        let stock = running.data().overlay().stock.destroy_qp;
        let stock = stock.ok_or_else(eopnotsupp)?;
        let has_windows = !udata.is_null() && running.data().close_qp(qp);
        // The calls below wait for accesses of the QP, and a process decides how long these take.
        // Removal of another device must not wait for that. The module stays loaded until the
        // driver has destroyed the QP, because a task of the QP may execute code of the module.
        let _loaded = running.keep_loaded();
        if has_windows {
            end_windows::<T>(qp);
        }
        // The driver waits for accesses only for a limited time.
        if !udata.is_null() {
            T::end_tasks(qp);
        }
        // SAFETY: The arguments are the core's.
        Ok(unsafe { stock(raw, udata) })
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.destroy_ah` of a device that `T` extends.
pub(super) unsafe extern "C" fn destroy_ah<T: DeviceOps>(
    raw: *mut bindings::ib_ah,
    flags: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with an address handle that is not destroyed.
        let ah = unsafe { Ah::from_raw(raw) };
        let running = match Running::<T>::on(ah.device()) {
            Ok(running) => running,
            Err(removed) => {
                let _loaded = removed.keep_loaded();
                // SAFETY: The client was removed meanwhile and restored the driver's operation.
                let stock = unsafe { (*ah.device().as_raw()).ops.destroy_ah };
                // SAFETY: The arguments are the core's.
                return stock.map_or(Err(ENODEV), |stock| Ok(unsafe { stock(raw, flags) }));
            }
        };
        let stock = running.data().overlay().stock.destroy_ah;
        let stock = stock.ok_or_else(eopnotsupp)?;
        // As for `destroy_qp()`.
        let _loaded = running.keep_loaded();
        // A kernel user may be in any context. None of its requests waits for a page.
        if ah.is_users() {
            T::end_ah(ah);
        }
        // SAFETY: The arguments are the core's.
        Ok(unsafe { stock(raw, flags) })
    })
}
