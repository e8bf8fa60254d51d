// SPDX-License-Identifier: GPL-2.0

//! The functions that `ib_core` calls for the MRs of a device with the
//! [`Operations`](super::table::Operations) of a module. `fast_reg.rs` has those for fast registration.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    dm::Dm,
    driver_mr::DriverMr,
    mr::{Access, Mr, NewMr, Right},
    ops::DeviceOps,
    pd::Pd,
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
/// Only `ib_core` may call this, as `ib_device_ops.reg_dm_mr` of a device of `T`.
pub(super) unsafe extern "C" fn reg_dm_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    dm: *mut bindings::ib_dm,
    attr: *mut bindings::ib_dm_mr_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with valid objects of one device; the memory is not freed.
    let (pd, dm, attr) = unsafe { (Pd::from_raw(pd), Dm::from_raw(dm), &*attr) };
    let register = || {
        let data = T::of(pd.device())?;
        let access = Access::from_raw(attr.access_flags);
        let dm = dm.data::<T>()?;
        let mr = T::driver().alloc_mr(pd, 1, |new| {
            data.reg_dm_mr(new, pd, dm, attr.offset, attr.length, access)
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
/// Only `ib_core` may call this, as `ib_device_ops.reg_user_mr_dmabuf` of a device of `T`.
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
        let access = Access::from_raw(access as u32);
        let data = T::of(pd.device())?;
        data.may_import(access)?;
        if !dmah.is_null() {
            return Err(eopnotsupp());
        }
        addr.checked_add(length).ok_or(EOVERFLOW)?;
        let import = Import::new(fd, access.contains(Right::LocalWrite), T::check_dma_buf)?;
        let pages = import.pages(offset, length)?.len();
        if pages > MAX_DMABUF_PAGES {
            return Err(ENOMEM);
        }
        let charge = data.charge_import(pd, pages)?;
        let prepare =
            |new: NewMr<'_>| data.reg_dmabuf_mr(new, import, charge, offset, length, addr, access);
        let mr = T::driver().alloc_mr(pd, u32::try_from(pages)?, prepare)?;
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.dereg_mr` of a device of `T`.
pub(super) unsafe extern "C" fn dereg_mr<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with an MR that is not deregistered.
        let mr = unsafe { Mr::from_raw(raw) };
        let driver = T::driver();
        let driver = driver.table().dereg_mr.ok_or_else(eopnotsupp)?;
        let for_process = !udata.is_null();
        // SAFETY: The arguments are the core's.
        let driver = || to_result(unsafe { driver(raw, udata) });
        // The data do not exist yet, or not any more, when the module deallocates its own protection
        // domain, with the domain's MR of all memory. Nothing refers to that MR then.
        let Ok(data) = T::of(mr.device()) else {
            return driver().map(|()| 0);
        };
        let left = data.dereg_mr(mr, for_process, driver)?;
        // This may drop a dma-buf, whose exporter may block.
        drop(left);
        Ok(0)
    })
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.rereg_user_mr` of a device of `T`.
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
        let data = T::of(mr.device())?;
        data.may_rereg(mr)?;
        let driver = T::driver();
        let driver = driver.table();
        let change = driver.rereg_user_mr.ok_or_else(eopnotsupp)?;
        let translation = bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS as c_int;
        if flags & translation == 0 {
            // SAFETY: The arguments are the core's.
            return Ok(unsafe { change(raw, flags, start, length, virt_addr, access, pd, udata) });
        }
        let rights = if flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS as c_int != 0 {
            access
        } else {
            data.rights(mr).into_raw() as c_int
        };
        let register = driver.reg_user_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's, except for the access flags.
        let spare = from_err_ptr(unsafe {
            register(pd, start, length, virt_addr, rights, ptr::null_mut(), udata)
        })?;
        // SAFETY: Registered above.
        let spare = unsafe { DriverMr::from_raw(spare, driver.dereg_mr) };
        let finish = || {
            let rest = flags & !translation;
            if rest != 0 {
                // SAFETY: The arguments are the core's.
                from_err_ptr(unsafe {
                    change(raw, rest, start, length, virt_addr, access, pd, udata)
                })?;
            }
            Ok(())
        };
        let range = (virt_addr, length);
        data.retranslate(mr, &spare, range, finish)?;
        Ok(ptr::null_mut())
    };
    rereg().unwrap_or_else(|err: Error| err.to_ptr())
}
