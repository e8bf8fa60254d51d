// SPDX-License-Identifier: GPL-2.0

//! The uverbs methods, called by the tables in `uapi/uverbs_table.c`.
//!
//! Pointers become references here and nowhere else; what follows is safe.

#![allow(clippy::missing_safety_doc, reason = "called by the tables in C only")]

use crate::{
    bindings::{
        self, ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_info,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_UNBOUND as KIND_UNBOUND, ib_uverbs_mkey_sge as UapiSge,
    },
    device::{self, MkeyDevice},
    dm::Buffer,
    kapi::with_key,
    key::{self, Key},
    layout::{Block, Entry, Layout, MAX_DIMS},
    object::Bound,
    rdma::{
        same_types,
        uapi::{read_array, write_array},
        Access, Device, Dm, Pd,
    },
};
use kernel::{
    error::from_result,
    ffi::c_int,
    prelude::*, //
};

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_create(
    pd: *mut bindings::ib_pd,
    max_entries: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: uverbs holds the protection domain.
    let pd = unsafe { Pd::from_raw(pd) };
    MkeyDevice::of(pd.device())
        .and_then(|device| key::create(&device, pd, max_entries))
        .map_or_else(|err| err.to_ptr(), |mr| mr.into_raw())
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_bind_list(
    mkey: *mut bindings::ib_mr,
    access: u32,
    entries: u64,
    num_entries: u32,
) -> c_int {
    let bind = |key: &Key<'_>| {
        let mut description = key.describe(num_entries, Access::from_raw(access))?;
        let mut list = KVVec::with_capacity(num_entries as usize, GFP_KERNEL_ACCOUNT)?;
        read_array(entries, num_entries, |sge: UapiSge| {
            if sge.reserved != 0 {
                return Err(EINVAL);
            }
            let leaf = description.leaf(sge.lkey)?;
            list.push(Entry::new(leaf, sge.addr, sge.length), GFP_KERNEL_ACCOUNT)?;
            Ok(())
        })?;
        description.bind_list(list)?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_bind_interleaved(
    mkey: *mut bindings::ib_mr,
    access: u32,
    repeat_count: *const u64,
    num_dims: u32,
    blocks: u64,
    num_blocks: u32,
) -> c_int {
    // SAFETY: The C half gives an array of `num_dims` counts.
    let repeat_count = unsafe { core::slice::from_raw_parts(repeat_count, num_dims as usize) };
    let bind = |key: &Key<'_>| {
        let mut description = key.describe(num_blocks, Access::from_raw(access))?;
        let mut list = KVVec::with_capacity(num_blocks as usize, GFP_KERNEL_ACCOUNT)?;
        read_array(blocks, num_blocks, |block: UapiBlock| {
            let unused = block.stride.iter().skip(repeat_count.len());
            if block.reserved != 0 || unused.into_iter().any(|stride| *stride != 0) {
                return Err(EINVAL);
            }
            let leaf = description.leaf(block.lkey)?;
            list.push(
                Block::new(leaf, block.addr, block.bytes_count, block.stride),
                GFP_KERNEL_ACCOUNT,
            )?;
            Ok(())
        })?;
        description.bind_interleaved(repeat_count, list)?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_unbind(mkey: *mut bindings::ib_mr) -> c_int {
    let unbind = |key: &Key<'_>| {
        key.unbind()?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, unbind) })
}

/// Describes entry or block `index` as it was bound.
fn describe(bound: &Bound, index: usize) -> Option<UapiBlock> {
    let (leaf, addr, bytes_count, stride) = match &bound.layout {
        Layout::List(list) => {
            let entry = list.entries().get(index)?;
            (entry.leaf(), entry.addr(), entry.length(), [0; MAX_DIMS])
        }
        Layout::Interleaved(interleaved) => {
            let block = interleaved.blocks().get(index)?;
            (
                block.leaf(),
                block.addr(),
                block.bytes_count(),
                *block.stride(),
            )
        }
    };
    Some(UapiBlock {
        addr,
        bytes_count,
        stride,
        lkey: bound.leaves.get(leaf as usize)?.lkey,
        reserved: 0,
    })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_query(
    mkey: *mut bindings::ib_mr,
    info: *mut ib_uverbs_mkey_info,
    repeat_count: *mut u64,
    blocks: u64,
    num_blocks: u32,
) -> c_int {
    // SAFETY: The C half gives the structure and an array of the most dimensions.
    let (info, repeat_count) = unsafe {
        (
            &mut *info,
            core::slice::from_raw_parts_mut(repeat_count, MAX_DIMS),
        )
    };
    let query = |key: &Key<'_>| {
        info.lkey = key.mr().lkey();
        info.rkey = key.mr().rkey();
        info.max_entries = key.max_entries();
        let mut described = KVVec::new();
        key.inspect(|bound| {
            let Some(bound) = bound else {
                info.kind = KIND_UNBOUND;
                return Ok(());
            };
            info.length = bound.layout.length();
            info.access = bound.access.into_raw();
            info.num_entries = u32::try_from(bound.layout.count())?;
            info.kind = KIND_LIST;
            if let Layout::Interleaved(interleaved) = &bound.layout {
                info.kind = KIND_INTERLEAVED;
                info.num_dims = u32::try_from(interleaved.repeat_counts().len())?;
                for (to, count) in repeat_count.iter_mut().zip(interleaved.repeat_counts()) {
                    *to = count;
                }
            }
            let wanted = bound.layout.count().min(num_blocks as usize);
            described.reserve(wanted, GFP_KERNEL_ACCOUNT)?;
            for block in (0..wanted).map_while(|index| describe(bound, index)) {
                described.push(block, GFP_KERNEL_ACCOUNT)?;
            }
            Ok::<(), Error>(())
        })?;
        // Not while looking: a fault in user memory would keep binds waiting.
        write_array(blocks, num_blocks, described.iter())?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, query) })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_query_caps(
    ibdev: *mut bindings::ib_device,
    caps: *mut bindings::ib_uverbs_mkey_caps,
) -> c_int {
    from_result(|| {
        // SAFETY: uverbs calls with the device of an open context.
        let device = MkeyDevice::of(unsafe { Device::from_raw(ibdev) })?;
        // SAFETY: The C half gives the structure.
        unsafe { *caps = device::caps(&device) };
        Ok(0)
    })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_dm_copy(
    dm: *mut bindings::ib_dm,
    to_dm: bool,
    offset: u64,
    addr: u64,
    length: u64,
) -> c_int {
    from_result(|| {
        // SAFETY: uverbs holds the memory and with it the device. A device with this method has
        // no device memory but ours: otherwise the check of `owns_dm()` fails.
        let buffer = unsafe {
            let device = MkeyDevice::of(Device::from_raw((*dm).device))?;
            device.owns_dm()?;
            &Dm::<Buffer>::from_raw(dm).data
        };
        if to_dm {
            buffer.memory.copy_from_user(offset, addr, length)?;
        } else {
            buffer.memory.copy_to_user(offset, addr, length)?;
        }
        Ok(0)
    })
}

same_types!(
    ib_mkey_uapi_create,
    ib_mkey_uapi_bind_list,
    ib_mkey_uapi_bind_interleaved,
    ib_mkey_uapi_unbind,
    ib_mkey_uapi_query,
    ib_mkey_uapi_query_caps,
    ib_mkey_uapi_dm_copy,
);
