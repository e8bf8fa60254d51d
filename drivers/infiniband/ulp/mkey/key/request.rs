// SPDX-License-Identifier: GPL-2.0

//! Descriptions for work requests, `struct ib_uverbs_mkey_layout`: in the memory of an MR, in the
//! request, or staged by a kernel user.
//!
//! A process can write to the memory of its MR at any time. Each byte is therefore read once, and
//! its copy is checked.

use crate::{
    bindings::{
        ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST, ib_uverbs_mkey_layout as UapiLayout,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_ANY_PORTION as ANY_PORTION,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_BASE as BASE,
        ib_uverbs_mkey_layout_mask_IB_UVERBS_MKEY_LAYOUT_REMOTE_INV as REMOTE_INV,
        ib_uverbs_mkey_sge as UapiSge, IB_MKEY_LAYOUT_VERSION,
    },
    errors::{Refused, Result},
    kernel_ext::{alloc::GFP_MAYFAIL, rdma::Access, sched},
    key::{
        check_kind, counts,
        indexed::{index_vec, Pattern},
        Described, Key,
    },
    layout::MAX_DIMS,
    region::{
        binding::{KIndices, Leaf, MAX_ENTRIES},
        staged::Staged,
    },
};
use core::mem::size_of;
use kernel::prelude::*;
use zerocopy::{Immutable, KnownLayout};

/// The number of 8-byte words that are read at once, into a buffer on the stack.
const AT_ONCE: usize = 120;

/// The place of a description.
pub(crate) enum Source<'a> {
    /// The unread rest of a copy of the description, or of the inline data of the request.
    Copy(&'a [u8]),
    /// A staged layout.
    Staged(&'a Staged),
    /// The memory of an MR, which is pinned.
    Memory {
        /// The MR.
        leaf: Leaf,
        /// The protection domain of the reader.
        pd: usize,
    },
}

/// The bytes of a description that were not read yet.
pub(crate) struct Reader<'a> {
    source: Source<'a>,
    /// The address of the next byte.
    addr: u64,
    /// The number of bytes that are left, and of all bytes.
    left: u64,
    length: u64,
}

impl<'a> Reader<'a> {
    /// Begins to read `length` bytes from address `addr` on.
    pub(crate) fn new(source: Source<'a>, addr: u64, length: u64) -> Self {
        Self {
            source,
            addr,
            left: length,
            length,
        }
    }

    fn read(&mut self, to: &mut [u8]) -> Result {
        let len = to.len() as u64;
        self.left = self.left.checked_sub(len).ok_or(self.wrong_length())?;
        match &mut self.source {
            Source::Copy(bytes) => {
                let (now, rest) = bytes.split_at_checked(to.len()).ok_or(EINVAL)?;
                to.copy_from_slice(now);
                *bytes = rest;
            }
            Source::Staged(staged) => staged.read(usize::try_from(self.addr)?, to)?,
            Source::Memory { leaf, pd } => {
                let read = leaf.read(*pd, self.addr, to);
                read.map_err(|error| Refused::of_description(error, leaf.lkey))?;
            }
        }
        self.addr = self.addr.wrapping_add(len);
        Ok(())
    }

    /// Returns the next `count` values in place, without another copy, if the source is a copy.
    fn view<T: FromBytes + Immutable + KnownLayout + 'a>(&mut self, count: u32) -> Option<&'a [T]> {
        let Source::Copy(bytes) = &mut self.source else {
            return None;
        };
        let len = (count as usize).checked_mul(size_of::<T>())?;
        let (now, rest) = bytes.split_at_checked(len)?;
        let values = <[T]>::ref_from_bytes(now).ok()?;
        self.left = self.left.checked_sub(len as u64)?;
        *bytes = rest;
        Some(values)
    }

    /// Checks that `count` values of type `T` are left, and nothing else.
    fn holds<T>(&self, count: u32) -> Result {
        let len = u64::from(count).checked_mul(size_of::<T>() as u64);
        let is_all = len == Some(self.left);
        is_all.then_some(()).ok_or(self.wrong_length())
    }

    fn wrong_length(&self) -> Refused {
        Refused::DESCRIPTION.with(self.length)
    }

