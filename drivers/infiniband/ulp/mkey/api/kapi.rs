// SPDX-License-Identifier: GPL-2.0

//! The kernel API, as `include/rdma/ib_mkey.h` declares it; described there.
//!
//! Pointers become references here; what follows is safe. Each function's callers promise that
//! the objects they give are valid and are not freed during the call.

#![allow(
    clippy::missing_safety_doc,
    reason = "called from C; include/rdma/ib_mkey.h is what callers read"
)]

use crate::{
    bindings,
    device::MkeyDevice,
    dm::Buffer,
    kernel_ext::{
        rdma::{ops::DeviceOps, Access, Device, Dm, Mr, OwnedMr, Pd},
        same_types,
    },
    key::{
        self,
        indexed::{self, Pattern},
        Described, Key,
    },
    layout::IndexSlice,
};
use core::slice;
use kernel::{
    error::from_result,
    ffi::{c_int, c_void},
    prelude::*,
};

#[no_mangle]
unsafe extern "C" fn ib_alloc_dm(
    device: *mut bindings::ib_device,
    attr: *const bindings::ib_dm_alloc_attr,
) -> *mut bindings::ib_dm {
    // SAFETY: The caller gives a registered device and attributes.
    let (device, attr) = unsafe { (Device::from_raw(device), &*attr) };
    let alloc = || {
        let this = MkeyDevice::of(device)?;
        this.owns_dm()?;
        let mut dm = MkeyDevice::alloc_dm(this.as_arc_borrow(), attr, false)?;
        dm.init(device, u32::try_from(attr.length)?);
        Ok(Dm::into_raw(dm))
    };
    alloc().unwrap_or_else(|err: Error| err.to_ptr())
}

