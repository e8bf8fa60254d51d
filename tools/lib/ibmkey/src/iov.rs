// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One key over the memory of an iovec. The key owns the MRs under it.

use crate::{
    alloc,
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    ioctl::{
        Command,
        Plain, //
    },
    mkey::{
        self,
        Bound, //
    },
    object, owners, reason,
    sys::{
        self,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_sge as Entry, //
    },
};
use core::{
    ffi::c_int,
    mem::size_of,
    ptr::NonNull, //
};

/// `struct ib_uverbs_reg_mr`, without the data that a driver may add.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    response: u64,
    start: u64,
    length: u64,
    hca_va: u64,
    pd_handle: u32,
    access_flags: u32,
}

// SAFETY: The fields are integers in naturally aligned order, without padding.
unsafe impl Plain for Request {}

const _: () = assert!(size_of::<Request>() == size_of::<sys::ib_uverbs_reg_mr>());

/// Bytes of this process: the address of the first one, and the address after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// An MR that a key owns.
struct Leaf {
    range: Range,
    handle: u32,
    lkey: u32,
}

/// The MRs that a key owns, in the order of their addresses.
pub struct Leaves {
    fd: c_int,
    all: Vec<Leaf>,
}

impl Leaves {
    /// Registers each range. If one registration fails, no MR remains. Returns that range then.
    fn register(
        fd: c_int,
        pd_handle: u32,
        ranges: &[Range],
        access: u32,
    ) -> core::result::Result<Self, (Errno, Option<Range>)> {
        let mut leaves = Self {
            fd,
            all: with_room_for(ranges.len()).map_err(|errno| (errno, None))?,
        };

        for &range in ranges {
            // Dropping `leaves` deregisters the MRs before this one.
            let [handle, lkey, _] = register(fd, pd_handle, range.start, range.length(), access)
                .map_err(|errno| (errno, Some(range)))?;
            leaves.all.push(Leaf {
                range,
                handle,
                lkey,
            });
        }
        Ok(leaves)
    }

    /// Returns the lkey of the MR that contains `range`.
    fn lkey_of(&self, range: Range) -> Result<u32> {
        let after = self
            .all
            .partition_point(|leaf| leaf.range.start <= range.start);
        let leaf = after.checked_sub(1).and_then(|at| self.all.get(at));

        leaf.map(|leaf| leaf.lkey).ok_or(Errno::EINVAL)
    }

    /// Deregisters the MRs, the last one first. On an error, `self` keeps those that are still
    /// registered.
    fn deregister(&mut self) -> Result {
        while let Some(leaf) = self.all.pop() {
            object::destroy(self.fd, leaf.handle).inspect_err(|_| self.all.push(leaf))?;
        }
        Ok(())
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        // No key was bound to the MRs that are left here, so nothing refers to them and this
        // succeeds.
        let _ = self.deregister();
    }
}

/// Names the elements of an iovec in a range that could not be registered.
fn unregistered(iov: &[sys::iovec], errno: Errno, range: Option<Range>) -> Errno {
    let Some(range) = range else {
        return errno;
    };
    let is_within = |element: &sys::iovec| {
        let start = element.iov_base as u64;
        element.iov_len > 0 && range.start <= start && start < range.end
    };
    let which = match (
        iov.iter().position(is_within),
        iov.iter().rposition(is_within),
    ) {
        (Some(first), Some(last)) => format!("iov[{first}] to iov[{last}], "),
        _ => String::new(),
    };
    let words = match errno {
        Errno::EFAULT => "not mapped, or not writable while access allows writing",
        Errno::ENOMEM => "no memory, or more than RLIMIT_MEMLOCK would be locked",
        Errno::EINVAL => "the device refuses so much memory, or a flag of access",
        _ => "the kernel refused to register them",
    };
    say(
        errno,
        &format!(
            "{which}{} bytes from {:#x} on: {words}",
            range.length(),
            range.start
        ),
    )
}

fn with_room_for<T>(count: usize) -> Result<Vec<T>> {
    let mut items = Vec::new();

    items.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    Ok(items)
}

/// Registers memory. Returns the handle, the lkey and the rkey of the MR.
pub(crate) fn register(
    fd: c_int,
    pd_handle: u32,
    start: u64,
    length: u64,
    access_flags: u32,
) -> Result<[u32; 3]> {
    let mut response = [0u32; 3];
    let request = [Request {
        response: 0,
        start,
        length,
        hca_va: start,
        pd_handle,
        access_flags,
    }];

    Command::<3>::new(sys::UVERBS_OBJECT_DEVICE, sys::UVERBS_METHOD_INVOKE_WRITE)
        .slice(sys::UVERBS_ATTR_CORE_IN, &request)
        .out(sys::UVERBS_ATTR_CORE_OUT, &mut response)
        .u64(
            sys::UVERBS_ATTR_WRITE_CMD,
            sys::IB_USER_VERBS_CMD_REG_MR.into(),
        )
        .run(fd)?;

    Ok(response)
}

