// SPDX-License-Identifier: GPL-2.0

//! The Rust half of the uverbs methods in `api/uverbs_table.c`: it copies descriptions and device
//! memory from and to a process's memory. `api/query.rs` has the method that queries a key.

use crate::{
    api::kapi::{buffer, with_key},
    bindings::{
        self, dma_buf, ib_uverbs_mkey_bind as UapiBind,
        ib_uverbs_mkey_bind_mask_IB_UVERBS_MKEY_BIND_RKEY as RKEY,
        ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST, ib_uverbs_mkey_sge as UapiSge,
    },
    device::MkeyDevice,
    kernel_ext::{
        export_c::{export_c, Given},
        rdma::{export::HeldMr, Access, Dm, OwnedMr, Pd},
        uaccess::{read_chunks, read_one, read_slice},
    },
    key::{self, indexed, uapi, Described, Key},
    layout::MAX_DIMS,
};
use kernel::{ffi::c_int, prelude::*};

// Functions that need much stack are not inlined here, because a bind of nested keys needs most of
// the stack.

/// Describes the ranges at the user address `entries`.
fn describe_list<'k>(
    key: &'k Key<'_>,
    access: Access,
    entries: u64,
    num_entries: u32,
) -> Result<Described<'k>> {
    let mut ranges = key.describe(num_entries, access)?.ranges();
    read_chunks(entries, num_entries, |some: &[UapiSge]| ranges.add(some))?;
    ranges.finish()
}

/// Describes the blocks at the user address `blocks`.
fn describe_blocks<'k>(
    key: &'k Key<'_>,
    access: Access,
    repeat_count: &[u64],
    blocks: u64,
    num_blocks: u32,
) -> Result<Described<'k>> {
    let mut description = key.describe(num_blocks, access)?;
    read_chunks(blocks, num_blocks, |some: &[UapiBlock]| {
        let mut some = some.iter();
        some.try_for_each(|block| description.uapi_block(block, repeat_count.len()))
    })?;
    description.interleaved(repeat_count)
}

/// Refuses fields that only an interleaved layout has, and entries of another size than `T`.
fn check_fields<T>(bind: &UapiBind) -> Result {
    let interleaved = bind.kind == KIND_INTERLEAVED;
    if bind.entry_size as usize != size_of::<T>()
        || !interleaved && (bind.num_dims != 0 || bind.repeat_count != 0)
    {
        return Err(EINVAL);
    }
    Ok(())
}

/// Describes the layout that `bind` gives.
pub(super) fn describe<'k>(bind: &UapiBind, key: &'k Key<'_>) -> Result<Described<'k>> {
    let unsupported = bind.access & !bindings::ib_access_flags_IB_ACCESS_SUPPORTED;
    let chosen = bind.comp_mask & RKEY != 0;
    if bind.comp_mask & !RKEY != 0 || unsupported != 0 || bind.reserved != 0 {
        return Err(EINVAL);
    }
    let mut described = describe_layout(bind, key)?;
    if chosen {
        described.choose(bind.rkey)?;
    } else if bind.rkey != 0 {
        return Err(EINVAL);
    }
    Ok(described)
}

fn describe_layout<'k>(bind: &UapiBind, key: &'k Key<'_>) -> Result<Described<'k>> {
    let access = Access::checked(key.mr().device(), bind.access as c_int)?;
    match bind.kind {
        KIND_LIST => {
            check_fields::<UapiSge>(bind)?;
            describe_list(key, access, bind.entries, bind.num_entries)
        }
        KIND_INTERLEAVED => {
            check_fields::<UapiBlock>(bind)?;
            describe_interleaved(bind, key, access)
        }
        KIND_INDEXED if bind.num_entries == 1 => {
            check_fields::<UapiIndexed>(bind)?;
            indexed::describe_user(key, access, &read_one(bind.entries)?)
        }
        _ => Err(EINVAL),
    }
}

/// Describes the interleaved layout that `bind` gives.
fn describe_interleaved<'k>(
    bind: &UapiBind,
    key: &'k Key<'_>,
    access: Access,
) -> Result<Described<'k>> {
    let mut buffer = [0; MAX_DIMS];
    let repeat_count = uapi::counts(&mut buffer, bind.num_dims)?;
    read_slice(bind.repeat_count, repeat_count)?;
    describe_blocks(key, access, repeat_count, bind.entries, bind.num_entries)
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_create(pd: &Pd, max_entries: u32, yields: bool) -> Result<OwnedMr> {
        key::create(&MkeyDevice::data(pd.device())?.core, pd, max_entries, yields)
    }

    fn ib_mkey_uapi_bind(mkey: HeldMr<'_>, layout: &Given<UapiBind>) -> Result {
        with_key(mkey, |key| describe(layout, key)?.bind())
    }

    fn ib_mkey_uapi_dm_copy(
        dm: &Dm,
        to_dm: bool,
        offset: u64,
        addr: u64,
        length: u64,
    ) -> Result {
        buffer(dm)?.memory().copy_user(offset, addr, length, to_dm)
    }

    fn ib_mkey_uapi_dm_view(dm: &Dm) -> Result<*mut dma_buf> {
        buffer(dm)?.view()
    }
}
