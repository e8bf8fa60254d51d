// SPDX-License-Identifier: GPL-2.0

//! The table of device operations of a module that extends the devices of a driver, and the functions
//! in it, which `ib_core` calls.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::{Dm, DriverDm, GivenUpDm},
    driver::DriverMr,
    mr::{Access, Mr, Mw, NewMr},
    ops::{Attrs, DeviceOps},
    pd::{Pd, UserContext},
    scatterlist::Elements,
};
use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr::{self, NonNull};
use kernel::{
    error::{from_err_ptr, from_result, to_result},
    ffi::{c_int, c_uint},
    prelude::*,
};

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
        ops.query_device = Some(query_device::<T>);
        ops.alloc_dm = Some(alloc_dm::<T>);
        ops.dealloc_dm = Some(dealloc_dm::<T>);
        ops.reg_dm_mr = Some(reg_dm_mr::<T>);
        ops.reg_user_mr_dmabuf = Some(reg_user_mr_dmabuf::<T>);
        ops.rereg_user_mr = Some(rereg_user_mr::<T>);
        ops.dereg_mr = Some(dereg_mr::<T>);
        ops.alloc_mr = Some(alloc_mr::<T>);
        ops.map_mr_sg = Some(map_mr_sg::<T>);
        ops.dealloc_mw = Some(dealloc_mw::<T>);
        Self(ops)
    }

    /// Returns the table.
    pub(crate) const fn as_raw(&self) -> *const bindings::ib_device_ops {
        &self.0
    }
}

/// Returns the pointer that `call` returns, or an error pointer.
fn from_ptr_result<T>(call: impl FnOnce() -> Result<*mut T>) -> *mut T {
    call().unwrap_or_else(|err| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.query_device` of a device of `T`. The same holds
/// for the functions below, each as the operation of its name.
unsafe extern "C" fn query_device<T: DeviceOps>(
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
        // SAFETY: `attr` is valid, and the driver has filled it in.
        data.query_device(unsafe { &mut *attr }, !udata.is_null());
        Ok(0)
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn alloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    context: *mut bindings::ib_ucontext,
    attr: *mut bindings::ib_dm_alloc_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_dm {
    // SAFETY: The core calls with a registered device and attributes that are its own.
    let (device, attr) = unsafe { (Device::from_raw(raw), &*attr) };
    from_ptr_result(|| {
        // SAFETY: The core calls for a method of a process, and passes the context of the process.
        let (context, attrs) = unsafe { (UserContext::from_raw(context), Attrs::from_raw(attrs)) };
        let dm = T::of(device)?.alloc_dm(context, attr, &attrs)?;
        Ok(DriverDm::into_raw(dm))
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn dealloc_dm<T: DeviceOps>(
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
/// As for [`query_device`].
unsafe extern "C" fn reg_dm_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    dm: *mut bindings::ib_dm,
    attr: *mut bindings::ib_dm_mr_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with valid objects of one device; the memory is not freed.
    let (pd, dm, attr) = unsafe { (Pd::from_raw(pd), Dm::from_raw(dm), &*attr) };
    from_ptr_result(|| {
        let data = T::of(pd.device())?;
        let access = Access::from_raw(attr.access_flags);
        let dm = dm.data::<T>()?;
        let mr = T::driver().alloc_mr(pd, 1, |new| {
            data.reg_dm_mr(new, pd, dm, attr.offset, attr.length, access)
        })?;
        Ok(mr.into_raw())
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn reg_user_mr_dmabuf<T: DeviceOps>(
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
    from_ptr_result(|| {
        let access = Access::from_raw(access as u32);
        let data = T::of(pd.device())?;
        if !dmah.is_null() {
            return Err(eopnotsupp());
        }
        let mr = data.reg_user_mr_dmabuf(pd, offset, length, addr, fd, access)?;
        Ok(mr.into_raw())
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn dereg_mr<T: DeviceOps>(
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
/// As for [`query_device`].
unsafe extern "C" fn rereg_user_mr<T: DeviceOps>(
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
    from_ptr_result(|| {
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
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn alloc_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    max_num_sg: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid protection domain.
    let domain = unsafe { Pd::from_raw(pd) };
    from_ptr_result(|| {
        let data = T::of(domain.device())?;
        let driver = T::driver();
        if kind != bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS {
            let alloc_mr = driver.table().alloc_mr.ok_or_else(eopnotsupp)?;
            // SAFETY: The arguments are the core's.
            return Ok(unsafe { alloc_mr(pd, kind, max_num_sg) });
        }
        // Elements may be addresses of any memory, so a process must not choose them.
        if !domain.is_kernels() {
            return Err(EINVAL);
        }
        let prepare = |new: NewMr<'_>| data.alloc_fast_reg(new, max_num_sg);
        let mr = driver.alloc_mr(domain, 1, prepare)?;
        Ok(mr.into_raw())
    })
}

/// Neither sleeps nor allocates, because it may be called in any context.
///
/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn map_mr_sg<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    nents: c_int,
    offset: *mut c_uint,
) -> c_int {
    // SAFETY: The core calls with a valid MR.
    let mr = unsafe { Mr::from_raw(raw) };
    let map = |data: &T| {
        if !mr.has_gaps() {
            data.may_map(mr)?;
            let map_mr_sg = T::driver().table().map_mr_sg.ok_or_else(eopnotsupp)?;
            // SAFETY: The arguments are the core's.
            let count = unsafe { map_mr_sg(raw, list, nents, offset) };
            to_result(count)?;
            return Ok(count);
        }
        // SAFETY: The caller of the verb passes a list of `nents` elements, and NULL or an offset.
        let elements = unsafe { Elements::new(list, nents, offset) }?;
        let mapped = data.map_fast_reg(mr, elements)?;
        // SAFETY: The MR belongs to the caller, who registers it after this returns.
        unsafe {
            (*raw).iova = mapped.start;
            (*raw).length = mapped.length;
            // An element is mapped completely or not at all.
            if let Some(offset) = offset.as_mut() {
                *offset = 0;
            }
        }
        Ok(c_int::try_from(mapped.count)?)
    };
    from_result(|| {
        let data = T::of(mr.device())?;
        map(data).inspect_err(|_| {
            // The core has written the new page size before the call.
            // SAFETY: The MR belongs to the caller, who does not use it meanwhile.
            unsafe { (*raw).page_size = data.page_size(mr) };
        })
    })
}

/// # Safety
///
/// As for [`query_device`].
unsafe extern "C" fn dealloc_mw<T: DeviceOps>(raw: *mut bindings::ib_mw) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a window, which it frees when this has returned.
        let mw = unsafe { Mw::from_raw(raw) };
        let driver = T::driver().table().dealloc_mw.ok_or_else(eopnotsupp)?;
        // SAFETY: The argument is the core's.
        T::of(mw.device())?.dealloc_mw(mw, || to_result(unsafe { driver(raw) }))?;
        Ok(0)
    })
}
