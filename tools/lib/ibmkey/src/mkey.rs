// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The system calls on keys, and the translation of layouts for the kernel.

use core::{
    cell::Cell,
    ffi::c_int,
    mem::{
        offset_of,
        size_of, //
    },
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    object::Region,
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_info as Info,
        ib_uverbs_mkey_sge as Sge,
        ibmkey_range as Range, //
    },
};

// The kernel reads a caller's ranges without a translation, so both structures must be the same.
const _: () = {
    assert!(size_of::<Range>() == size_of::<Sge>());
    assert!(offset_of!(Range, addr) == offset_of!(Sge, addr));
    assert!(offset_of!(Range, length) == offset_of!(Sge, length));
    assert!(offset_of!(Range, lkey) == offset_of!(Sge, lkey));
    assert!(offset_of!(Range, comp_mask) == offset_of!(Sge, comp_mask));
};

/// The largest number of entries or blocks that are translated on the stack. A longer array is
/// translated on the heap.
const ON_STACK: usize = 16;

/// An array as a C caller passes it: a count and a pointer.
///
/// The array cannot be read if the pointer is NULL, or if the count is larger than a key can have.
/// The kernel then gets the count and NULL, and returns the error.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a, T> {
    count: u32,
    items: Option<&'a [T]>,
}

impl<'a, T> Array<'a, T> {
    /// Makes an array of this library's own elements. If there are more than a key can have, the
    /// kernel refuses them.
    pub(crate) fn from_slice(items: &'a [T]) -> Self {
        Self {
            count: u32::try_from(items.len()).unwrap_or(u32::MAX),
            items: Some(items),
        }
    }

    /// # Safety
    ///
    /// `items` is NULL or points to `count` initialised elements. No one writes them during `'a`.
    pub(crate) unsafe fn from_raw(count: u32, items: *const T) -> Self {
        let readable = !items.is_null() && count <= sys::IB_MKEY_MAX_ENTRIES;

        let items = if readable {
            // SAFETY: By the caller's promise.
            Some(unsafe { core::slice::from_raw_parts(items, count as usize) })
        } else {
            None
        };

        Self { count, items }
    }

    /// Returns the elements, or `None` if they cannot be read.
    pub(crate) fn items(&self) -> Option<&'a [T]> {
        self.items
    }

    /// Returns the address of the elements, or NULL if they cannot be read.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.items.map_or(core::ptr::null(), <[T]>::as_ptr)
    }

    /// Calls `then` with a pointer to the translated elements, or with NULL if they cannot be read.
    fn translated<U: Copy + Default, R>(
        self,
        translate: impl Fn(&T) -> U,
        then: impl FnOnce(*const U) -> Result<R>,
    ) -> Result<R> {
        let Some(items) = self.items else {
            return then(core::ptr::null());
        };

        // A layout of one block is common, and a block is large. So it does not use the array
        // below.
        if let [one] = items {
            return then(&translate(one));
        }
        let mut stack = [U::default(); ON_STACK];
        if items.len() <= ON_STACK {
            for (to, from) in stack.iter_mut().zip(items) {
                *to = translate(from);
            }
            return then(stack.as_ptr());
        }

        let mut heap = Vec::new();
        heap.try_reserve_exact(items.len())
            .map_err(|_| Errno::ENOMEM)?;
        heap.extend(items.iter().map(translate));
        then(heap.as_ptr())
    }
}

pub(crate) fn create(fd: c_int, pd_handle: u32, max_entries: u32) -> Result<Region> {
    create_with(fd, pd_handle, max_entries, 0)
}

/// Creates a key with bits of `enum ib_uverbs_mkey_create_flags`.
pub(crate) fn create_with(
    fd: c_int,
    pd_handle: u32,
    max_entries: u32,
    flags: u32,
) -> Result<Region> {
    Command::<6>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_CREATE)
        .new_object(sys::IB_MKEY_ATTR_CREATE_HANDLE)
        .object(sys::IB_MKEY_ATTR_CREATE_PD_HANDLE, pd_handle)
        .u32(sys::IB_MKEY_ATTR_CREATE_MAX_ENTRIES, max_entries)
        .u32(sys::IB_MKEY_ATTR_CREATE_FLAGS, flags)
        .run_region(
            fd,
            sys::IB_MKEY_ATTR_CREATE_RESP_LKEY,
            sys::IB_MKEY_ATTR_CREATE_RESP_RKEY,
            0,
        )
}

