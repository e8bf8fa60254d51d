// SPDX-License-Identifier: GPL-2.0

//! Keys, unbound and bound.

use super::{pd::Region, Access, DmRegion, HostBuffer, Pd};
use crate::bindings;
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};

/// Dimensions of an interleaved layout, at most.
const MAX_DIMS: usize = bindings::IB_MKEY_MAX_DIMS as usize;

/// What the bytes of a key are of.
#[derive(Clone)]
pub(crate) enum Leaf {
    /// A region over device memory.
    Dm(Arc<DmRegion>),
    /// Memory of the host, by the local DMA key.
    Host(Arc<HostBuffer>),
}

impl From<&Arc<DmRegion>> for Leaf {
    fn from(region: &Arc<DmRegion>) -> Self {
        Self::Dm(region.clone())
    }
}

impl From<&Arc<HostBuffer>> for Leaf {
    fn from(buffer: &Arc<HostBuffer>) -> Self {
        Self::Host(buffer.clone())
    }
}

impl Leaf {
    /// Returns the local key and the address of `offset`, from which on a key of `pd` refers to
    /// all from `lowest` to before `end`.
    ///
    /// Regions are checked by ib_mkey; the local DMA key has no bounds and knows no device.
    fn place(&self, pd: &Pd, offset: u64, lowest: i128, end: i128) -> Result<(u32, u64)> {
        match self {
            Self::Dm(region) => Ok((region.lkey(), offset)),
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
pub(crate) struct Range {
    leaf: Leaf,
    offset: u64,
    len: u32,
}

impl Range {
    /// `len` bytes from `offset` on.
    pub(crate) fn new(leaf: impl Into<Leaf>, offset: u64, len: u32) -> Self {
        Self {
            leaf: leaf.into(),
            offset,
            len,
        }
    }

    fn sge(&self, pd: &Pd) -> Result<bindings::ib_sge> {
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
pub(crate) struct Block {
    leaf: Leaf,
    offset: u64,
    len: u64,
    stride: [i64; MAX_DIMS],
}

impl Block {
    /// `len` bytes from `offset` on, and again `stride[d]` further for each step in dimension `d`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too many dimensions.
    pub(crate) fn new(
        leaf: impl Into<Leaf>,
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

    /// Returns the first byte of all repetitions, and the one after the last.
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

    fn describe(&self, pd: &Pd, repeat: &[u64]) -> Result<bindings::ib_mkey_block> {
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

/// Blocks of one size of a leaf.
pub(crate) struct Table {
    leaf: Leaf,
    offset: u64,
    unit: u64,
    len: u64,
}

impl Table {
    /// `len` bytes from `offset` on for index zero, and `unit` further for each index more.
    pub(crate) fn new(leaf: impl Into<Leaf>, offset: u64, unit: u64, len: u64) -> Self {
        Self {
            leaf: leaf.into(),
            offset,
            unit,
            len,
        }
    }

    /// Returns the first byte of the blocks at `indices`, and the one after the last; for no
    /// indices those of index zero.
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

/// A key to which nothing is bound.
pub(crate) struct Unbound;

/// A key to which something is bound, which is held for as long.
pub(crate) struct Bound {
    _leaves: KVec<Leaf>,
}

/// A key. Deregistered on drop.
pub(crate) struct Mkey<State> {
    // Fields are dropped in order: the key before its leaves.
    region: Region,
    state: State,
}

/// A bind that was refused, and the key, which is as it was.
pub(crate) struct Refused {
    pub(crate) key: Mkey<Unbound>,
    pub(crate) error: Error,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// The elements of a description, and the leaves that they are of.
fn collect<'a, T: 'a, U>(
    parts: &'a [T],
    leaf: impl Fn(&'a T) -> &'a Leaf,
    element: impl Fn(&'a T) -> Result<U>,
) -> Result<(KVec<U>, KVec<Leaf>)> {
    let mut elements = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
    let mut leaves = KVec::with_capacity(parts.len(), GFP_KERNEL)?;
    for part in parts {
        elements.push(element(part)?, GFP_KERNEL)?;
        leaves.push(leaf(part).clone(), GFP_KERNEL)?;
    }
    Ok((elements, leaves))
}

impl Mkey<Unbound> {
    /// Makes a key for `max_entries` ranges or blocks.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none or too many, `ENOMEM`, `EOPNOTSUPP`.
    pub(crate) fn new(pd: &Arc<Pd>, max_entries: u32) -> Result<Self> {
        // SAFETY: The domain is valid.
        let raw = unsafe { bindings::ib_alloc_mkey(pd.as_raw(), max_entries) };
        // SAFETY: That made a new region in the domain, or failed.
        let region = unsafe { Region::from_raw(raw, pd) }?;
        Ok(Self {
            region,
            state: Unbound,
        })
    }

    fn bound(self, bind: impl FnOnce(&Region) -> Result<KVec<Leaf>>) -> Result<Bind, Refused> {
        match bind(&self.region) {
            Ok(leaves) => Ok(Mkey {
                region: self.region,
                state: Bound { _leaves: leaves },
            }),
            Err(error) => Err(Refused { key: self, error }),
        }
    }

    /// Binds ranges, one after another.
    ///
    /// # Errors
    ///
    /// Those of `ib_bind_mkey_list()`; `EINVAL` for memory that is mapped for another device.
    pub(crate) fn bind_list(self, access: Access, ranges: &[Range]) -> Result<Bind, Refused> {
        self.bound(|region| {
            let (list, leaves) =
                collect(ranges, |range| &range.leaf, |range| range.sge(region.pd()))?;
            // SAFETY: The key is valid, the list has as many entries. What they name is held by
            // `leaves` until the key is bound no more.
            to_result(unsafe {
                bindings::ib_bind_mkey_list(
                    region.as_raw(),
                    list.as_ptr(),
                    u32::try_from(list.len())?,
                    access.into_raw() as c_int,
                )
            })?;
            Ok(leaves)
        })
    }

    /// Binds blocks that repeat as often as `repeat` says for each dimension, outermost first.
    ///
    /// # Errors
    ///
    /// Those of `ib_bind_mkey_interleaved()`; `EINVAL` for memory that is mapped for another
    /// device.
    pub(crate) fn bind_interleaved(
        self,
        access: Access,
        repeat: &[u64],
        blocks: &[Block],
    ) -> Result<Bind, Refused> {
        self.bound(|region| {
            if repeat.len() > MAX_DIMS {
                return Err(EINVAL);
            }
            let describe = |block: &Block| block.describe(region.pd(), repeat);
            let (list, leaves) = collect(blocks, |block| &block.leaf, describe)?;
            let layout = bindings::ib_mkey_interleaved {
                num_dims: u32::try_from(repeat.len())?,
                num_blocks: u32::try_from(list.len())?,
                repeat_count: repeat.as_ptr(),
                blocks: list.as_ptr(),
            };
            // SAFETY: The key and the description are valid. What it names is held by `leaves`
            // until the key is bound no more.
            to_result(unsafe {
                bindings::ib_bind_mkey_interleaved(
                    region.as_raw(),
                    &layout,
                    access.into_raw() as c_int,
                )
            })?;
            Ok(leaves)
        })
    }
}

impl Mkey<Unbound> {
    /// Binds the blocks of `table` at `indices`, in their order.
    ///
    /// # Errors
    ///
    /// Those of `ib_bind_mkey_indexed()`; `EINVAL` for memory that is mapped for another device.
    pub(crate) fn bind_indexed(
        self,
        access: Access,
        table: &Table,
        indices: &[u32],
    ) -> Result<Bind, Refused> {
        self.bound(|region| {
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
            // SAFETY: The key is valid, and there are as many indices. What is named is held by
            // `leaves` until the key is bound no more.
            to_result(unsafe {
                bindings::ib_bind_mkey_indexed(region.as_raw(), &layout, access.into_raw() as c_int)
            })?;
            Ok(leaves)
        })
    }
}

/// What a bind makes.
type Bind = Mkey<Bound>;

impl Mkey<Bound> {
    /// Takes away what is bound. No access to it is left when this returns.
    ///
    /// # Errors
    ///
    /// Those of `ib_unbind_mkey()`. The key is gone then.
    pub(crate) fn unbind(self) -> Result<Mkey<Unbound>> {
        // SAFETY: The key is valid.
        to_result(unsafe { bindings::ib_unbind_mkey(self.region.as_raw()) })?;
        Ok(Mkey {
            region: self.region,
            state: Unbound,
        })
    }

    /// Returns the local key.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }
}

impl<State> Mkey<State> {
    /// Returns the remote key, which stays the same from bind to bind.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}
