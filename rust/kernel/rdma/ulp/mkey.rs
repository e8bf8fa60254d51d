// SPDX-License-Identifier: GPL-2.0

//! Keys: unbound, bound, and with a staged layout (`mkey/staged.rs`).
//!
//! C header: [`include/rdma/ib_mkey.h`](srctree/include/rdma/ib_mkey.h)

pub(super) mod dm;
pub(super) mod staged;

use super::{pd::PdMr, Access, DevicePd, DmRegion, HostBuffer};
use crate::bindings;
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};

/// The largest number of dimensions of an interleaved layout.
const MAX_DIMS: usize = bindings::IB_MKEY_MAX_DIMS as usize;

/// The memory that a key refers to.
#[derive(Clone)]
pub(crate) enum LeafMemory {
    /// An MR over device memory.
    Dm(Arc<DmRegion>),
    /// Memory of the host, addressed by the local DMA lkey.
    Host(Arc<HostBuffer>),
}

impl From<&Arc<DmRegion>> for LeafMemory {
    fn from(region: &Arc<DmRegion>) -> Self {
        Self::Dm(region.clone())
    }
}

impl From<&Arc<HostBuffer>> for LeafMemory {
    fn from(buffer: &Arc<HostBuffer>) -> Self {
        Self::Host(buffer.clone())
    }
}

impl LeafMemory {
    /// Returns the lkey and the address of `offset`. A key of `pd` will refer to the bytes from
    /// `lowest` to before `end`.
    ///
    /// An lkey is a number, which can name another MR in another domain. So the domain of an MR is
    /// checked here; ib_mkey checks the range. The local DMA lkey has no range, and it would accept
    /// an address that is mapped for another device. So the device and the range of host memory are
    /// checked here.
    fn place(&self, pd: &DevicePd, offset: u64, lowest: i128, end: i128) -> Result<(u32, u64)> {
        match self {
            Self::Dm(region) => {
                if !region.pd().is(pd) {
                    return Err(EINVAL);
                }
                Ok((region.lkey(), offset))
            }
            Self::Host(buffer) => {
                if !buffer.device().is(pd.device()) {
                    return Err(EINVAL);
                }
                if lowest < 0 || end > buffer.len() as i128 {
                    return Err(ERANGE);
                }
                let addr = buffer.addr().checked_add(offset).ok_or(EOVERFLOW)?;
                Ok((pd.local_dma_lkey(), addr))
            }
        }
    }
}

/// Consecutive bytes of a leaf.
pub(crate) struct LeafRange {
    leaf: LeafMemory,
    offset: u64,
    len: u32,
}

impl LeafRange {
    /// Describes `len` bytes from `offset` on.
    pub(crate) fn new(leaf: impl Into<LeafMemory>, offset: u64, len: u32) -> Self {
        Self {
            leaf: leaf.into(),
            offset,
            len,
        }
    }

    fn sge(&self, pd: &DevicePd) -> Result<bindings::ib_sge> {
        let lowest = i128::from(self.offset);
        let end = lowest + i128::from(self.len);
        let (lkey, addr) = self.leaf.place(pd, self.offset, lowest, end)?;
        Ok(bindings::ib_sge {
            addr,
            length: self.len,
            lkey,
        })
    }
}

/// A block of a leaf that repeats.
pub(crate) struct LeafBlock {
    leaf: LeafMemory,
    offset: u64,
    len: u64,
    stride: [i64; MAX_DIMS],
}

impl LeafBlock {
    /// Describes `len` bytes at `offset`, repeated every `stride[d]` bytes in dimension `d`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than [`MAX_DIMS`] strides.
    pub(crate) fn new(
        leaf: impl Into<LeafMemory>,
        offset: u64,
        len: u64,
        stride: &[i64],
    ) -> Result<Self> {
        let mut all = [0; MAX_DIMS];
        let used = all.get_mut(..stride.len()).ok_or(EINVAL)?;
        used.copy_from_slice(stride);
        Ok(Self {
            leaf: leaf.into(),
            offset,
            len,
            stride: all,
        })
    }

    /// Returns the offsets of the first byte of all repetitions, and of the byte after the last.
    fn extent(&self, repeat: &[u64]) -> Option<(i128, i128)> {
        let mut lowest = i128::from(self.offset);
        let mut highest = lowest;
        for (count, stride) in repeat.iter().zip(&self.stride) {
            let steps = i128::from(count.saturating_sub(1));
            let way = steps.checked_mul(i128::from(*stride))?;
            if way < 0 {
                lowest = lowest.checked_add(way)?;
            } else {
                highest = highest.checked_add(way)?;
            }
        }
        Some((lowest, highest.checked_add(i128::from(self.len))?))
    }

    fn describe(&self, pd: &DevicePd, repeat: &[u64]) -> Result<bindings::ib_mkey_block> {
        let (lowest, end) = self.extent(repeat).ok_or(EOVERFLOW)?;
        let (lkey, addr) = self.leaf.place(pd, self.offset, lowest, end)?;
        Ok(bindings::ib_mkey_block {
            addr,
            bytes_count: self.len,
            lkey,
            stride: self.stride,
        })
    }
}

