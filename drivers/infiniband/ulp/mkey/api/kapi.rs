// SPDX-License-Identifier: GPL-2.0

//! The kernel API, as `include/rdma/ib_mkey.h` declares and describes it.

use crate::{
    bindings::{
        self, dma_buf, ib_dm_alloc_attr, ib_mkey_block, ib_mkey_indexed, ib_mkey_interleaved,
        ib_sge, ib_uverbs_mkey_caps, ib_uverbs_mkey_refused, sg_table,
    },
    device::MkeyDevice,
    dm::Buffer,
    errors::{self, Refused},
    kernel_ext::{
        export_c::{export_c, pointers, Given, Out},
        rdma::{
            dm::GivenUpDm, export::HeldMr, ops::DeviceOps, Access, Device, Dm, DriverDm, OwnedMr,
            Pd,
        },
    },
    key::{
        self,
        indexed::{self, Pattern},
        Described, Key, Range,
    },
    layout::IndexSlice,
};
use core::{mem::MaybeUninit, ptr};
use kernel::{ffi::c_int, prelude::*};

fn alloc_dm(
    device: &Device,
    attr: &ib_dm_alloc_attr,
    class: u64,
) -> Result<KBox<DriverDm<Buffer>>> {
    let this = MkeyDevice::data(device)?;
    if attr.flags != 0 {
        return Err(EINVAL);
    }
    let mut dm = this.new_dm(attr, class, None)?;
    dm.init(device, u32::try_from(attr.length)?);
    Ok(dm)
}

/// Checks that `dm` contains `length` bytes from `offset` on.
fn check_range(dm: &Buffer, offset: u64, length: u64) -> Result {
    let end = offset.checked_add(length).ok_or(EINVAL)?;
    if end > dm.memory().len() as u64 {
        return Err(EINVAL);
    }
    Ok(())
}

fn reg_dm_mr(pd: &Pd, dm: &Dm, offset: u64, length: u64, access: c_int) -> Result<OwnedMr> {
    if !ptr::eq(dm.device(), pd.device()) {
        return Err(EINVAL);
    }
    let buffer = buffer(dm)?;
    check_range(buffer, offset, length)?;
    let access = Access::checked(pd.device(), access)?;
    let this = MkeyDevice::data(pd.device())?;
    let (mr, ()) = OwnedMr::new(pd, 1, |new| {
        // Counted first, because a peer that guesses the rkey may use the MR as soon as it is
        // registered.
        dm.attach(&new);
        this.reg_dm_mr(new, pd, buffer, offset, length, access)
    })?;
    Ok(mr)
}

/// Returns the buffer of device memory.
/// Fails with `EOPNOTSUPP` if the driver of the device has the memory.
pub(super) fn buffer(dm: &Dm) -> Result<&Buffer> {
    dm.data::<MkeyDevice>()
}

/// Runs `call` with the key whose MR is `mr`.
pub(super) fn with_key<T>(mr: HeldMr<'_>, call: impl FnOnce(&Key<'_>) -> Result<T>) -> Result<T> {
    call(&Key::of(mr.mr(), mr.pd())?)
}

/// Runs `bind` with the key whose MR is `mr`. Records in the key why it was refused.
pub(super) fn recorded(mr: HeldMr<'_>, bind: impl FnOnce(&Key<'_>) -> errors::Result) -> Result {
    with_key(mr, |key| {
        Ok(bind(key).inspect_err(|why| key.region().refuse(*why))?)
    })
}

impl Range for ib_sge {
    fn parts(&self) -> errors::Result<(u32, u64, u64)> {
        Ok((self.lkey, self.addr, self.length.into()))
    }
}

/// Describes ranges.
pub(super) fn describe_list<'k>(
    key: &'k Key<'_>,
    sg_list: &[ib_sge],
    access: c_int,
) -> errors::Result<Described<'k>> {
    let access = key.access(access as u32)?;
    let num_sge = u32::try_from(sg_list.len())?;
    let mut description = key.describe(num_sge, access)?;
    description.ranges(sg_list)?;
    description.list()
}