pub(crate) fn sge_to_range(sge: &sys::ibv_sge) -> Range {
    Range {
        addr: sge.addr,
        length: sge.length.into(),
        lkey: sge.lkey,
        comp_mask: 0,
    }
}

pub(crate) fn block_to_uapi(block: &sys::ibmkey_block, dims: usize) -> Block {
    let mut stride = block.stride;

    // The caller need not initialise the strides of unused dimensions, but the kernel requires
    // zeroes.
    for unused in stride.iter_mut().skip(dims) {
        *unused = 0;
    }
    Block {
        addr: block.addr,
        bytes_count: block.bytes_count,
        stride,
        lkey: block.lkey,
        comp_mask: block.comp_mask,
    }
}

/// Describes a list of `count` ranges at `entries`.
pub(crate) fn describe_list(access: u32, count: u32, entries: *const Range) -> Bind {
    Bind {
        entries: entries as u64,
        kind: sys::IBMKEY_LIST,
        num_entries: count,
        entry_size: size_of::<Sge>() as u32,
        access,
        ..Bind::default()
    }
}

/// Describes `count` blocks at `entries`, repeated in `num_dims` dimensions.
pub(crate) fn describe_interleaved(
    access: u32,
    num_dims: u32,
    repeat_count: *const u64,
    count: u32,
    entries: *const Block,
) -> Bind {
    Bind {
        entries: entries as u64,
        repeat_count: repeat_count as u64,
        kind: sys::IBMKEY_INTERLEAVED,
        num_entries: count,
        entry_size: size_of::<Block>() as u32,
        num_dims,
        access,
        ..Bind::default()
    }
}

/// The fields of `struct ibv_mr` that a bind or an unbind changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The number of bytes of the layout.
    pub(crate) length: usize,
    /// The lkey and the rkey, which are equal.
    pub(crate) rkey: u32,
}

/// Binds a key. Returns its lkey and rkey.
pub(crate) fn bind(fd: c_int, handle: u32, layout: Bind) -> Result<u32> {
    let mut rkey = 0u32;

    Command::<3>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_BIND)
        .object(sys::IB_MKEY_ATTR_BIND_HANDLE, handle)
        .slice(sys::IB_MKEY_ATTR_BIND_LAYOUT, &[layout])
        .out(sys::IB_MKEY_ATTR_BIND_RESP_RKEY, &mut rkey)
        .run(fd)?;
    Ok(rkey)
}

/// Binds a list.
pub(crate) fn bind_list(
    fd: c_int,
    handle: u32,
    access: u32,
    list: Array<'_, Range>,
) -> Result<Bound> {
    let rkey = bind(fd, handle, describe_list(access, list.count, list.as_ptr()))?;
    let bytes = list.items.unwrap_or_default();
    let length = length(&[], bytes.iter().map(|range| range.length));

    Ok(Bound { length, rkey })
}

/// Binds a list in the elements of libibverbs.
pub(crate) fn bind_sge_list(
    fd: c_int,
    handle: u32,
    access: u32,
    list: Array<'_, sys::ibv_sge>,
) -> Result<Bound> {
    // The sum is used only if the kernel accepts the list, so it fits 64 bits.
    let sum = Cell::new(0u64);
    let to_range = |sge: &sys::ibv_sge| {
        sum.set(sum.get().wrapping_add(sge.length.into()));
        sge_to_range(sge)
    };
    let rkey = list.translated(to_range, |entries| {
        bind(fd, handle, describe_list(access, list.count, entries))
    })?;
    let length = length(&[], [sum.get()].into_iter());

    Ok(Bound { length, rkey })
}