/// Access flags of peers, which use the rkey of a key and not those of the MRs under it.
const FOR_PEERS: u32 = sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_ATOMIC
    | sys::IBV_ACCESS_MW_BIND;

/// Returns the flags of the MRs under a key with the flags `access`.
///
/// An MR may have more bytes than the key. Without remote access flags, a peer that guesses the
/// rkey of the MR reaches none of its bytes. The key is zero-based in any case; the addresses of
/// the MRs are those of the process.
pub(crate) fn of_leaves(access: u32) -> u32 {
    access & !(FOR_PEERS | sys::IBV_ACCESS_ZERO_BASED)
}

/// Returns the bytes of an iovec as ranges, in the order of the iovec. Elements that continue each
/// other become one range. Empty elements are left out.
fn pieces(iov: &[sys::iovec]) -> Result<Vec<Range>> {
    let mut pieces: Vec<Range> = with_room_for(iov.len())?;

    for (at, element) in iov.iter().enumerate() {
        let start = element.iov_base as u64;
        let end = start.checked_add(element.iov_len as u64).ok_or_else(|| {
            let words = "iov_base + iov_len exceeds 64 bits";
            say(Errno::EOVERFLOW, &format!("iov[{at}].iov_len: {words}"))
        })?;
        if start == end {
            continue;
        }

        match pieces.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => pieces.push(Range { start, end }),
        }
    }
    if pieces.is_empty() {
        return Err(say(Errno::EINVAL, "no element of iov has bytes"));
    }
    Ok(pieces)
}

/// Returns the ranges to register: each page of `pieces` is in one range. A range begins and ends
/// with a byte of a piece.
fn to_register(pieces: &[Range], page_size: u64) -> Result<Vec<Range>> {
    let page_of = |address: u64| address.checked_div(page_size).unwrap_or(address);
    let mut sorted = with_room_for(pieces.len())?;
    sorted.extend_from_slice(pieces);
    sorted.sort_unstable_by_key(|range| range.start);

    let mut ranges: Vec<Range> = with_room_for(pieces.len())?;
    for piece in sorted {
        match ranges.last_mut() {
            // The piece begins in the last page of the range or in the page after it.
            Some(last)
                if page_of(piece.start)
                    <= page_of(last.end.saturating_sub(1)).saturating_add(1) =>
            {
                last.end = last.end.max(piece.end);
            }
            _ => ranges.push(piece),
        }
    }
    Ok(ranges)
}

pub(crate) fn page_size() -> u64 {
    // SAFETY: No requirements.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };

    u64::try_from(size).unwrap_or(4096)
}

/// Registers the memory of an iovec as one key; see `ibmkey_reg_iov()`.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn register_iov(
    pd: *mut sys::ibv_pd,
    iov: &[sys::iovec],
    access: u32,
) -> Result<*mut sys::ibv_mr> {
    let pieces = pieces(iov)?;
    let ranges = to_register(&pieces, page_size())?;
    let max_entries = u32::try_from(pieces.len()).map_err(|_| Errno::ENOSPC)?;

    // SAFETY: By the caller's promise. The array of the list is alive during the call.
    unsafe {
        register_ranges(pd, &ranges, access, max_entries, iov, |leaves, bind| {
            let mut list: Vec<Entry> = with_room_for(pieces.len())?;
            for &piece in &pieces {
                list.push(Entry {
                    addr: piece.start,
                    length: piece.length(),
                    lkey: leaves.lkey_of(piece)?,
                    comp_mask: 0,
                });
            }
            bind(&mkey::list(access, max_entries, list.as_ptr()))
        })
    }
}

/// Registers memory that repeats with a stride as one key; see `ibmkey_reg_strided()`. There are as
/// many strides as repetitions, and no more than a block has.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn register_strided(
    pd: *mut sys::ibv_pd,
    first: u64,
    bytes: u64,
    repeat_count: &[u64],
    stride: &[i64],
    access: u32,
) -> Result<*mut sys::ibv_mr> {
    let range = extent(first, bytes, repeat_count, stride)?;
    let mut block = Block {
        addr: first,
        bytes_count: bytes,
        ..Block::default()
    };
    for (to, from) in block.stride.iter_mut().zip(stride) {
        *to = *from;
    }

    // SAFETY: By the caller's promise. The arrays of the layout are alive during the call.
    unsafe {
        register_ranges(pd, &[range], access, 1, &[], |leaves, bind| {
            block.lkey = leaves.lkey_of(range)?;
            // CAST: There are at most 8 dimensions.
            let dims = repeat_count.len() as u32;
            bind(&mkey::interleaved(
                access,
                dims,
                repeat_count.as_ptr(),
                1,
                &block,
            ))
        })
    }
}

