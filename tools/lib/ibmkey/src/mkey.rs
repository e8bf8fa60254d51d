// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The system calls on keys.

use core::{
    ffi::c_int,
    mem::size_of,
    ptr::with_exposed_provenance, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    object::Region,
    reason::{
        self,
        Refused,
        RefusedAccess, //
    },
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_caps as Caps,
        ib_uverbs_mkey_indexed as Indexed,
        ib_uverbs_mkey_info as Info,
        ib_uverbs_mkey_sge as Range, //
    },
};

/// Queries the limits of the device of the context whose command file descriptor is `fd`.
pub fn query_caps(fd: c_int) -> Result<Caps> {
    let mut caps = Caps::default();

    Command::<1>::new(sys::UVERBS_OBJECT_DEVICE, sys::IB_MKEY_METHOD_QUERY_CAPS)
        .out(sys::IB_MKEY_ATTR_QUERY_CAPS_RESP, &mut caps)
        .run(fd)?;
    Ok(caps)
}

/// Creates a key with bits of `enum ib_uverbs_mkey_create_flags`.
pub(crate) fn create(fd: c_int, pd_handle: u32, max_entries: u32, flags: u32) -> Result<Region> {
    let mut refused = Refused::default();

    Command::<7>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_CREATE)
        .new_object(sys::IB_MKEY_ATTR_CREATE_HANDLE)
        .object(sys::IB_MKEY_ATTR_CREATE_PD_HANDLE, pd_handle)
        .u32(sys::IB_MKEY_ATTR_CREATE_MAX_ENTRIES, max_entries)
        .u32(sys::IB_MKEY_ATTR_CREATE_FLAGS, flags)
        .hint(sys::IB_MKEY_ATTR_CREATE_RESP_REFUSED, &mut refused)
        .run_region(
            fd,
            sys::IB_MKEY_ATTR_CREATE_RESP_LKEY,
            sys::IB_MKEY_ATTR_CREATE_RESP_RKEY,
            0,
        )
        .map_err(|errno| reason::refused(errno, &refused, None))
}

/// Describes a list of `count` ranges at `entries`.
pub(crate) fn list(access: u32, count: u32, entries: *const Range) -> Bind {
    Bind {
        entries: entries as u64,
        kind: sys::IB_UVERBS_MKEY_LIST,
        num_entries: count,
        entry_size: size_of::<Range>() as u32,
        access,
        ..Bind::default()
    }
}

/// Describes `count` blocks at `entries`, repeated in `num_dims` dimensions.
pub(crate) fn interleaved(
    access: u32,
    num_dims: u32,
    repeat_count: *const u64,
    count: u32,
    entries: *const Block,
) -> Bind {
    Bind {
        entries: entries as u64,
        repeat_count: repeat_count as u64,
        kind: sys::IB_UVERBS_MKEY_INTERLEAVED,
        num_entries: count,
        entry_size: size_of::<Block>() as u32,
        num_dims,
        access,
        ..Bind::default()
    }
}

/// Describes blocks at indices.
pub(crate) fn indexed(access: u32, layout: *const Indexed) -> Bind {
    Bind {
        entries: layout as u64,
        kind: sys::IB_UVERBS_MKEY_INDEXED,
        num_entries: 1,
        entry_size: size_of::<Indexed>() as u32,
        access,
        ..Bind::default()
    }
}

/// Lets the addresses of a layout begin at `base_addr`.
pub(crate) fn at(layout: Bind, base_addr: u64) -> Bind {
    Bind {
        comp_mask: layout.comp_mask | sys::IB_UVERBS_MKEY_BIND_BASE,
        base_addr,
        ..layout
    }
}

/// The fields of `struct ibv_mr` that a bind or an unbind changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The number of bytes of the layout.
    pub(crate) length: usize,
    /// The lkey and the rkey, which are equal.
    pub(crate) rkey: u32,
}

/// Binds a key. If the kernel cannot read an array of the layout, it returns the error.
///
/// # Safety
///
/// Nothing else writes the arrays of the layout meanwhile.
pub(crate) unsafe fn bind(fd: c_int, handle: u32, layout: &Bind) -> Result<Bound> {
    let mut rkey = 0u32;
    let mut refused = Refused::default();

    Command::<4>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_BIND)
        .object(sys::IB_MKEY_ATTR_BIND_HANDLE, handle)
        .slice(sys::IB_MKEY_ATTR_BIND_LAYOUT, core::slice::from_ref(layout))
        .out(sys::IB_MKEY_ATTR_BIND_RESP_RKEY, &mut rkey)
        .hint(sys::IB_MKEY_ATTR_BIND_RESP_REFUSED, &mut refused)
        .run(fd)
        .map_err(|errno| reason::refused(errno, &refused, Some(layout)))?;

    // SAFETY: By the caller's promise. The kernel has read the arrays.
    let length = unsafe { length(layout) };
    Ok(Bound { length, rkey })
}