pointers!(ib_mkey_interleaved {
    repeat_count: [u64; num_dims],
    blocks: [Given<ib_mkey_block>; num_blocks],
});

/// Describes blocks that repeat.
pub(super) fn describe_interleaved<'k>(
    key: &'k Key<'_>,
    layout: &Given<ib_mkey_interleaved>,
    access: c_int,
) -> errors::Result<Described<'k>> {
    let access = key.access(access as u32)?;
    let mut description = key.describe(layout.num_blocks, access)?;
    if layout.num_dims == 0 || layout.num_dims > bindings::IB_MKEY_MAX_DIMS {
        return Err(Refused::DIMS.with(layout.num_dims));
    }
    for block in layout.blocks().ok_or(EINVAL)? {
        description.block(block.lkey, block.addr, block.bytes_count, block.stride)?;
    }
    description.interleaved(layout.repeat_count().ok_or(EINVAL)?)
}

pointers!(ib_mkey_indexed {
    indices32: [u32; num_indices],
    indices64: [u64; num_indices],
});

/// Describes blocks at indices.
pub(super) fn describe_indexed<'k>(
    key: &'k Key<'_>,
    layout: &Given<ib_mkey_indexed>,
    access: c_int,
) -> errors::Result<Described<'k>> {
    let access = key.access(access as u32)?;
    let (pattern, indices) = indexed_parts(layout)?;
    indexed::describe(key, access, pattern, indices)
}

/// Returns the parts of a layout of blocks at indices of one size.
fn indexed_parts(layout: &Given<ib_mkey_indexed>) -> errors::Result<(Pattern, IndexSlice<'_>)> {
    if layout.indices32.is_null() == layout.indices64.is_null() {
        return Err(Refused::INDICES);
    }
    let indices = match (layout.indices32(), layout.indices64()) {
        (Some(indices), _) if !layout.indices32.is_null() => IndexSlice::U32(indices),
        (_, Some(indices)) => IndexSlice::U64(indices),
        _ => return Err(Refused::INDICES),
    };
    let pattern = Pattern {
        lkey: layout.lkey,
        addr: layout.addr,
        unit: layout.unit,
        bytes_count: layout.bytes_count,
    };
    Ok((pattern, indices))
}

/// Stages ranges. In this function and the two below, the addresses of the key will begin at `base`.
pub(super) fn stage_list(key: &Key<'_>, base: u64, sg_list: &[ib_sge]) -> errors::Result {
    let ranges = sg_list.iter();
    key.stage_list(
        base,
        ranges.map(|sge| (sge.addr, sge.length.into(), sge.lkey)),
    )
}

/// Stages blocks that repeat.
pub(super) fn stage_interleaved(
    key: &Key<'_>,
    base: u64,
    layout: &Given<ib_mkey_interleaved>,
) -> errors::Result {
    let blocks = layout.blocks().ok_or(EINVAL)?.iter();
    let blocks = blocks.map(|block| (block.addr, block.bytes_count, block.lkey, block.stride));
    key.stage_interleaved(base, layout.repeat_count().ok_or(EINVAL)?, blocks)
}

/// Stages blocks at indices.
pub(super) fn stage_indexed(
    key: &Key<'_>,
    base: u64,
    layout: &Given<ib_mkey_indexed>,
) -> errors::Result {
    let (pattern, indices) = indexed_parts(layout)?;
    key.stage_indexed(base, pattern, indices)
}

