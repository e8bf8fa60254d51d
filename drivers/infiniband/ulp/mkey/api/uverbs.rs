// SPDX-License-Identifier: GPL-2.0

//! The Rust half of the uverbs methods in `api/uverbs_table.c`: it copies descriptions and device
//! memory from and to a process's memory. `api/query.rs` has the method that queries a key.

use crate::{
    api::kapi::buffer,
    bindings::{
        dma_buf, ib_uverbs_mkey_bind as UapiBind,
        ib_uverbs_mkey_bind_mask_IB_UVERBS_MKEY_BIND_BASE as BASE,
        ib_uverbs_mkey_bind_mask_IB_UVERBS_MKEY_BIND_RKEY as RKEY,
        ib_uverbs_mkey_block as UapiBlock,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_refused as UapiRefused, ib_uverbs_mkey_sge as UapiSge,
    },
    device::MkeyDevice,
    errors::{Refused, Result},
    kernel_ext::{
        export_c::{export_c, Given, Out},
        rdma::{export::HeldMr, Access, Dm, OwnedMr, Pd},
        uaccess::{read_chunks, read_one, read_slice},
    },
    key::{self, check_kind, counts, indexed, Described, Key},
    layout::MAX_DIMS,
};
use kernel::prelude::*;

/// Describes the ranges at the user address `entries`.
fn describe_list<'k>(
    key: &'k Key<'_>,
    access: Access,
    entries: u64,
    num_entries: u32,
) -> Result<Described<'k>> {
    let mut description = key.describe(num_entries, access)?;
    let read = read_chunks(entries, num_entries, |some: &[UapiSge]| {
        description.ranges(some)
    });
    read.map_err(|why| why.of_array(entries))?;
    description.list()
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
    let read = read_chunks(blocks, num_blocks, |some: &[UapiBlock]| {
        let mut some = some.iter();
        some.try_for_each(|block| description.uapi_block(block, repeat_count.len()))
    });
    read.map_err(|why: Refused| why.of_array(blocks))?;
    description.interleaved(repeat_count)
}

/// Describes the layout that `bind` gives.
pub(super) fn describe<'k>(bind: &UapiBind, key: &'k Key<'_>) -> Result<Described<'k>> {
    if bind.comp_mask & !(RKEY | BASE) != 0 {
        return Err(Refused::COMP_MASK.with(bind.comp_mask));
    }
    if bind.reserved != 0 {
        return Err(Refused::RESERVED.with(bind.reserved));
    }
    if bind.comp_mask & BASE == 0 && bind.base_addr != 0 {
        return Err(Refused::RESERVED.with(bind.base_addr));
    }
    let mut described = describe_layout(bind, key)?;
    described.begin_at(bind.base_addr)?;
    if bind.comp_mask & RKEY != 0 {
        described.choose(bind.rkey)?;
    } else if bind.rkey != 0 {
        return Err(Refused::RKEY.with(bind.rkey));
    }
    Ok(described)
}

fn describe_layout<'k>(bind: &UapiBind, key: &'k Key<'_>) -> Result<Described<'k>> {
    let access = key.access(bind.access)?;
    let count = bind.num_entries;
    check_kind(bind.kind, bind.entry_size, bind.num_dims)?;
    if bind.kind == KIND_INTERLEAVED {
        return describe_interleaved(bind, key, access);
    }
    if bind.repeat_count != 0 {
        return Err(Refused::NOT_INTERLEAVED);
    }
    if bind.kind == KIND_LIST {
        return describe_list(key, access, bind.entries, count);
    }
    if count != 1 {
        return Err(Refused::ONE_INDEXED.with(count));
    }
    let layout = read_one(bind.entries);
    let unread = |error| Refused::from(error).of_array(bind.entries);
    indexed::describe_user(key, access, &layout.map_err(unread)?)
}

/// Describes the interleaved layout that `bind` gives.
fn describe_interleaved<'k>(
    bind: &UapiBind,
    key: &'k Key<'_>,
    access: Access,
) -> Result<Described<'k>> {
    let mut buffer = [0; MAX_DIMS];
    let repeat_count = counts(&mut buffer, bind.num_dims)?;
    let read = read_slice(bind.repeat_count, repeat_count);
    read.map_err(|error| Refused::from(error).of_array(bind.repeat_count))?;
    describe_blocks(key, access, repeat_count, bind.entries, bind.num_entries)
}

/// Tells the caller why a call was refused.
pub(super) fn told<T>(result: Result<T>, to: Out<'_, UapiRefused>) -> Result<T, Error> {
    Ok(result.inspect_err(|why| to.set(why.to_uapi()))?)
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_create(
        pd: &Pd,
        max_entries: u32,
        revocable: bool,
        refused: Out<'_, UapiRefused>,
    ) -> Result<OwnedMr, Error> {
        let device = MkeyDevice::data(pd.device()).map_err(|_| Refused::DEVICE);
        let created = device.and_then(|device| key::create(&device.core, pd, max_entries, revocable));
        told(created, refused)
    }

    fn ib_mkey_uapi_bind(
        mkey: HeldMr<'_>,
        layout: &Given<UapiBind>,
        refused: Out<'_, UapiRefused>,
    ) -> Result<(), Error> {
        let key = Key::of(mkey.mr(), mkey.pd());
        let bound = key.and_then(|key| describe(layout, &key)?.bind());
        told(bound, refused)
    }

    fn ib_mkey_uapi_dm_copy(
        dm: &Dm,
        to_dm: bool,
        offset: u64,
        addr: u64,
        length: u64,
    ) -> Result<(), Error> {
        buffer(dm)?.memory().copy_user(offset, addr, length, to_dm)
    }

    fn ib_mkey_uapi_dm_view(dm: &Dm) -> Result<*mut dma_buf, Error> {
        buffer(dm)?.view()
    }
}