/// Blocks of equal length in a leaf.
pub(crate) struct LeafTable {
    leaf: LeafMemory,
    offset: u64,
    unit: u64,
    len: u64,
}

impl LeafTable {
    /// Describes blocks of `len` bytes: block 0 is at `offset`, and each next block `unit` bytes
    /// further.
    pub(crate) fn new(leaf: impl Into<LeafMemory>, offset: u64, unit: u64, len: u64) -> Self {
        Self {
            leaf: leaf.into(),
            offset,
            unit,
            len,
        }
    }

    /// Returns the offsets of the first byte of the blocks at `indices`, and of the byte after the
    /// last. Without indices, returns those of block 0.
    fn extent(&self, indices: &[u32]) -> Option<(i128, i128)> {
        let at = |index: u32| {
            let far = i128::from(index).checked_mul(self.unit.into())?;
            far.checked_add(self.offset.into())
        };
        let lowest = at(indices.iter().copied().min().unwrap_or(0))?;
        let highest = at(indices.iter().copied().max().unwrap_or(0))?;
        Some((lowest, highest.checked_add(self.len.into())?))
    }
}

/// The state of a key to which nothing is bound.
pub(crate) struct Unbound;

/// The state of a key to which leaves are bound. It holds the leaves.
pub(crate) struct Bound {
    _leaves: KVec<LeafMemory>,
}

impl Bound {
    fn new(leaves: KVec<LeafMemory>) -> Self {
        Self { _leaves: leaves }
    }
}

/// A key. Dropping it deregisters the key.
pub(crate) struct Mkey<State> {
    // Fields drop in declaration order: the key before its leaves.
    region: PdMr,
    state: State,
}

/// A bind that was refused, and the key, which is unchanged.
pub(crate) struct BindRefused {
    pub(crate) key: Mkey<Unbound>,
    pub(crate) error: Error,
}

impl From<BindRefused> for Error {
    fn from(refused: BindRefused) -> Self {
        refused.error
    }
}

