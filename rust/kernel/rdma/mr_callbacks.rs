// SPDX-License-Identifier: GPL-2.0

//! The functions that `ib_core` calls in place of a driver's operations for MRs. `fast_reg.rs` has
//! those for fast registration.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::Dm,
    driver_mr::DriverMr,
    mr::{Access, Mr, NewMr, Right},
    ops::{DeviceOps, Running},
    pd::Pd,
    uverbs,
};
use crate::{
    bindings,
    kernel_ext::{dma_buf::Import, error::eopnotsupp},
};
use core::ptr;
use kernel::{
    error::{from_err_ptr, from_result, to_result},
    ffi::c_int,
    prelude::*,
};

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.reg_dm_mr` of a device that `T` extends.
pub(super) unsafe extern "C" fn reg_dm_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    dm: *mut bindings::ib_dm,
    attr: *mut bindings::ib_dm_mr_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with valid objects of one device; the memory came from `alloc_dm()`.
    let (pd, dm, attr) = unsafe { (Pd::from_raw(pd), Dm::<T::Dm>::from_raw(dm), &*attr) };
    let register = || {
        let running = Running::<T>::on(pd.device())?;
        let data = running.data();
        let access = Access::from_raw(attr.access_flags);
        let mr = data.overlay().alloc_mr(pd, 1, |new| {
            T::reg_dm_mr(data, new, pd, dm, attr.offset, attr.length, access)
        })?;
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

/// The largest number of pages of an MR over a dma-buf, which one allocation of the driver's table
/// can describe.
const MAX_DMABUF_PAGES: usize = 1 << 18;

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.reg_user_mr_dmabuf` of a device that `T`
/// extends.
pub(super) unsafe extern "C" fn reg_user_mr_dmabuf<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    addr: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid protection domain.
    let pd = unsafe { Pd::from_raw(pd) };
    let register = || {
        uverbs::refuse_older()?;
        let access = Access::from_raw(access as u32);
        let running = Running::<T>::on(pd.device())?;
        running.data().may_import(access)?;
        if !dmah.is_null() {
            return Err(eopnotsupp());
        }
        addr.checked_add(length).ok_or(EOVERFLOW)?;
        // The exporter may block. Removal of another device must not wait for that. This device is
        // not removed while its user keeps it open.
        let _loaded = running.keep_loaded();
        let import = Import::new(fd, access.contains(Right::LocalWrite), T::check_dma_buf)?;
        let pages = import.pages(offset, length)?.len();
        if pages > MAX_DMABUF_PAGES {
            return Err(ENOMEM);
        }
        let running = Running::<T>::on(pd.device())?;
        let data = running.data();
        let charge = data.charge_import(pd, pages)?;
        // If registration fails, `import` is the last reference. It is dropped after `running`,
        // because the exporter may block that, too.
        let kept = import.clone();
        let prepare = |new: NewMr<'_>| {
            T::reg_dmabuf_mr(data, new, kept, charge, offset, length, addr, access)
        };
        let pages = u32::try_from(pages)?;
        let mr = data.overlay().alloc_mr(pd, pages, prepare)?;
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dereg_mr` of a device that `T` extends.
pub(super) unsafe extern "C" fn dereg_mr<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with an MR that is not deregistered.
        let mr = unsafe { Mr::from_raw(raw) };
        // The MR is freed before `running` is dropped; the device is not.
        // SAFETY: As above.
        let device = unsafe { Device::from_raw((*raw).device) };
        // The client was removed meanwhile, so the device has the driver's operation again.
        // SAFETY: The arguments are the core's.
        let without = || unsafe {
            match (*device.as_raw()).ops.dereg_mr {
                Some(stock) => Ok(stock(raw, udata)),
                None => Err(ENODEV),
            }
        };
        let mut running = match Running::<T>::on(device) {
            Ok(running) => running,
            Err(removed) => {
                let _loaded = removed.keep_loaded();
                return without();
            }
        };
        let stock = running.data().overlay().stock.dereg_mr;
        let stock = stock.ok_or_else(eopnotsupp)?;
        let leaving = running.data().leave(mr)?;
        if T::is_held_up(&leaving) {
            // Removal of another device must not wait for these accesses. This device is not
            // removed while the process that they wait for keeps it open.
            let _loaded = running.keep_loaded();
            if let Err(busy) = T::wait(mr, &leaving) {
                T::stay(mr, leaving);
                return Err(busy);
            }
            running = match Running::<T>::on(device) {
                Ok(running) => running,
                Err(_) => {
                    let result = without();
                    if result != Ok(0) {
                        T::stay(mr, leaving);
                    }
                    return result;
                }
            };
        }
        // SAFETY: The arguments are the core's.
        let stock = || to_result(unsafe { stock(raw, udata) });
        let left = running.data().dereg_mr(mr, leaving, stock);
        let _loaded = running.keep_loaded();
        // This may drop a dma-buf, whose exporter may block.
        drop(left?);
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.rereg_user_mr` of a device that `T` extends.
pub(super) unsafe extern "C" fn rereg_user_mr<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    virt_addr: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid MR.
    let mr = unsafe { Mr::from_raw(raw) };
    let rereg = || {
        let running = Running::<T>::on(mr.device())?;
        let changes_pd = flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_PD as c_int != 0;
        running.data().prepare_rereg(mr, changes_pd)?;
        let stock = running.data().overlay().stock.rereg_user_mr;
        let stock = stock.ok_or_else(eopnotsupp)?;
        let translation = bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS as c_int;
        if flags & translation == 0 {
            // SAFETY: The arguments are the core's.
            return Ok(unsafe { stock(raw, flags, start, length, virt_addr, access, pd, udata) });
        }
        let rights = if flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS as c_int != 0 {
            access
        } else {
            running.data().rights(mr).into_raw() as c_int
        };
        let (register, dereg) = {
            let data = running.data();
            let ops = &data.overlay().stock;
            (ops.reg_user_mr.ok_or_else(eopnotsupp)?, ops.dereg_mr)
        };
        // Registration faults user memory in. Removal of another device must not wait for that.
        // This device is not removed while the owner of the MR keeps it open.
        let _loaded = running.keep_loaded();
        // SAFETY: The arguments are the core's, except for the access flags.
        let spare = from_err_ptr(unsafe {
            register(pd, start, length, virt_addr, rights, ptr::null_mut(), udata)
        })?;
        // SAFETY: Registered above.
        let spare = unsafe { DriverMr::from_raw(spare, dereg) };
        let running = Running::<T>::on(mr.device())?;
        let finish = || {
            let rest = flags & !translation;
            if rest != 0 {
                // SAFETY: The arguments are the core's.
                from_err_ptr(unsafe {
                    stock(raw, rest, start, length, virt_addr, access, pd, udata)
                })?;
            }
            Ok(())
        };
        let range = (virt_addr, length);
        running.data().retranslate(mr, &spare, range, finish)?;
        Ok(ptr::null_mut())
    };
    rereg().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.advise_mr` of a device that `T` extends.
pub(super) unsafe extern "C" fn advise_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut bindings::ib_sge,
    num_sge: u32,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a valid protection domain.
        let domain = unsafe { Pd::from_raw(pd) };
        let list = match num_sge {
            // `sg_list` may be NULL.
            0 => &[],
            // SAFETY: The core calls with `num_sge` entries.
            _ => unsafe { core::slice::from_raw_parts(sg_list, num_sge as usize) },
        };
        let running = Running::<T>::on(domain.device())?;
        let lkeys = list.iter().map(|sge| sge.lkey);
        let held = running.data().hold_for_advice(domain, lkeys)?;
        // The MRs are held until this returns, so the driver must have ended its use of them.
        let flags = flags | bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
        let stock = running.data().overlay().stock.advise_mr;
        let stock = stock.ok_or_else(eopnotsupp)?;
        // The call faults user memory in. Removal of another device must not wait for that.
        let _loaded = running.keep_loaded();
        // SAFETY: The arguments are the core's.
        let result = unsafe { stock(pd, advice, flags, sg_list, num_sge, attrs) };
        drop(held);
        to_result(result)?;
        Ok(0)
    })
}