/// Binds an interleaved layout.
pub(crate) fn bind_interleaved(
    fd: c_int,
    handle: u32,
    access: u32,
    repeat: Array<'_, u64>,
    blocks: Array<'_, sys::ibmkey_block>,
) -> Result<Bound> {
    let dims = repeat.items.unwrap_or_default();

    let rkey = blocks.translated(
        |block| block_to_uapi(block, dims.len()),
        |array| {
            let (counts, at) = (repeat.count, repeat.as_ptr());
            let layout = describe_interleaved(access, counts, at, blocks.count, array);
            bind(fd, handle, layout)
        },
    )?;

    let bytes = blocks.items.unwrap_or_default();
    let length = length(dims, bytes.iter().map(|block| block.bytes_count));
    Ok(Bound { length, rkey })
}

/// Returns the length of a layout that the kernel has accepted.
///
/// The kernel has checked that the length fits 64 bits. On a 32-bit machine, a length that does not
/// fit `size_t` becomes `usize::MAX`.
pub(crate) fn length(repeat_count: &[u64], bytes: impl Iterator<Item = u64>) -> usize {
    let once = bytes.fold(0u64, u64::wrapping_add);
    let all = repeat_count
        .iter()
        .fold(once, |sum, &n| sum.saturating_mul(n));

    usize::try_from(all).unwrap_or(usize::MAX)
}

/// Unbinds a key, which changes the tag of its lkey and rkey.
pub(crate) fn unbind(fd: c_int, handle: u32) -> Result<Bound> {
    let mut rkey = 0u32;

    Command::<2>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_UNBIND)
        .object(sys::IB_MKEY_ATTR_UNBIND_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_UNBIND_RESP_RKEY, &mut rkey)
        .run(fd)?;
    Ok(Bound { length: 0, rkey })
}

/// Queries the binding, and as much of the layout as the slices can hold.
pub(crate) fn query(
    fd: c_int,
    handle: u32,
    repeat_count: &mut [u64],
    blocks: &mut [sys::ibmkey_block],
) -> Result<sys::ibmkey_info> {
    let mut info = Info::default();
    let mut repeat = [0; sys::IB_MKEY_MAX_DIMS as usize];
    // A layout has at most IB_MKEY_MAX_ENTRIES blocks, even if more fit into the slice.
    let max_blocks = blocks.len().min(sys::IB_MKEY_MAX_ENTRIES as usize);
    let mut array = Vec::<Block>::new();
    array
        .try_reserve_exact(max_blocks)
        .map_err(|_| Errno::ENOMEM)?;
    array.resize(max_blocks, Block::default());

    let mut command = Command::<5>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info);
    if !repeat_count.is_empty() {
        command = command.out(sys::IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT, &mut repeat);
    }
    if max_blocks > 0 {
        command = command
            .u64(sys::IB_MKEY_ATTR_QUERY_BLOCKS, array.as_mut_ptr() as u64)
            // CAST: The number is at most IB_MKEY_MAX_ENTRIES.
            .u32(sys::IB_MKEY_ATTR_QUERY_NUM_BLOCKS, max_blocks as u32);
    }
    command.run(fd)?;

    let bound = repeat.iter().take(info.num_dims as usize);
    for (to, from) in repeat_count.iter_mut().zip(bound) {
        *to = *from;
    }

    let stored = match info.kind {
        // The kernel stores no blocks of an indexed layout.
        sys::IB_UVERBS_MKEY_INDEXED => 0,
        _ => info.num_entries as usize,
    };
    let bound = array.iter().take(stored);
    for (to, from) in blocks.iter_mut().zip(bound) {
        *to = sys::ibmkey_block {
            addr: from.addr,
            bytes_count: from.bytes_count,
            lkey: from.lkey,
            comp_mask: 0,
            stride: from.stride,
        };
    }

    Ok(info_from_uapi(&info))
}

pub(crate) fn info_from_uapi(info: &Info) -> sys::ibmkey_info {
    sys::ibmkey_info {
        comp_mask: 0,
        length: info.length,
        kind: info.kind,
        access: info.access,
        max_entries: info.max_entries,
        num_entries: info.num_entries,
        num_dims: info.num_dims,
        lkey: info.lkey,
        rkey: info.rkey,
    }
}

#[cfg(test)]
#[path = "mkey_tests.rs"]
mod tests;