export_c! {
    in crate::bindings;

    fn ib_alloc_dm(
        device: &Device,
        attr: &Given<ib_dm_alloc_attr>,
    ) -> Result<KBox<DriverDm<Buffer>>> {
        alloc_dm(device, attr, 0)
    }

    fn ib_alloc_dm_class(
        device: &Device,
        attr: &Given<ib_dm_alloc_attr>,
        dm_class: u64,
    ) -> Result<KBox<DriverDm<Buffer>>> {
        alloc_dm(device, attr, dm_class)
    }

    fn ib_query_dm_class(dm: &Dm, dm_class: Out<'_, u64>) -> Result {
        dm_class.set(buffer(dm)?.class());
        Ok(())
    }

    fn ib_free_dm(dm: GivenUpDm<Buffer>) -> Result {
        dm.free()
    }

    fn ib_reg_dm_mr(
        pd: &Pd,
        dm: &Dm,
        dm_offset: u64,
        length: u64,
        access: c_int,
    ) -> Result<OwnedMr> {
        reg_dm_mr(pd, dm, dm_offset, length, access)
    }

    fn ib_memcpy_to_dm(
        dm: &Dm,
        dm_offset: u64,
        host_addr[length]: &[MaybeUninit<u8>],
        length: usize,
    ) -> Result {
        buffer(dm)?.memory().write(dm_offset, host_addr)
    }

    fn ib_memcpy_from_dm(
        host_addr[length]: &mut [MaybeUninit<u8>],
        dm: &Dm,
        dm_offset: u64,
        length: usize,
    ) -> Result {
        buffer(dm)?.memory().read(dm_offset, host_addr)
    }

    fn ib_dm_to_sgt(
        dm: &Dm,
        dm_offset: u64,
        length: u64,
        sgt: Out<'_, sg_table>,
    ) -> Result {
        let dm = buffer(dm)?;
        check_range(dm, dm_offset, length)?;
        let (offset, length) = (usize::try_from(dm_offset)?, usize::try_from(length)?);
        sgt.set(dm.memory().sgt(offset, length, u32::MAX)?);
        Ok(())
    }

    fn ib_export_dm(dm: &Dm) -> Result<*mut dma_buf> {
        buffer(dm)?.export()
    }

    fn ib_alloc_mkey(pd: &Pd, max_entries: u32) -> Result<OwnedMr> {
        let device = MkeyDevice::data(pd.device())?;
        Ok(key::create(&device.core, pd, max_entries, false)?)
    }

    fn ib_bind_mkey_list(
        mkey: HeldMr<'_>,
        sg_list[num_sge]: &[ib_sge],
        num_sge: u32,
        access: c_int,
    ) -> Result {
        recorded(mkey, |key| describe_list(key, sg_list, access)?.bind())
    }

    fn ib_bind_mkey_interleaved(
        mkey: HeldMr<'_>,
        layout: &Given<ib_mkey_interleaved>,
        access: c_int,
    ) -> Result {
        recorded(mkey, |key| describe_interleaved(key, layout, access)?.bind())
    }

    fn ib_bind_mkey_indexed(
        mkey: HeldMr<'_>,
        layout: &Given<ib_mkey_indexed>,
        access: c_int,
    ) -> Result {
        recorded(mkey, |key| describe_indexed(key, layout, access)?.bind())
    }

    fn ib_map_mkey_list(mkey: HeldMr<'_>, sg_list[num_sge]: &[ib_sge], num_sge: u32) -> Result {
        recorded(mkey, |key| stage_list(key, 0, sg_list))
    }

    fn ib_map_mkey_interleaved(
        mkey: HeldMr<'_>,
        layout: &Given<ib_mkey_interleaved>,
    ) -> Result {
        recorded(mkey, |key| stage_interleaved(key, 0, layout))
    }

    fn ib_map_mkey_indexed(mkey: HeldMr<'_>, layout: &Given<ib_mkey_indexed>) -> Result {
        recorded(mkey, |key| stage_indexed(key, 0, layout))
    }

    fn ib_unbind_mkey(mkey: HeldMr<'_>) -> Result {
        with_key(mkey, |key| key.unbind())
    }

    fn ib_query_mkey_refused(
        mkey: HeldMr<'_>,
        refused: Out<'_, ib_uverbs_mkey_refused>,
    ) -> Result {
        with_key(mkey, |key| {
            refused.set(key.region().refused().to_uapi());
            Ok(())
        })
    }

    fn ib_query_mkey_caps(device: &Device, caps: Out<'_, ib_uverbs_mkey_caps>) -> Result {
        caps.set(MkeyDevice::data(device)?.caps());
        Ok(())
    }
}