/// Returns the length of a layout that the kernel has accepted.
///
/// The kernel has checked that the length fits 64 bits. On a 32-bit machine, a length that does not
/// fit `size_t` becomes `usize::MAX`.
///
/// # Safety
///
/// The arrays of the layout can be read.
pub(crate) unsafe fn length(layout: &Bind) -> usize {
    let count = layout.num_entries as usize;
    let sum = |bytes: u64, all: u64| all.saturating_add(bytes);

    // SAFETY: By the caller's promise; the array has elements of this kind.
    let all = unsafe {
        match layout.kind {
            sys::IB_UVERBS_MKEY_LIST => slice::<Range>(layout.entries, count)
                .iter()
                .fold(0, |all, range| sum(range.length, all)),
            sys::IB_UVERBS_MKEY_INTERLEAVED => {
                let once = slice::<Block>(layout.entries, count)
                    .iter()
                    .fold(0, |all, block| sum(block.bytes_count, all));
                slice::<u64>(layout.repeat_count, layout.num_dims as usize)
                    .iter()
                    .fold(once, |all, repeat| all.saturating_mul(*repeat))
            }
            _ => slice::<Indexed>(layout.entries, count)
                .iter()
                .fold(0, |_, one| {
                    u64::from(one.num_indices).saturating_mul(one.bytes_count)
                }),
        }
    };
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// # Safety
///
/// `count` elements at address `addr` can be read.
unsafe fn slice<'a, T>(addr: u64, count: usize) -> &'a [T] {
    // SAFETY: By the caller's promise.
    unsafe { core::slice::from_raw_parts(with_exposed_provenance(addr as usize), count) }
}

/// Binds a list in the elements of libibverbs, of which there are `count` at `elements`.
///
/// # Safety
///
/// `elements` is NULL or points to `count` elements, which nothing else writes meanwhile.
pub(crate) unsafe fn bind_sges(
    fd: c_int,
    handle: u32,
    access: u32,
    count: u32,
    elements: *const sys::ibv_sge,
) -> Result<Bound> {
    let mut ranges = Vec::new();
    // The kernel refuses more entries before it reads any.
    let readable = !elements.is_null() && count <= sys::IB_MKEY_MAX_ENTRIES;

    if readable {
        // SAFETY: By the caller's promise.
        let elements = unsafe { core::slice::from_raw_parts(elements, count as usize) };
        ranges
            .try_reserve_exact(elements.len())
            .map_err(|_| Errno::ENOMEM)?;
        ranges.extend(elements.iter().map(|sge| Range {
            addr: sge.addr,
            length: sge.length.into(),
            lkey: sge.lkey,
            comp_mask: 0,
        }));
    }
    let entries = match readable {
        true => ranges.as_ptr(),
        false => core::ptr::null(),
    };
    // SAFETY: The array is this function's.
    unsafe { bind(fd, handle, &list(access, count, entries)) }
}

/// Unbinds a key, which changes the key portion of its lkey and rkey.
pub(crate) fn unbind(fd: c_int, handle: u32) -> Result<Bound> {
    let mut rkey = 0u32;

    Command::<2>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_UNBIND)
        .object(sys::IB_MKEY_ATTR_UNBIND_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_UNBIND_RESP_RKEY, &mut rkey)
        .run(fd)
        .map_err(unkeyed)?;
    Ok(Bound { length: 0, rkey })
}

/// Says what an errno value means for a call on a key that gives no reason.
fn unkeyed(errno: Errno) -> Errno {
    let reason = match errno {
        Errno::EINVAL => sys::IB_UVERBS_MKEY_REASON_NOT_A_KEY,
        Errno::EBUSY => sys::IB_UVERBS_MKEY_REASON_BUSY,
        _ => sys::IB_UVERBS_MKEY_REASON_NONE,
    };
    reason::refused(errno, &reason::of(reason), None)
}

