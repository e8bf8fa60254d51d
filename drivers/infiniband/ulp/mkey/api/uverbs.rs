// SPDX-License-Identifier: GPL-2.0

//! What the uverbs methods in `api/uverbs_table.c` have beyond the kernel API: descriptions and
//! device memory that a program has in its own memory.
//!
//! Pointers become references here and nowhere else; what follows is safe.

#![allow(clippy::missing_safety_doc, reason = "called by the tables in C only")]

use crate::{
    api::kapi::with_key,
    bindings::{
        self, ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_info, ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_UNBOUND as KIND_UNBOUND, ib_uverbs_mkey_sge as UapiSge,
    },
    device::MkeyDevice,
    dm::Buffer,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{Access, Device, Dm},
        same_types,
        uaccess::{read_array, write_all, write_array},
    },
    key::{indexed, Described, Key},
    layout::{Layout, MAX_DIMS},
    region::binding::Binding,
};
use kernel::{error::from_result, ffi::c_int, prelude::*};

/// Describes the ranges that are at the user address `entries`.
pub(crate) fn describe_list<'k>(
    key: &'k Key<'_>,
    access: Access,
    entries: u64,
    num_entries: u32,
) -> Result<Described<'k>> {
    let mut description = key.describe(num_entries, access)?;
    read_array(entries, num_entries, |sge: UapiSge| {
        if sge.reserved != 0 {
            return Err(EINVAL);
        }
        description.range(sge.lkey, sge.addr, sge.length)
    })?;
    description.list()
}

/// Describes the blocks that are at the user address `blocks`.
pub(crate) fn describe_interleaved<'k>(
    key: &'k Key<'_>,
    access: Access,
    repeat_count: &[u64],
    blocks: u64,
    num_blocks: u32,
) -> Result<Described<'k>> {
    let mut description = key.describe(num_blocks, access)?;
    read_array(blocks, num_blocks, |block: UapiBlock| {
        let unused = block.stride.iter().skip(repeat_count.len());
        if block.reserved != 0 || unused.into_iter().any(|stride| *stride != 0) {
            return Err(EINVAL);
        }
        description.block(block.lkey, block.addr, block.bytes_count, block.stride)
    })?;
    description.interleaved(repeat_count)
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_bind_list(
    mkey: *mut bindings::ib_mr,
    access: u32,
    entries: u64,
    num_entries: u32,
) -> c_int {
    let bind = |key: &Key<'_>| {
        describe_list(key, Access::from_raw(access), entries, num_entries)?.bind()?;
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
    let access = Access::from_raw(access);
    let bind = |key: &Key<'_>| {
        describe_interleaved(key, access, repeat_count, blocks, num_blocks)?.bind()?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, bind) })
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_bind_indexed(
    mkey: *mut bindings::ib_mr,
    access: u32,
    layout: *const UapiIndexed,
) -> c_int {
    // SAFETY: The C half gives a structure.
    let layout = unsafe { &*layout };
    let bind = |key: &Key<'_>| {
        indexed::describe_user(key, Access::from_raw(access), layout)?.bind()?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, bind) })
}

/// Describes entry or block `index` as it was bound.
fn describe(bound: &Binding, index: usize) -> Option<UapiBlock> {
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
        Layout::Indexed(_) => return None,
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
    wanted: *const UapiIndexed,
    indexed: *mut UapiIndexed,
    blocks: u64,
    num_blocks: u32,
) -> c_int {
    // SAFETY: The C half gives the structures and an array of the most dimensions.
    let (info, repeat_count, wanted, indexed) = unsafe {
        (
            &mut *info,
            core::slice::from_raw_parts_mut(repeat_count, MAX_DIMS),
            &*wanted,
            &mut *indexed,
        )
    };
    let query = |key: &Key<'_>| {
        info.lkey = key.mr().lkey();
        info.rkey = key.mr().rkey();
        info.max_entries = key.max_entries();
        let mut described = KVVec::new();
        let mut indices = KVVec::new();
        let mut look =
            |bound: Option<&Binding>, described: &mut KVVec<_>, indices: &mut KVVec<_>| {
                let Some(bound) = bound else {
                    info.kind = KIND_UNBOUND;
                    return Ok((0, 0));
                };
                let count = bound.layout.count();
                let (blocks, places) = match &bound.layout {
                    Layout::Indexed(_) => (0, count.min(wanted.num_indices as usize)),
                    _ => (count.min(num_blocks as usize), 0),
                };
                if blocks > described.capacity() || places > indices.capacity() {
                    return Ok((blocks, places));
                }
                info.length = bound.layout.length();
                info.access = bound.access.into_raw();
                info.num_entries = u32::try_from(count)?;
                info.kind = KIND_LIST;
                if let Layout::Interleaved(interleaved) = &bound.layout {
                    info.kind = KIND_INTERLEAVED;
                    info.num_dims = u32::try_from(interleaved.repeat_counts().len())?;
                    for (to, count) in repeat_count.iter_mut().zip(interleaved.repeat_counts()) {
                        *to = count;
                    }
                }
                if let Layout::Indexed(layout) = &bound.layout {
                    info.kind = KIND_INDEXED;
                    *indexed = indexed::describe_bound(layout, info.num_entries, &bound.leaves);
                    let all = layout.indices();
                    for index in (0..places).map_while(|at| all.get(at)) {
                        // There is room.
                        let _ = indices.push_within_capacity(index);
                    }
                }
                for block in (0..blocks).map_while(|index| describe(bound, index)) {
                    // There is room.
                    let _ = described.push_within_capacity(block);
                }
                Ok::<_, Error>((0, 0))
            };
        // Not while looking: an allocation would keep binds waiting. Something longer may be bound
        // before the next look.
        loop {
            let missing = key.inspect(|bound| look(bound, &mut described, &mut indices))?;
            if missing == (0, 0) {
                break;
            }
            described.reserve(missing.0, GFP_MAYFAIL)?;
            indices.reserve(missing.1, GFP_MAYFAIL)?;
        }
        // Not while looking: a fault in user memory would keep binds waiting.
        write_array(blocks, num_blocks, described.iter())?;
        write_all(wanted.indices, &indices)?;
        Ok(0)
    };
    // SAFETY: uverbs holds the handle, so that the region is not deregistered.
    from_result(|| unsafe { with_key(mkey, query) })
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
            buffer.memory().copy_from_user(offset, addr, length)?;
        } else {
            buffer.memory().copy_to_user(offset, addr, length)?;
        }
        Ok(0)
    })
}

same_types!(
    ib_mkey_uapi_bind_list,
    ib_mkey_uapi_bind_interleaved,
    ib_mkey_uapi_bind_indexed,
    ib_mkey_uapi_query,
    ib_mkey_uapi_dm_copy,
);
