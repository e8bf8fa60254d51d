// SPDX-License-Identifier: GPL-2.0

//! Fast registration, by kernel users, of MRs with gaps: `IB_MR_TYPE_SG_GAPS`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    mr::{Mr, NewMr},
    ops::DeviceOps,
    pd::Pd,
    scatterlist::Elements,
};
use crate::{bindings, kernel_ext::error::eopnotsupp};
use kernel::{
    error::{from_result, to_result},
    ffi::{c_int, c_uint},
    prelude::*,
};

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.alloc_mr` of a device of `T`.
pub(super) unsafe extern "C" fn alloc_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    max_num_sg: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid protection domain.
    let domain = unsafe { Pd::from_raw(pd) };
    let alloc = || {
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
    };
    alloc().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only `ib_core` may call this, as `ib_device_ops.map_mr_sg` of a device of `T`. It may
/// be called in any context, so it neither sleeps nor allocates.
pub(super) unsafe extern "C" fn map_mr_sg<T: DeviceOps>(
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