/// Returns the bytes from the lowest to the highest one of a block that repeats with strides.
fn extent(first: u64, bytes: u64, repeat_count: &[u64], stride: &[i64]) -> Result<Range> {
    let overflow = || {
        let reason = sys::IB_UVERBS_MKEY_REASON_ADDRESS;
        reason::refused(Errno::EOVERFLOW, &reason::of(reason), None)
    };
    let mut range = Range {
        start: first,
        end: first.checked_add(bytes).ok_or_else(overflow)?,
    };

    if bytes == 0 {
        return Err(say(Errno::EINVAL, "bytes is 0"));
    }
    for (dim, (count, stride)) in repeat_count.iter().zip(stride).enumerate() {
        let Some(last) = count.checked_sub(1) else {
            let reason = sys::IB_UVERBS_MKEY_REASON_NO_REPEAT;
            return Err(reason::invalid(reason, dim as u64));
        };
        let reach = last
            .checked_mul(stride.unsigned_abs())
            .ok_or_else(overflow)?;
        let moved = match *stride < 0 {
            true => range
                .start
                .checked_sub(reach)
                .map(|start| range.start = start),
            false => range.end.checked_add(reach).map(|end| range.end = end),
        };
        moved.ok_or_else(overflow)?;
    }
    Ok(range)
}

/// Registers ranges, and makes a key with room for `max_entries` that owns the MRs. `describe` binds
/// the key to a layout over them. `iov` is for the sentence about an error.
///
/// # Safety
///
/// `pd` is NULL or a protection domain. The arrays of the layout are alive while it is bound.
unsafe fn register_ranges(
    pd: *mut sys::ibv_pd,
    ranges: &[Range],
    access: u32,
    max_entries: u32,
    iov: &[sys::iovec],
    describe: impl FnOnce(&Leaves, &dyn Fn(&sys::ib_uverbs_mkey_bind) -> Result<Bound>) -> Result<Bound>,
) -> Result<*mut sys::ibv_mr> {
    let mut owned = None;

    // SAFETY: By the caller's promise.
    let mr = unsafe {
        object::new_mr(pd, |fd, pd_handle| {
            let leaves = Leaves::register(fd, pd_handle, ranges, of_leaves(access))
                .map_err(|(errno, range)| unregistered(iov, errno, range))?;
            // A key of no layout can have so many entries. Nothing else is wrong with the call.
            let no_room = |errno| match errno {
                Errno::EINVAL => Errno::ENOSPC,
                _ => errno,
            };
            let mut key = mkey::create(fd, pd_handle, max_entries, 0).map_err(no_room)?;
            let bound = describe(&leaves, &|layout| mkey::bind(fd, key.handle, layout));
            let bound = bound.inspect_err(|_| {
                // Nothing refers to a new key that is not bound, so this succeeds.
                let _ = object::destroy(fd, key.handle);
            })?;
            key.length = bound.length;
            owned = Some(leaves);
            Ok(key)
        })
    }?;

    if let Some(leaves) = owned {
        // SAFETY: `new_mr()` allocated `mr` as the first member of this structure. There is no
        // other reference.
        unsafe { (*mr.cast::<sys::verbs_mr>()).owned = Box::into_raw(Box::new(leaves)) };
    }
    Ok(mr)
}

/// Destroys a key or an MR, with what it owns; see `ibmkey_dereg()`.
///
/// # Safety
///
/// `mr` is NULL, came from `new_mr()`, or has an address. Unless this fails, there are no more
/// references to it.
pub(crate) unsafe fn deregister(mr: *mut sys::ibv_mr) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mr) }?;
    // SAFETY: `mr` is not NULL, because it has a handle. So it is an MR, by the caller's promise.
    unsafe {
        if let Some(owned) = owners::take(mr) {
            return alloc::deregister(mr, owned);
        }
        if !(*mr).addr.is_null() {
            let words = "mkey is an MR of ibv_reg_mr() and no key: ibv_dereg_mr() deregisters it";
            return Err(say(Errno::EINVAL, words));
        }
    }
    // SAFETY: `mr` is not NULL, because it has a handle. So it came from `new_mr()`, by the
    // caller's promise.
    let owned = unsafe { (*mr.cast::<sys::verbs_mr>()).owned };

    if let Some(mut leaves) = NonNull::new(owned) {
        // The leaves cannot be deregistered while the key is bound to them.
        let unbound = mkey::unbind(fd, handle)?;
        // SAFETY: The kernel has just unbound `mr`, so it is a key.
        unsafe { object::set_bound(mr, unbound) };
        // SAFETY: `register_iov()` made `leaves`, and `mr` has the only reference.
        unsafe { leaves.as_mut() }.deregister()?;
    }
    // SAFETY: By the caller's promise.
    unsafe { object::destroy_mr(mr) }?;
    if !owned.is_null() {
        // SAFETY: `register_iov()` made the box. `mr`, which had the only reference, was freed.
        drop(unsafe { Box::from_raw(owned) });
    }
    Ok(())
}

#[cfg(test)]
#[path = "iov_tests.rs"]
mod tests;
