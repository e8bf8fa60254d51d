// SPDX-License-Identifier: GPL-2.0

//! Keys: unbound, bound, and with a staged layout, which a work request binds.
//!
//! C header: [`include/rdma/ib_mkey.h`](srctree/include/rdma/ib_mkey.h)

use super::{dm::DmPages, fast::State, pd::PdMr, Access, DevicePd, DmRegion, HostBuffer};
use crate::{
    bindings,
    kernel_ext::rdma::{mr_key, Pd},
};
use core::{ptr, slice};
use kernel::{error::to_result, ffi::c_int, prelude::*, sync::Arc};

/// The largest number of dimensions of an interleaved layout.
const MAX_DIMS: usize = bindings::IB_MKEY_MAX_DIMS as usize;

/// The memory that a key refers to.
#[derive(Clone)]
pub(crate) enum LeafMemory {
    /// An MR over device memory.
    Dm(Arc<DmRegion>),
    /// Memory of the host, addressed by the local DMA lkey.
    Host(Arc<HostBuffer>),
    /// The bytes of a key, unless a peer invalidates it.
    Key(Arc<Mkey<Bound>>),
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

impl From<&Arc<Mkey<Bound>>> for LeafMemory {
    fn from(key: &Arc<Mkey<Bound>>) -> Self {
        Self::Key(key.clone())
    }
}

impl LeafMemory {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            // CAST: Device memory has fewer bytes than 2^32.
            Self::Dm(region) => region.len() as usize,
            Self::Host(buffer) => buffer.len(),
            Self::Key(key) => key.state.leaves.len as usize,
        }
    }

    /// Returns the MR and its first address, if the memory has one.
    pub(super) fn mr(&self) -> Option<(&PdMr, u64)> {
        match self {
            Self::Dm(region) => Some((region.mr(), 0)),
            Self::Host(_) => None,
            Self::Key(key) => Some((key.mr(), key.base)),
        }
    }

    /// Returns the pages of device memory, if block devices can access it.
    pub(super) fn pages(&self) -> Option<&DmPages> {
        match self {
            Self::Dm(region) => region.pages(),
            _ => None,
        }
    }

    /// Returns `true` for RAM, and `false` for a key, whose leaves may be anything.
    pub(crate) fn is_ram(&self) -> bool {
        match self {
            Self::Host(_) => true,
            _ => self.pages().is_some_and(|pages| pages.is_ram()),
        }
    }
}

/// Consecutive bytes of a leaf, which a layout may repeat.
pub(crate) struct LeafBlock {
    leaf: LeafMemory,
    offset: u64,
    len: u64,
    stride: [i64; MAX_DIMS],
}

impl LeafBlock {
    /// Describes `len` bytes from `offset` on.
    pub(crate) fn new(leaf: impl Into<LeafMemory>, offset: u64, len: u64) -> Self {
        Self {
            leaf: leaf.into(),
            offset,
            len,
            stride: [0; MAX_DIMS],
        }
    }

    /// Returns the block with a distance of `stride[d]` bytes between its repetitions in dimension
    /// `d` of an interleaved layout.
    pub(crate) fn with_stride<const DIMS: usize>(mut self, stride: [i64; DIMS]) -> Self {
        const { assert!(DIMS <= MAX_DIMS) };
        for (to, stride) in self.stride.iter_mut().zip(stride) {
            *to = stride;
        }
        self
    }

    /// Returns the block for a key or a request of `pd`. The first bytes of all repetitions are
    /// from `lowest` to `highest` bytes after that of the block.
    ///
    /// An lkey is a number, which can name another MR in another domain. So the domain of an MR is
    /// checked here; ib_mkey checks the range. The local DMA lkey has no range, and it would accept
    /// an address that is mapped for another device. So the device and the range of host memory are
    /// checked here.
    ///
    /// # Errors
    ///
    /// `EINVAL` for memory of another domain or device, `ERANGE` for bytes outside host memory.
    fn describe(&self, pd: &Pd, lowest: i128, highest: i128) -> Result<bindings::ib_mkey_block> {
        let (lkey, base) = match (&self.leaf, self.leaf.mr()) {
            (_, Some((mr, base))) if ptr::eq(mr.pd(), pd) => (mr.lkey(), base),
            (LeafMemory::Host(buffer), _) => {
                if !ptr::eq(&**buffer.device(), pd.device()) {
                    return Err(EINVAL);
                }
                let offset = i128::from(self.offset);
                let end = highest.saturating_add(offset + i128::from(self.len));
                if lowest.saturating_add(offset) < 0 || end > buffer.len() as i128 {
                    return Err(ERANGE);
                }
                (pd.local_dma_lkey(), buffer.addr())
            }
            _ => return Err(EINVAL),
        };
        Ok(bindings::ib_mkey_block {
            addr: base.checked_add(self.offset).ok_or(EOVERFLOW)?,
            bytes_count: self.len,
            lkey,
            stride: self.stride,
        })
    }