/// Collects the elements of a description, and their leaves.
fn collect<'a, T: 'a, U>(
    parts: &'a [T],
    leaf: impl Fn(&'a T) -> &'a LeafMemory,
    element: impl Fn(&'a T) -> Result<U>,
) -> Result<(KVec<U>, KVec<LeafMemory>)> {
    let mut elements = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
    let mut leaves = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
    for part in parts {
        elements.push(element(part)?, GFP_KERNEL)?;
        leaves.push(leaf(part).clone(), GFP_KERNEL)?;
    }
    Ok((elements, leaves))
}

/// The purpose of a description.
#[derive(Clone, Copy)]
enum Purpose {
    /// Bind the key with these access flags.
    Bind(Access),
    /// Stage the layout for a work request.
    Stage,
}

/// Describes `ranges`. Returns their leaves.
fn list(region: &PdMr, purpose: Purpose, ranges: &[LeafRange]) -> Result<KVec<LeafMemory>> {
    let (list, leaves) = collect(ranges, |range| &range.leaf, |range| range.sge(region.pd()))?;
    let (raw, first, count) = (region.as_raw(), list.as_ptr(), u32::try_from(list.len())?);
    // SAFETY: The key is valid, and the list has `count` entries. The caller holds `leaves` until
    // the key is unbound.
    to_result(unsafe {
        match purpose {
            Purpose::Bind(access) => {
                bindings::ib_bind_mkey_list(raw, first, count, access.into_raw() as c_int)
            }
            Purpose::Stage => bindings::ib_map_mkey_list(raw, first, count),
        }
    })?;
    Ok(leaves)
}

/// Describes blocks that repeat. Returns their leaves.
fn interleaved(
    region: &PdMr,
    purpose: Purpose,
    repeat: &[u64],
    blocks: &[LeafBlock],
) -> Result<KVec<LeafMemory>> {
    if repeat.len() > MAX_DIMS {
        return Err(EINVAL);
    }
    let describe = |block: &LeafBlock| block.describe(region.pd(), repeat);
    let (list, leaves) = collect(blocks, |block| &block.leaf, describe)?;
    let layout = bindings::ib_mkey_interleaved {
        num_dims: u32::try_from(repeat.len())?,
        num_blocks: u32::try_from(list.len())?,
        repeat_count: repeat.as_ptr(),
        blocks: list.as_ptr(),
    };
    let raw = region.as_raw();
    // SAFETY: The key and the description are valid. The caller holds `leaves` until the key is
    // unbound.
    to_result(unsafe {
        match purpose {
            Purpose::Bind(access) => {
                bindings::ib_bind_mkey_interleaved(raw, &layout, access.into_raw() as c_int)
            }
            Purpose::Stage => bindings::ib_map_mkey_interleaved(raw, &layout),
        }
    })?;
    Ok(leaves)
}

/// Describes the blocks of `table` at `indices`. Returns their leaf.
fn indexed(
    region: &PdMr,
    purpose: Purpose,
    table: &LeafTable,
    indices: &[u32],
) -> Result<KVec<LeafMemory>> {
    let (lowest, end) = table.extent(indices).ok_or(EOVERFLOW)?;
    let (lkey, addr) = table.leaf.place(region.pd(), table.offset, lowest, end)?;
    let mut leaves = KVec::with_capacity(1, GFP_KERNEL)?;
    leaves.push(table.leaf.clone(), GFP_KERNEL)?;
    let layout = bindings::ib_mkey_indexed {
        addr,
        unit: table.unit,
        bytes_count: table.len,
        indices32: indices.as_ptr(),
        indices64: core::ptr::null(),
        num_indices: u32::try_from(indices.len())?,
        lkey,
    };
    let raw = region.as_raw();
    // SAFETY: The key is valid, and the array has as many indices. The caller holds `leaves` until
    // the key is unbound.
    to_result(unsafe {
        match purpose {
            Purpose::Bind(access) => {
                bindings::ib_bind_mkey_indexed(raw, &layout, access.into_raw() as c_int)
            }
            Purpose::Stage => bindings::ib_map_mkey_indexed(raw, &layout),
        }
    })?;
    Ok(leaves)
}

impl Mkey<Unbound> {
    /// Makes a key with room for `max_entries` ranges, blocks or indices.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero or too many entries, `ENOMEM`, `EOPNOTSUPP` if ib_mkey does not extend the
    /// device.
    pub(crate) fn new(pd: &Arc<DevicePd>, max_entries: u32) -> Result<Self> {
        // SAFETY: The domain is valid.
        let raw = unsafe { bindings::ib_alloc_mkey(pd.as_raw(), max_entries) };
        // SAFETY: `ib_alloc_mkey()` returned a new MR in the domain, or an error.
        let region = unsafe { PdMr::from_raw(raw, pd) }?;
        Ok(Self {
            region,
            state: Unbound,
        })
    }

    /// Returns the key in the state that `describe` and `state` make.
    fn into_state<State>(
        self,
        describe: impl FnOnce(&PdMr) -> Result<KVec<LeafMemory>>,
        state: impl FnOnce(KVec<LeafMemory>) -> State,
    ) -> Result<Mkey<State>, BindRefused> {
        match describe(&self.region) {
            Ok(leaves) => Ok(Mkey {
                region: self.region,
                state: state(leaves),
            }),
            Err(error) => Err(BindRefused { key: self, error }),
        }
    }

    /// Binds `ranges`: their bytes follow one another.
    ///
    /// # Errors
    ///
    /// The errors of `ib_bind_mkey_list()`; `EINVAL` for memory of another domain or device.
    pub(crate) fn bind_list(
        self,
        access: Access,
        ranges: &[LeafRange],
    ) -> Result<Bind, BindRefused> {
        self.into_state(
            |region| list(region, Purpose::Bind(access), ranges),
            Bound::new,
        )
    }

    /// Binds blocks that repeat `repeat[d]` times in dimension `d`. Dimension 0 is the outermost.
    ///
    /// # Errors
    ///
    /// The errors of `ib_bind_mkey_interleaved()`; `EINVAL` for memory of another domain or
    /// device.
    pub(crate) fn bind_interleaved(
        self,
        access: Access,
        repeat: &[u64],
        blocks: &[LeafBlock],
    ) -> Result<Bind, BindRefused> {
        let purpose = Purpose::Bind(access);
        self.into_state(
            |region| interleaved(region, purpose, repeat, blocks),
            Bound::new,
        )
    }

    /// Binds the blocks of `table` at `indices`, in their order.
    ///
    /// # Errors
    ///
    /// The errors of `ib_bind_mkey_indexed()`; `EINVAL` for memory of another domain or
    /// device.
    pub(crate) fn bind_indexed(
        self,
        access: Access,
        table: &LeafTable,
        indices: &[u32],
    ) -> Result<Bind, BindRefused> {
        let purpose = Purpose::Bind(access);
        self.into_state(
            |region| indexed(region, purpose, table, indices),
            Bound::new,
        )
    }
}

/// The key that a bind makes.
type Bind = Mkey<Bound>;

impl Mkey<Bound> {
    /// Unbinds the key. When this returns, no access to the leaves through the key is in progress.
    ///
    /// # Errors
    ///
    /// The errors of `ib_unbind_mkey()`. The key is dropped then.
    pub(crate) fn unbind(self) -> Result<Mkey<Unbound>> {
        // SAFETY: The key is valid.
        to_result(unsafe { bindings::ib_unbind_mkey(self.region.as_raw()) })?;
        Ok(Mkey {
            region: self.region,
            state: Unbound,
        })
    }

    /// Returns the lkey.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }
}

impl<State> Mkey<State> {
    /// Returns the protection domain.
    pub(super) fn pd(&self) -> &DevicePd {
        self.region.pd()
    }

    /// Returns the remote key. An unbind and the methods that stage a layout change its tag. A bind
    /// by a call keeps it.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}