    /// Reads `count` values. Calls `some` with all of them in place if the source is a copy, and
    /// otherwise with as many at a time as fit a buffer.
    fn chunks<T: FromBytes + Immutable + KnownLayout + 'a>(
        &mut self,
        count: u32,
        mut some: impl FnMut(&[T]) -> Result,
    ) -> Result {
        if let Some(values) = self.view(count) {
            return some(values);
        }
        let mut words = [0u64; AT_ONCE];
        let at_once = const {
            assert!(size_of::<T>() != 0 && align_of::<T>() <= align_of::<u64>());
            size_of::<[u64; AT_ONCE]>() / size_of::<T>()
        };
        let mut left = count as usize;
        while left > 0 {
            let number = left.min(at_once);
            let bytes = words.as_mut_bytes();
            let bytes = bytes.get_mut(..number * size_of::<T>()).ok_or(EINVAL)?;
            self.read(bytes)?;
            some(<[T]>::ref_from_bytes(bytes).map_err(|_| EINVAL)?)?;
            left -= number;
            sched::cond_resched();
        }
        Ok(())
    }

    fn one<T: FromBytes + IntoBytes>(&mut self) -> Result<T> {
        let mut one = T::new_zeroed();
        self.read(one.as_mut_bytes())?;
        Ok(one)
    }
}

/// Checks the fields of a header except the numbers of entries and dimensions.
fn check_header(header: &UapiLayout) -> Result {
    if header.version != IB_MKEY_LAYOUT_VERSION {
        return Err(Refused::VERSION.with(header.version));
    }
    if header.comp_mask & !(ANY_PORTION | REMOTE_INV | BASE) != 0 {
        return Err(Refused::COMP_MASK.with(header.comp_mask));
    }
    check_kind(header.kind, header.entry_size, header.num_dims)
}

/// Describes the layout that `reader` reads, of at most [`MAX_ENTRIES`] entries, blocks or indices.
pub(crate) fn describe<'k>(
    key: &'k Key<'_>,
    access: Access,
    reader: &mut Reader<'_>,
) -> Result<Described<'k>> {
    let header: UapiLayout = reader.one()?;
    check_header(&header)?;
    let count = header.num_entries;
    let base = match header.comp_mask & BASE {
        0 => 0,
        _ => reader.one()?,
    };
    let mut described = match header.kind {
        KIND_LIST => list(key, access, count, reader),
        KIND_INTERLEAVED => interleaved(key, access, header.num_dims, count, reader),
        _ if count == 1 => indexed(key, access, reader),
        _ => Err(Refused::ONE_INDEXED.with(count)),
    }?;
    described.begin_at(base)?;
    described.any_portion = header.comp_mask & ANY_PORTION != 0;
    if header.comp_mask & REMOTE_INV != 0 {
        described.allow_remote_inv();
    }
    Ok(described)
}

fn list<'k>(
    key: &'k Key<'_>,
    access: Access,
    count: u32,
    reader: &mut Reader<'_>,
) -> Result<Described<'k>> {
    let mut description = key.describe(count, access)?;
    reader.holds::<UapiSge>(count)?;
    reader.chunks(count, |some: &[UapiSge]| description.ranges(some))?;
    description.list()
}

fn interleaved<'k>(
    key: &'k Key<'_>,
    access: Access,
    num_dims: u32,
    count: u32,
    reader: &mut Reader<'_>,
) -> Result<Described<'k>> {
    let mut description = key.describe(count, access)?;
    let mut buffer = [0; MAX_DIMS];
    let repeat_count = counts(&mut buffer, num_dims)?;
    for to in repeat_count.iter_mut() {
        *to = reader.one()?;
    }
    reader.holds::<UapiBlock>(count)?;
    reader.chunks(count, |some: &[UapiBlock]| {
        let mut some = some.iter();
        some.try_for_each(|block| description.uapi_block(block, repeat_count.len()))
    })?;
    description.interleaved(repeat_count)
}

fn indexed<'k>(key: &'k Key<'_>, access: Access, reader: &mut Reader<'_>) -> Result<Described<'k>> {
    let layout: UapiIndexed = reader.one()?;
    let count = layout.num_indices;
    if layout.indices != 0 {
        return Err(Refused::INDICES.with(layout.indices));
    }
    if layout.comp_mask != 0 {
        return Err(Refused::COMP_MASK.with(layout.comp_mask));
    }
    if count > MAX_ENTRIES {
        return Err(Refused::TOO_MANY.with(MAX_ENTRIES));
    }
    let mut description = key.describe_indexed(count, access)?;
    let indices = match layout.index_bytes {
        4 => {
            reader.holds::<u32>(count)?;
            let mut to = index_vec(&mut description, count)?;
            reader.chunks(count, |some| Ok(to.extend_from_slice(some, GFP_MAYFAIL)?))?;
            KIndices::U32(to)
        }
        8 => {
            reader.holds::<u64>(count)?;
            let mut to = index_vec(&mut description, count)?;
            reader.chunks(count, |some| Ok(to.extend_from_slice(some, GFP_MAYFAIL)?))?;
            KIndices::U64(to)
        }
        bytes => return Err(Refused::INDEX_BYTES.with(bytes)),
    };
    description.indexed(Pattern::from(&layout), indices)
}