    /// Does what [`Self::describe`] does for a block without repetitions, of less than 4 GiB.
    pub(super) fn sge(&self, pd: &Pd) -> Result<bindings::ib_sge> {
        let block = self.describe(pd, 0, 0)?;
        Ok(bindings::ib_sge {
            addr: block.addr,
            length: u32::try_from(block.bytes_count)?,
            lkey: block.lkey,
        })
    }

    /// Does what [`Self::describe`] does for a block that repeats `repeat[d]` times in dimension
    /// `d`.
    fn repeated(&self, pd: &Pd, repeat: &[u64]) -> Result<bindings::ib_mkey_block> {
        let (mut lowest, mut highest) = (0_i128, 0_i128);
        for (count, stride) in repeat.iter().zip(&self.stride) {
            // Less than 2^127.
            let way = i128::from(count.saturating_sub(1)) * i128::from(*stride);
            lowest = lowest.saturating_add(way.min(0));
            highest = highest.saturating_add(way.max(0));
        }
        self.describe(pd, lowest, highest)
    }
}

/// A layout of the bytes of a key.
#[derive(Clone, Copy)]
pub(crate) enum Layout<'a> {
    /// The blocks follow one another. They have no stride, and less than 4 GiB each.
    List(&'a [LeafBlock]),
    /// The blocks repeat `repeat[d]` times in dimension `d`. Dimension 0 is the outermost.
    Interleaved {
        repeat: &'a [u64],
        blocks: &'a [LeafBlock],
    },
    /// For each index, the block that is `index * unit` bytes after `first`.
    Indexed {
        first: &'a LeafBlock,
        unit: u64,
        indices: &'a [u32],
    },
}

impl Layout<'_> {
    /// Binds `mr` to the layout with these access flags, or stages the layout without them. The
    /// addresses of the key begin at `base`. Returns the leaves, which the caller holds until nothing
    /// is bound or staged.
    fn apply(self, mr: &PdMr, base: u64, access: Option<Access>) -> Result<Leaves> {
        let pd = mr.pd();
        let (used, times) = match self {
            Self::List(blocks) => (blocks, 1),
            Self::Interleaved { repeat, blocks } => {
                let product = |all: u64, count: &u64| all.saturating_mul(*count);
                (blocks, repeat.iter().fold(1, product))
            }
            Self::Indexed { first, indices, .. } => (slice::from_ref(first), indices.len() as u64),
        };
        let (mut memory, mut len) = (KVec::with_capacity(used.len(), GFP_KERNEL)?, 0u64);
        for block in used {
            memory.push(block.leaf.clone(), GFP_KERNEL)?;
            len = len.saturating_add(block.len.saturating_mul(times));
        }
        let (mut ranges, mut list) = (KVec::new(), KVec::new());
        let (mut interleaved, mut indexed) = (None, None);
        match self {
            Self::List(blocks) => {
                for block in blocks {
                    ranges.push(block.sge(pd)?, GFP_KERNEL)?;
                }
            }
            Self::Interleaved { repeat, blocks } => {
                for block in blocks {
                    list.push(block.repeated(pd, repeat)?, GFP_KERNEL)?;
                }
                interleaved = Some(bindings::ib_mkey_interleaved {
                    num_dims: u32::try_from(repeat.len())?,
                    num_blocks: u32::try_from(list.len())?,
                    repeat_count: repeat.as_ptr(),
                    blocks: list.as_ptr(),
                });
            }
            Self::Indexed {
                first,
                unit,
                indices,
            } => {
                // Less than 2^96.
                let way = |index: &u32| i128::from(*index) * i128::from(unit);
                let lowest = indices.iter().min().map_or(0, way);
                let highest = indices.iter().max().map_or(0, way);
                let block = first.describe(pd, lowest, highest)?;
                indexed = Some(bindings::ib_mkey_indexed {
                    addr: block.addr,
                    unit,
                    bytes_count: block.bytes_count,
                    indices32: indices.as_ptr(),
                    indices64: ptr::null(),
                    num_indices: u32::try_from(indices.len())?,
                    lkey: block.lkey,
                });
            }
        }
        let bind = bindings::ib_mkey_bind {
            mkey: mr.as_raw(),
            access: access.map_or(0, |access| access.into_raw() as c_int),
            num_sge: u32::try_from(ranges.len())?,
            base_addr: base,
            interleaved: interleaved.as_ref().map_or(ptr::null(), ptr::from_ref),
            indexed: indexed.as_ref().map_or(ptr::null(), ptr::from_ref),
            sg_list: ranges.as_ptr(),
        };
        // SAFETY: The key is valid, and the arrays have the lengths in `bind`.
        to_result(unsafe {
            match access {
                Some(_) => bindings::ib_bind_mkeys(&bind, 1, ptr::null_mut()),
                None => bindings::ib_map_mkey(&bind),
            }
        })?;
        Ok(Leaves {
            _memory: memory,
            len,
        })
    }
}

/// The leaves of a layout.
struct Leaves {
    _memory: KVec<LeafMemory>,
    /// The bytes of the layout.
    len: u64,
}