#[no_mangle]
unsafe extern "C" fn ib_free_dm(dm: *mut bindings::ib_dm) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives memory of `ib_alloc_dm()`.
        if unsafe { Dm::<Buffer>::from_raw(dm) }.in_use() {
            return Err(EBUSY);
        }
        // SAFETY: No region refers to it and the caller gives it up.
        drop(unsafe { Dm::<Buffer>::take(dm) });
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_reg_dm_mr(
    pd: *mut bindings::ib_pd,
    dm: *mut bindings::ib_dm,
    dm_offset: u64,
    length: u64,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: The caller gives a protection domain and memory of `ib_alloc_dm()`.
    let (pd, dm) = unsafe { (Pd::from_raw(pd), Dm::<Buffer>::from_raw(dm)) };
    let register = || {
        if !dm.is_of(pd.device()) {
            return Err(EINVAL);
        }
        let end = dm_offset.checked_add(length).ok_or(EINVAL)?;
        if end > dm.data.memory().len() as u64 {
            return Err(EINVAL);
        }
        let access = Access::checked(pd.device(), access)?;
        let this = MkeyDevice::of(pd.device())?;
        let mr = OwnedMr::new(pd, 1)?;
        let this = this.as_arc_borrow();
        MkeyDevice::reg_dm_mr(this, &mr, pd, dm, dm_offset, length, access)?;
        // SAFETY: The memory is from `ib_alloc_dm()`; `ib_free_dm()` refuses to take it back while it
        // is in use. The caller does not know the region yet, and nobody else does.
        unsafe { dm.attach(&mr) };
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

#[no_mangle]
unsafe extern "C" fn ib_memcpy_to_dm(
    dm: *mut bindings::ib_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives memory of `ib_alloc_dm()` and `length` readable bytes.
        unsafe {
            let memory = Dm::<Buffer>::from_raw(dm).data.memory();
            memory.write(dm_offset, host_addr.cast(), length)?;
        }
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut bindings::ib_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives memory of `ib_alloc_dm()` and `length` writable bytes.
        unsafe {
            let memory = Dm::<Buffer>::from_raw(dm).data.memory();
            memory.read_to(dm_offset, host_addr.cast(), length)?;
        }
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_dm_to_sgt(
    dm: *mut bindings::ib_dm,
    dm_offset: u64,
    length: u64,
    sgt: *mut bindings::sg_table,
) -> c_int {
    // SAFETY: The caller gives memory of `ib_alloc_dm()`.
    let memory = unsafe { Dm::<Buffer>::from_raw(dm) }.data.memory();
    from_result(|| {
        let end = dm_offset.checked_add(length).ok_or(EINVAL)?;
        if end > memory.len() as u64 {
            return Err(EINVAL);
        }
        let (offset, length) = (usize::try_from(dm_offset)?, usize::try_from(length)?);
        // SAFETY: The caller gives a table, and frees it before the memory.
        unsafe { memory.fill_sgt(sgt, offset, length, u32::MAX) }?;
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_export_dm(dm: *mut bindings::ib_dm) -> *mut bindings::dma_buf {
    let export = || {
        // SAFETY: The caller gives device memory, and with it its device.
        let (dm, device) = unsafe { (dm, MkeyDevice::of(Device::from_raw((*dm).device))?) };
        // Memory of a program's may be the driver's own.
        device.owns_dm()?;
        // SAFETY: As above; it is ours.
        unsafe { Dm::<Buffer>::from_raw(dm) }.data.export()
    };
    export().unwrap_or_else(|err: Error| err.to_ptr())
}

#[no_mangle]
unsafe extern "C" fn ib_alloc_mkey(
    pd: *mut bindings::ib_pd,
    max_entries: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: The caller gives a protection domain.
    let pd = unsafe { Pd::from_raw(pd) };
    MkeyDevice::of(pd.device())
        .and_then(|device| key::create(&device.core, pd, max_entries))
        .map_or_else(|err| err.to_ptr(), OwnedMr::into_raw)
}

/// Runs `call` with the key `raw`.
///
/// # Safety
///
/// `raw` must be a region that is not deregistered during the call.
pub(crate) unsafe fn with_key<T>(
    raw: *mut bindings::ib_mr,
    call: impl FnOnce(&Key<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: By the safety requirement. A region of ours cannot be reregistered, so that its
    // protection domain stays.
    let (mr, pd) = unsafe { (Mr::from_raw(raw), Pd::from_raw((*raw).pd)) };
    let device = MkeyDevice::of(mr.device())?;
    call(&Key::of(&device.core, mr, pd)?)
}

/// Describes ranges.
///
/// # Safety
///
/// `sg_list` must have `num_sge` entries.
pub(crate) unsafe fn describe_list<'k>(
    key: &'k Key<'_>,
    sg_list: *const bindings::ib_sge,
    num_sge: u32,
    access: c_int,
) -> Result<Described<'k>> {
    let access = Access::checked(key.mr().device(), access)?;
    let mut description = key.describe(num_sge, access)?;
    // SAFETY: By the safety requirement, and `describe()` refused none.
    for sge in unsafe { slice::from_raw_parts(sg_list, num_sge as usize) } {
        description.range(sge.lkey, sge.addr, sge.length.into())?;
    }
    description.list()
}

/// Describes blocks that repeat.
///
/// # Safety
///
/// `layout` must have as many counts and blocks as it says.
pub(crate) unsafe fn describe_interleaved<'k>(
    key: &'k Key<'_>,
    layout: &bindings::ib_mkey_interleaved,
    access: c_int,
) -> Result<Described<'k>> {
    let access = Access::checked(key.mr().device(), access)?;
    let mut description = key.describe(layout.num_blocks, access)?;
    if layout.num_dims == 0 || layout.num_dims > bindings::IB_MKEY_MAX_DIMS {
        return Err(EINVAL);
    }
    // SAFETY: By the safety requirement; they are not none.
    let (repeat_count, blocks) = unsafe {
        (
            slice::from_raw_parts(layout.repeat_count, layout.num_dims as usize),
            slice::from_raw_parts(layout.blocks, layout.num_blocks as usize),
        )
    };
    for block in blocks {
        description.block(block.lkey, block.addr, block.bytes_count, block.stride)?;
    }
    description.interleaved(repeat_count)
}

/// Describes blocks at indices.
///
/// # Safety
///
/// `layout` must have as many indices as it says.
pub(crate) unsafe fn describe_indexed<'k>(
    key: &'k Key<'_>,
    layout: &bindings::ib_mkey_indexed,
    access: c_int,
) -> Result<Described<'k>> {
    let access = Access::checked(key.mr().device(), access)?;
    let count = layout.num_indices as usize;
    let indices = match (layout.indices32.is_null(), layout.indices64.is_null()) {
        // SAFETY: By the safety requirement, and not NULL.
        (false, true) => IndexSlice::U32(unsafe { slice::from_raw_parts(layout.indices32, count) }),
        // SAFETY: As above.
        (true, false) => IndexSlice::U64(unsafe { slice::from_raw_parts(layout.indices64, count) }),
        _ => return Err(EINVAL),
    };
    let pattern = Pattern {
        lkey: layout.lkey,
        addr: layout.addr,
        unit: layout.unit,
        bytes_count: layout.bytes_count,
    };
    indexed::describe(key, access, pattern, indices)
}

#[no_mangle]
unsafe extern "C" fn ib_bind_mkey_list(
    mkey: *mut bindings::ib_mr,
    sg_list: *const bindings::ib_sge,
    num_sge: u32,
    access: c_int,
) -> c_int {
    let bind = |key: &Key<'_>| {
        // SAFETY: The caller gives `num_sge` entries.
        unsafe { describe_list(key, sg_list, num_sge, access) }?.bind()?;
        Ok(0)
    };
    // SAFETY: The caller gives a key.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_bind_mkey_interleaved(
    mkey: *mut bindings::ib_mr,
    layout: *const bindings::ib_mkey_interleaved,
    access: c_int,
) -> c_int {
    let bind = |key: &Key<'_>| {
        // SAFETY: The caller gives a description.
        unsafe { describe_interleaved(key, &*layout, access) }?.bind()?;
        Ok(0)
    };
    // SAFETY: The caller gives a key.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_bind_mkey_indexed(
    mkey: *mut bindings::ib_mr,
    layout: *const bindings::ib_mkey_indexed,
    access: c_int,
) -> c_int {
    let bind = |key: &Key<'_>| {
        // SAFETY: The caller gives a description.
        unsafe { describe_indexed(key, &*layout, access) }?.bind()?;
        Ok(0)
    };
    // SAFETY: The caller gives a key.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_unbind_mkey(mkey: *mut bindings::ib_mr) -> c_int {
    let unbind = |key: &Key<'_>| {
        key.unbind()?;
        Ok(0)
    };
    // SAFETY: The caller gives a key.
    from_result(|| unsafe { with_key(mkey, unbind) })
}

#[no_mangle]
unsafe extern "C" fn ib_query_mkey_caps(
    device: *mut bindings::ib_device,
    caps: *mut bindings::ib_mkey_caps,
) -> c_int {
    from_result(|| {
        // SAFETY: The caller gives a registered device.
        let device = MkeyDevice::of(unsafe { Device::from_raw(device) })?;
        // SAFETY: The caller gives a place for the answer.
        unsafe { *caps = device.caps() };
        Ok(0)
    })
}

same_types!(
    ib_alloc_dm,
    ib_free_dm,
    ib_reg_dm_mr,
    ib_memcpy_to_dm,
    ib_memcpy_from_dm,
    ib_dm_to_sgt,
    ib_export_dm,
    ib_alloc_mkey,
    ib_bind_mkey_list,
    ib_bind_mkey_interleaved,
    ib_bind_mkey_indexed,
    ib_unbind_mkey,
    ib_query_mkey_caps,
);
