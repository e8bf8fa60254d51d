// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One key over the memory of an iovec. The key owns the MRs under it.

use core::{
    ffi::c_int,
    mem::size_of,
    ptr::NonNull, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::{
        Command,
        Plain, //
    },
    mkey::{
        self,
        Array, //
    },
    object,
    sys::{
        self,
        ibmkey_range as Entry, //
    },
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
    /// Registers each range. If one registration fails, no MR remains.
    fn register(fd: c_int, pd_handle: u32, ranges: &[Range], access: u32) -> Result<Self> {
        let mut leaves = Self {
            fd,
            all: with_room_for(ranges.len())?,
        };

        for &range in ranges {
            // Dropping `leaves` deregisters the MRs before this one.
            let [handle, lkey, _] = register(fd, pd_handle, range.start, range.length(), access)?;
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

/// Returns the first element that ends after the last address.
pub(crate) fn too_far(iov: &[sys::iovec]) -> Option<usize> {
    iov.iter().position(|element| {
        (element.iov_base as u64)
            .checked_add(element.iov_len as u64)
            .is_none()
    })
}

/// Returns the first element whose memory the kernel refuses to register with `errno`, with its
/// number. Registers the elements one by one, and deregisters them.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn first_refused(
    pd: *mut sys::ibv_pd,
    iov: &[sys::iovec],
    access: u32,
    errno: Errno,
) -> Option<(usize, &sys::iovec)> {
    // SAFETY: By the caller's promise. The fields are not written after the allocation.
    let (context, pd_handle) = unsafe { pd.as_ref().map(|pd| (pd.context, pd.handle)) }?;
    // SAFETY: A protection domain's context stays open as long as the domain exists.
    let fd = unsafe { object::cmd_fd(context) }.ok()?;
    let access = of_leaves(access);

    iov.iter().enumerate().find(|(_, element)| {
        let (start, length) = (element.iov_base as u64, element.iov_len as u64);
        if length == 0 {
            return false;
        }
        match register(fd, pd_handle, start, length, access) {
            Ok([handle, _, _]) => {
                // Ignore an error: the kernel destroys the MR when the file is closed.
                let _ = object::destroy(fd, handle);
                false
            }
            Err(found) => found == errno,
        }
    })
}

/// Returns the bytes of an iovec as ranges, in the order of the iovec. Elements that continue each
/// other become one range. Empty elements are left out.
fn pieces(iov: &[sys::iovec]) -> Result<Vec<Range>> {
    let mut pieces: Vec<Range> = with_room_for(iov.len())?;

    for element in iov.iter().filter(|element| element.iov_len > 0) {
        let start = element.iov_base as u64;
        let end = start
            .checked_add(element.iov_len as u64)
            .ok_or(Errno::EOVERFLOW)?;

        match pieces.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => pieces.push(Range { start, end }),
        }
    }
    if pieces.is_empty() {
        return Err(Errno::EINVAL);
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
    let mut owned = None;

    // SAFETY: By the caller's promise.
    let mr = unsafe {
        object::new_mr(pd, |fd, pd_handle| {
            let leaves = Leaves::register(fd, pd_handle, &ranges, of_leaves(access))?;
            let mut list: Vec<Entry> = with_room_for(pieces.len())?;
            for &piece in &pieces {
                list.push(Entry {
                    addr: piece.start,
                    length: piece.length(),
                    lkey: leaves.lkey_of(piece)?,
                    comp_mask: 0,
                });
            }

            let mut key = mkey::create(fd, pd_handle, max_entries)?;
            let bound = mkey::bind_list(fd, key.handle, access, Array::from_slice(&list));
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

/// Destroys a key and the MRs that it owns; see `ibmkey_dereg()`.
///
/// # Safety
///
/// `mr` is NULL or came from `new_mr()`. Unless this fails, there are no more references to it.
pub(crate) unsafe fn deregister(mr: *mut sys::ibv_mr) -> Result {
    // SAFETY: By the caller's promise.
    let (fd, handle) = unsafe { object::mr_handle(mr) }?;
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
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    fn element(start: u64, length: usize) -> sys::iovec {
        sys::iovec {
            iov_base: start as *mut core::ffi::c_void,
            iov_len: length,
        }
    }

    #[test]
    fn elements_that_continue_each_other_are_one_piece() {
        let iov = [
            element(100, 10),
            element(110, 5),
            element(0, 0),
            element(115, 1),
            element(90, 10),
            element(100, 10),
        ];

        assert_eq!(pieces(&iov), Ok(vec![range(100, 116), range(90, 110)]));
        assert_eq!(pieces(&[]), Err(Errno::EINVAL));
        assert_eq!(pieces(&[element(100, 0)]), Err(Errno::EINVAL));
        assert_eq!(pieces(&[element(u64::MAX, 1)]), Err(Errno::EOVERFLOW));
        assert_eq!(pieces(&[element(100, usize::MAX)]), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn each_page_is_registered_once() {
        let ranges = |pieces: &[Range]| to_register(pieces, 100);

        // Pieces in one page, in two pages that follow each other, and in pages with another page
        // between.
        assert_eq!(
            ranges(&[range(150, 160), range(110, 120)]),
            Ok(vec![range(110, 160)])
        );
        assert_eq!(
            ranges(&[range(110, 120), range(299, 300)]),
            Ok(vec![range(110, 300)])
        );
        assert_eq!(
            ranges(&[range(300, 301), range(110, 200)]),
            Ok(vec![range(110, 200), range(300, 301)])
        );
        // A piece within another one, and two equal pieces.
        assert_eq!(
            ranges(&[
                range(100, 900),
                range(200, 300),
                range(100, 900),
                range(1001, 1002)
            ]),
            Ok(vec![range(100, 900), range(1001, 1002)])
        );
        assert_eq!(
            ranges(&[range(u64::MAX - 9, u64::MAX)]),
            Ok(vec![range(u64::MAX - 9, u64::MAX)])
        );
    }

    #[test]
    fn peers_have_no_rights_to_the_mrs_of_a_key() {
        let local = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_RELAXED_ORDERING;

        assert_eq!(of_leaves(local), local);
        assert_eq!(
            of_leaves(local | FOR_PEERS | sys::IBV_ACCESS_ZERO_BASED),
            local
        );
    }

    #[test]
    fn a_piece_finds_its_mr() {
        let leaf = |start, end, lkey| Leaf {
            range: range(start, end),
            handle: 0,
            lkey,
        };
        // Do not drop the leaves: there is no device from which they could be deregistered.
        let leaves = core::mem::ManuallyDrop::new(Leaves {
            fd: -1,
            all: vec![leaf(100, 200, 1), leaf(400, 500, 2)],
        });

        assert_eq!(leaves.lkey_of(range(100, 150)), Ok(1));
        assert_eq!(leaves.lkey_of(range(199, 200)), Ok(1));
        assert_eq!(leaves.lkey_of(range(400, 500)), Ok(2));
        assert_eq!(leaves.lkey_of(range(99, 100)), Err(Errno::EINVAL));
    }

    #[test]
    fn an_error_of_a_registration_comes_through() {
        let result = Leaves::register(-1, 0, &[range(100, 200)], 0);

        assert_eq!(result.map(|_| ()), Err(Errno::EBADF));
    }
}