/// The state of a key to which nothing is bound.
pub(crate) struct Unbound;

/// The state of a key to which leaves are bound. It holds the leaves.
pub(crate) struct Bound {
    leaves: Leaves,
}

/// The state of a key for which a layout is staged, and to which nothing is bound. It holds the
/// leaves. The rkey of the key is the one under which the layout is staged.
pub(crate) struct Staged {
    leaves: Leaves,
}

/// The state of a key that belongs to a request, which registers and invalidates it.
pub(crate) struct Posted {
    leaves: Leaves,
    pub(super) state: State,
}

/// A key. Dropping it deregisters the key.
pub(crate) struct Mkey<S> {
    // Fields drop in declaration order: the key before its leaves.
    mr: PdMr,
    base: u64,
    pub(super) state: S,
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

impl Mkey<Unbound> {
    /// Makes a key with room for `max_entries` ranges, blocks or indices.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero or too many entries, `ENOMEM`, `EOPNOTSUPP` if ib_mkey does not extend the
    /// device.
    pub(crate) fn new(pd: &Arc<DevicePd>, max_entries: u32) -> Result<Self> {
        Self::new_at(pd, max_entries, 0)
    }

    /// Makes a key like [`Self::new`]. Its addresses begin at `base`, whatever its layout is.
    pub(crate) fn new_at(pd: &Arc<DevicePd>, max_entries: u32, base: u64) -> Result<Self> {
        // SAFETY: The domain is valid. `ib_alloc_mkey()` returns a new MR in the domain, or an
        // error.
        let mr = unsafe { PdMr::from_raw(bindings::ib_alloc_mkey(pd.as_raw(), max_entries), pd) }?;
        Ok(Self {
            mr,
            base,
            state: Unbound,
        })
    }

    /// Binds the key to `layout`.
    ///
    /// # Errors
    ///
    /// The errors of `ib_bind_mkeys()`; `EINVAL` for memory of another domain or device; `ERANGE` for
    /// bytes outside a leaf.
    pub(crate) fn bind(
        self,
        access: Access,
        layout: Layout<'_>,
    ) -> Result<Mkey<Bound>, BindRefused> {
        match layout.apply(&self.mr, self.base, Some(access)) {
            Ok(leaves) => Ok(self.with(|_| Bound { leaves })),
            Err(error) => Err(BindRefused { key: self, error }),
        }
    }

    /// Stages `layout` under the next rkey of the key, for [`Op::Register`](super::Op::Register).
    ///
    /// # Errors
    ///
    /// The errors of `ib_map_mkey()`, and those of [`Self::bind`].
    pub(crate) fn stage(self, layout: Layout<'_>) -> Result<Mkey<Staged>, BindRefused> {
        self.mr.set_key(mr_key::next(self.mr.rkey()));
        match layout.apply(&self.mr, self.base, None) {
            Ok(leaves) => Ok(self.with(|_| Staged { leaves })),
            Err(error) => Err(BindRefused { key: self, error }),
        }
    }
}

impl From<Mkey<Staged>> for Mkey<Posted> {
    /// Makes a key that a request can register.
    fn from(key: Mkey<Staged>) -> Self {
        key.with(|staged| Posted {
            leaves: staged.leaves,
            state: State::Mapped,
        })
    }
}

impl From<Mkey<Bound>> for Mkey<Posted> {
    /// Makes a key that a request can use and invalidate.
    fn from(key: Mkey<Bound>) -> Self {
        key.with(|bound| Posted {
            leaves: bound.leaves,
            state: State::Registered,
        })
    }
}

impl Mkey<Posted> {
    /// Drops the staged layout, or unbinds the key if a request may have bound it and none has
    /// invalidated it.
    ///
    /// # Errors
    ///
    /// The errors of `ib_unbind_mkey()`. The key is dropped then.
    pub(crate) fn unbind(self) -> Result<Mkey<Unbound>> {
        let is_free = self.state.state == State::Free;
        let key = self.with(|posted| Bound {
            leaves: posted.leaves,
        });
        match is_free {
            true => Ok(key.with(|_| Unbound)),
            false => key.unbind(),
        }
    }
}

impl Mkey<Bound> {
    /// Unbinds the key. When this returns, no access to the leaves through the key is in progress.
    ///
    /// # Errors
    ///
    /// The errors of `ib_unbind_mkey()`. The key is dropped then.
    pub(crate) fn unbind(self) -> Result<Mkey<Unbound>> {
        // SAFETY: The key is valid.
        to_result(unsafe { bindings::ib_unbind_mkey(self.mr.as_raw()) })?;
        Ok(self.with(|_| Unbound))
    }
}

impl<S> Mkey<S> {
    fn with<New>(self, state: impl FnOnce(S) -> New) -> Mkey<New> {
        Mkey {
            mr: self.mr,
            base: self.base,
            state: state(self.state),
        }
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the remote key. An unbind and [`Mkey::stage`] change its key portion. A bind by a
    /// call keeps it.
    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    pub(super) fn mr(&self) -> &PdMr {
        &self.mr
    }
}