/// Queries the binding, and as much of the layout as the slices can hold.
pub(crate) fn query(
    fd: c_int,
    handle: u32,
    repeat_count: &mut [u64],
    blocks: &mut [Block],
) -> Result<Info> {
    let mut info = Info::default();
    // CAST: A key has fewer than 2^32 blocks.
    let max_blocks = blocks.len().min(sys::IB_MKEY_MAX_ENTRIES as usize) as u32;
    let max_dims = repeat_count.len().min(sys::IB_MKEY_MAX_DIMS as usize);

    let mut command = Command::<5>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info);
    if let Some(counts @ [_, ..]) = repeat_count.get_mut(..max_dims) {
        command = command.out_slice(sys::IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT, counts);
    }
    if max_blocks > 0 {
        command = command
            .u64(sys::IB_MKEY_ATTR_QUERY_BLOCKS, blocks.as_mut_ptr() as u64)
            .u32(sys::IB_MKEY_ATTR_QUERY_NUM_BLOCKS, max_blocks);
    }
    command.run(fd).map_err(unkeyed)?;
    Ok(info)
}

/// Queries the binding, and as many indices as the slice can hold. Returns a layout only if the key
/// is bound to an indexed one.
pub(crate) fn query_indexed(
    fd: c_int,
    handle: u32,
    indices: &mut [u64],
) -> Result<(Info, Option<Indexed>)> {
    let mut info = Info::default();
    let mut bound = Indexed::default();
    let wanted = [Indexed {
        indices: indices.as_mut_ptr() as u64,
        num_indices: u32::try_from(indices.len()).unwrap_or(u32::MAX),
        index_bytes: 8,
        ..Indexed::default()
    }];

    Command::<4>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info)
        .slice(sys::IB_MKEY_ATTR_QUERY_INDEXED, &wanted)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP_INDEXED, &mut bound)
        .run(fd)
        .map_err(unkeyed)?;
    let is_indexed = info.kind == sys::IB_UVERBS_MKEY_INDEXED;
    Ok((info, is_indexed.then_some(bound)))
}

/// Queries the address of the first byte.
pub(crate) fn query_base(fd: c_int, handle: u32) -> Result<u64> {
    let mut info = Info::default();
    let mut base = 0u64;

    Command::<3>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR, &mut base)
        .run(fd)
        .map_err(unkeyed)?;
    Ok(base)
}

/// Returns why the last work request was refused. Stores a sentence about it.
pub(crate) fn query_refused(fd: c_int, handle: u32) -> Result<Refused> {
    let mut info = Info::default();
    let mut refused = Refused::default();

    Command::<3>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP_REFUSED, &mut refused)
        .run(fd)
        .map_err(unkeyed)?;
    Ok(refused)
}

/// Returns the last refused access to a key.
pub(crate) fn query_refused_access(fd: c_int, handle: u32) -> Result<RefusedAccess> {
    let mut info = Info::default();
    let mut refused = RefusedAccess::default();

    Command::<3>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS, &mut refused)
        .run(fd)
        .map_err(unkeyed)?;
    Ok(refused)
}

/// Returns the last refused access to an MR that this process made on the device.
pub(crate) fn last_refused_access(fd: c_int) -> Result<RefusedAccess> {
    let mut caps = Caps::default();
    let mut refused = RefusedAccess::default();
    let attr = sys::IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS;

    Command::<2>::new(sys::UVERBS_OBJECT_DEVICE, sys::IB_MKEY_METHOD_QUERY_CAPS)
        .out(sys::IB_MKEY_ATTR_QUERY_CAPS_RESP, &mut caps)
        .out(attr, &mut refused)
        .run(fd)?;
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_the_product_of_repetitions_and_bytes() {
        let range = |length| Range {
            length,
            ..Range::default()
        };
        let block = |bytes_count| Block {
            bytes_count,
            ..Block::default()
        };
        let (ranges, blocks) = ([1, 2, 3].map(range), [1, 2, 3].map(block));
        let table = Indexed {
            bytes_count: 3,
            num_indices: 5,
            ..Indexed::default()
        };

        // SAFETY: The arrays are above, and have as many elements.
        unsafe {
            assert_eq!(length(&list(0, 3, ranges.as_ptr())), 6);
            let repeat = [4, 5];
            let layout = interleaved(0, 2, repeat.as_ptr(), 3, blocks.as_ptr());
            assert_eq!(length(&layout), 120);
            assert_eq!(length(&indexed(0, &table)), 15);
        }
    }

    #[test]
    fn an_error_of_the_call_comes_through() {
        let range = Range::default();

        // SAFETY: The layout has one range.
        let bound = unsafe { bind(-1, 0, &list(0, 1, &range)) };
        assert_eq!(bound, Err(Errno::EBADF));
        assert_eq!(unbind(-1, 0), Err(Errno::EBADF));
    }
}
