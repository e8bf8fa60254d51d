// SPDX-License-Identifier: GPL-2.0

//! The table of device operations of a module that extends the devices of a driver, and the
//! functions in it, which `ib_core` calls.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::{Dm, DriverDm, GivenUpDm},
    driver::DriverMr,
    mr::{Access, Mr, NewMr},
    ops::{Attrs, DeviceOps},
    pd::{Pd, UserContext},
    scatterlist::Elements,
};
use crate::{
    bindings,
    kernel_ext::{error::eopnotsupp, export_c::callbacks},
};
use core::ptr;
use kernel::{
    error::{from_err_ptr, to_result},
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
        Self(ops)
    }

    /// Returns the table.
    pub(crate) const fn as_raw(&self) -> *const bindings::ib_device_ops {
        &self.0
    }
}

// The operations. Those that pass a call to the driver pass the arguments of the core.
callbacks! {
    for T: DeviceOps;

    /// Queries the attributes of a device.
    fn query_device(
        device: &Device,
        attr: &mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> Result {
        let data = T::of(device)?;
        let driver = T::driver();
        let driver = driver.table().query_device.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        to_result(unsafe { driver(device.as_raw(), attr, udata) })?;
        data.query_device(attr, !udata.is_null());
        Ok(())
    }

    /// Allocates device memory.
    fn alloc_dm(
        device: &Device,
        context: &UserContext,
        attr: &mut bindings::ib_dm_alloc_attr,
        attrs: Attrs<'_>,
    ) -> Result<KBox<DriverDm<T::Dm>>> {
        T::of(device)?.alloc_dm(context, attr, &attrs)
    }

    /// Frees device memory.
    fn dealloc_dm(dm: GivenUpDm<T::Dm>, _attrs: Attrs<'_>) -> Result {
        dm.free()
    }

    /// Makes an MR over device memory.
    fn reg_dm_mr(
        pd: &Pd,
        dm: &Dm,
        attr: &mut bindings::ib_dm_mr_attr,
        _attrs: Attrs<'_>,
    ) -> Result<DriverMr> {
        let data = T::of(pd.device())?;
        let access = Access::from_raw(attr.access_flags);
        let dm = dm.data::<T>()?;
        T::driver().alloc_mr(pd, 1, |new| {
            data.reg_dm_mr(new, pd, dm, attr.offset, attr.length, access)
        })
    }

    /// Makes an MR over a dma-buf.
    fn reg_user_mr_dmabuf(
        pd: &Pd,
        offset: u64,
        length: u64,
        addr: u64,
        fd: c_int,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        _attrs: Attrs<'_>,
    ) -> Result<DriverMr> {
        let access = Access::from_raw(access as u32);
        let data = T::of(pd.device())?;
        if !dmah.is_null() {
            return Err(eopnotsupp());
        }
        data.reg_user_mr_dmabuf(pd, offset, length, addr, fd, access)
    }

    /// Deregisters an MR.
    fn dereg_mr(mr: &Mr, udata: *mut bindings::ib_udata) -> Result {
        let driver = T::driver();
        let driver = driver.table().dereg_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        let driver = || to_result(unsafe { driver(mr.as_raw(), udata) });
        // The data do not exist yet, or not any more, when the module deallocates its own
        // protection domain, with the domain's MR of all memory. Nothing refers to that MR then.
        let Ok(data) = T::of(mr.device()) else {
            return driver();
        };
        let left = data.dereg_mr(mr, !udata.is_null(), driver)?;
        // This may drop a dma-buf, whose exporter may block.
        drop(left);
        Ok(())
    }

    /// Changes the memory or the properties of an MR.
    fn rereg_user_mr(
        mr: &Mr,
        flags: c_int,
        start: u64,
        length: u64,
        virt_addr: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> Result<*mut bindings::ib_mr> {
        let (raw, data) = (mr.as_raw(), T::of(mr.device())?);
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
    }

    /// Makes an MR for fast registration.
    fn alloc_mr(
        pd: &Pd,
        kind: bindings::ib_mr_type,
        max_num_sg: u32,
    ) -> Result<*mut bindings::ib_mr> {
        let data = T::of(pd.device())?;
        let driver = T::driver();
        if kind != bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS {
            let alloc_mr = driver.table().alloc_mr.ok_or_else(eopnotsupp)?;
            // SAFETY: The arguments are the core's.
            return Ok(unsafe { alloc_mr(pd.as_raw(), kind, max_num_sg) });
        }
        // Elements may be addresses of any memory, so a process must not choose them.
        if !pd.is_kernels() {
            return Err(EINVAL);
        }
        let prepare = |new: NewMr<'_>| data.alloc_fast_reg(new, max_num_sg);
        Ok(driver.alloc_mr(pd, 1, prepare)?.into_raw())
    }

    /// Maps a scatterlist to an MR for fast registration. Neither sleeps nor allocates, because it
    /// may be called in any context.
    fn map_mr_sg(
        mr: &Mr,
        list: *mut bindings::scatterlist,
        nents: c_int,
        offset: *mut c_uint,
    ) -> Result<c_int> {
        let data = T::of(mr.device())?;
        // SAFETY: The arguments are the core's.
        let mapped = unsafe { map_elements(data, mr, list, nents, offset) };
        mapped.inspect_err(|_| {
            // The core has written the new page size before the call.
            // SAFETY: The MR belongs to the caller, who does not use it meanwhile.
            unsafe { (*mr.as_raw()).page_size = data.page_size(mr) };
        })
    }
}

/// Does what `map_mr_sg()` does, but leaves the page size as it is after an error.
///
/// # Safety
///
/// The arguments must be those of the verb.
unsafe fn map_elements<T: DeviceOps>(
    data: &T,
    mr: &Mr,
    list: *mut bindings::scatterlist,
    nents: c_int,
    offset: *mut c_uint,
) -> Result<c_int> {
    let raw = mr.as_raw();
    if !mr.has_gaps() {
        data.may_map(mr)?;
        let map_mr_sg = T::driver().table().map_mr_sg.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        let count = unsafe { map_mr_sg(mr.as_raw(), list, nents, offset) };
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
}
