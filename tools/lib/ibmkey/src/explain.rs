// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Explains in a sentence why a call failed. This module has the sentences about binds, which name
//! the entry and the field. `calls.rs` and `plain.rs` have the sentences about other calls.
//!
//! The kernel returns one errno value for a whole description. Most reasons can be seen in the
//! description. For the others, this module binds its own key to the first entries of the
//! description, and finds by bisection the first entry that the kernel refuses. The trial binds
//! happen only after an error.

pub(crate) mod calls;
pub(crate) mod plain;
mod search;

use core::{
    cell::RefCell,
    ffi::{
        c_char,
        c_int, //
    },
};
use std::ffi::CString;

use self::search::{
    Culprit,
    Scratch,
    Why, //
};
use crate::{
    errno::Errno,
    mkey, object,
    sys::{
        self,
        ibmkey_block as Block,
        ibmkey_indexed as Indexed,
        ibmkey_range as Range, //
    },
};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// A caller's description. If the caller's array cannot be read, the slice is empty.
#[derive(Clone, Copy)]
pub(crate) enum Layout<'a> {
    List(&'a [Range]),
    Interleaved(&'a [u64], &'a [Block]),
    Indexed(&'a Indexed),
}

/// A bind that failed.
#[derive(Clone, Copy)]
pub(crate) struct Failed<'a> {
    pub(crate) layout: Layout<'a>,
    pub(crate) access: u32,
    /// The number of entries, blocks or indices that the caller gave.
    pub(crate) count: u32,
    /// The number of dimensions that the caller gave.
    pub(crate) dims: u32,
}

/// The key that was not bound.
#[derive(Clone, Copy)]
struct Key {
    lkey: u32,
    /// `None` if the MR is not a key.
    max_entries: Option<u32>,
}

/// Returns the sentence for the last call that failed in this thread, or an empty one. It stays
/// valid until the next call that fails.
pub fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ref().map_or(c"".as_ptr(), |text| text.as_ptr()))
}

/// Returns the sentence of [`last`] as a `String`, for programs in Rust.
pub fn last_text() -> String {
    LAST.with_borrow(|last| {
        last.as_ref()
            .map_or_else(String::new, |text| text.to_string_lossy().into_owned())
    })
}

/// Stores the sentence for a bind of `mr` that failed with `errno`. The sentence begins with
/// `prefix`.
///
/// # Safety
///
/// `mr` is NULL or an MR. The memory that the description points to can be read.
pub(crate) unsafe fn keep(mr: *mut sys::ibv_mr, errno: Errno, failed: &Failed<'_>, prefix: &str) {
    // SAFETY: By the caller's promise.
    let text = match unsafe { object::mr_handle(mr) } {
        // SAFETY: `mr` is not NULL, because it has a handle. So it is an MR, by the caller's
        // promise.
        Ok((fd, handle)) => unsafe { sentence(mr, fd, handle, errno, failed) },
        Err(_) => "mkey is NULL".to_owned(),
    };
    store_sentence(&format!("{prefix}{text}"));
}

/// Stores `text` as the sentence of [`last`].
pub(crate) fn store_sentence(text: &str) {
    LAST.with_borrow_mut(|last| *last = CString::new(text).ok());
}

/// The file, the handles and the lkey of a key that was not bound.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) fd: c_int,
    pub(crate) handle: u32,
    /// The handle of the key's protection domain.
    pub(crate) pd: Option<u32>,
    pub(crate) lkey: u32,
}

/// Stores the sentence for a bind of the key `place` that failed with `errno`.
pub(crate) fn keep_place(place: Place, errno: Errno, failed: &Failed<'_>) {
    store_sentence(&place.sentence(errno, failed));
}

/// # Safety
///
/// `mr` is an MR, with this handle in the file `fd`. The memory that the description points to can
/// be read.
unsafe fn sentence(
    mr: *mut sys::ibv_mr,
    fd: c_int,
    handle: u32,
    errno: Errno,
    failed: &Failed<'_>,
) -> String {
    // SAFETY: By the caller's promise; the fields are not written.
    let (lkey, pd) = unsafe { ((*mr).lkey, (*mr).pd) };
    // SAFETY: An MR has a protection domain, whose handle is not written.
    let pd = unsafe { pd.as_ref() }.map(|pd| pd.handle);

    Place {
        fd,
        handle,
        pd,
        lkey,
    }
    .sentence(errno, failed)
}

impl Place {
    fn sentence(self, errno: Errno, failed: &Failed<'_>) -> String {
        let info = mkey::query(self.fd, self.handle, &mut [], &mut []).ok();
        let key = Key {
            lkey: self.lkey,
            max_entries: info.map(|info| info.max_entries),
        };

        explain(errno, failed, key, || {
            Scratch::new(self.fd, self.pd?, failed.count)?.find(failed, errno)
        })
    }
}

/// Returns the sentence. `find` finds the entry that the kernel refuses.
fn explain(
    errno: Errno,
    failed: &Failed<'_>,
    key: Key,
    find: impl FnOnce() -> Option<Culprit>,
) -> String {
    let many = failed.name();

    match errno.get() {
        libc::EINVAL if key.max_entries.is_none() => "mkey is not a key of ibmkey_alloc()".into(),
        libc::EINVAL => invalid(failed),
        libc::ENOSPC => format!(
            "num_{many} is {}, but the key was created for {} entries",
            failed.count,
            key.max_entries.unwrap_or(0)
        ),
        libc::EFAULT => failed.unreadable(),
        libc::EOVERFLOW => overflow(failed),
        libc::EBUSY => format!("{} mkey: {}", calls::BUSY, command(key.lkey)),
        libc::ENOMEM => calls::KEY_MEMORY.into(),
        libc::ENOENT | libc::ERANGE | libc::EACCES | libc::EOPNOTSUPP | libc::ELOOP => {
            match failed.own(key.lkey).or_else(find) {
                Some(culprit) => failed.refused(culprit, errno, key.lkey),
                // A trial bind works, because no key refers to the trial's key.
                None if errno.get() == libc::ELOOP => format!(
                    "a key in {many} leads back to mkey through other keys: {}",
                    command(key.lkey)
                ),
                None => format!("the device cannot bind these {many}"),
            }
        }
        _ => format!("the kernel refused the bind: {errno}"),
    }
}

impl Failed<'_> {
    /// Returns the name of the caller's array.
    fn name(&self) -> &'static str {
        match self.layout {
            Layout::List(_) => "ranges",
            Layout::Interleaved(..) => "blocks",
            Layout::Indexed(_) => "indices",
        }
    }

    /// Says which array cannot be read. A slice is empty if the caller's pointer is NULL.
    fn unreadable(&self) -> String {
        match self.layout {
            Layout::List([]) => "ranges is NULL".into(),
            Layout::Interleaved([], _) => "repeat_count is NULL".into(),
            Layout::Interleaved(_, []) => "blocks is NULL".into(),
            // This library copies the blocks before the kernel reads them.
            Layout::Interleaved(..) => "repeat_count cannot be read at its address".into(),
            Layout::Indexed(layout) if layout.indices32.is_null() => {
                "indices64 cannot be read at its address".into()
            }
            Layout::Indexed(_) => "indices32 cannot be read at its address".into(),
            Layout::List(_) => "ranges cannot be read at its address".into(),
        }
    }

    /// Returns the lkey of an entry.
    fn lkey(&self, at: usize) -> Option<u32> {
        match self.layout {
            Layout::List(ranges) => ranges.get(at).map(|range| range.lkey),
            Layout::Interleaved(_, blocks) => blocks.get(at).map(|block| block.lkey),
            Layout::Indexed(layout) => Some(layout.lkey),
        }
    }

    /// Returns the first entry that names the key itself.
    fn own(&self, lkey: u32) -> Option<Culprit> {
        (0..self.count as usize)
            .map_while(|at| self.lkey(at))
            .position(|leaf| leaf == lkey)
            .map(|at| Culprit {
                at,
                why: Why::Errno,
            })
    }

    /// Says which field of an entry leads outside its MR.
    fn outside(&self, entry: &str, at: usize, outside: &str, lkey: u32) -> String {
        let value = match (self.layout, outside) {
            (Layout::List(ranges), "addr") => ranges.get(at).map(|range| range.addr),
            (Layout::List(ranges), "length") => ranges.get(at).map(|range| range.length),
            (Layout::Interleaved(_, blocks), "addr") => blocks.get(at).map(|block| block.addr),
            (Layout::Interleaved(_, blocks), "bytes_count") => {
                blocks.get(at).map(|block| block.bytes_count)
            }
            _ => None,
        };

        match (value, outside) {
            (Some(addr), "addr") => {
                format!("{entry}.addr {addr:#x} is outside the MR of its lkey {lkey:#x}")
            }
            (Some(length), _) => {
                format!("{entry}.{outside} {length} reaches outside the MR of its lkey {lkey:#x}")
            }
            (None, "stride") => format!(
                "{entry}.stride, in a repetition, leads outside the MR of its lkey {lkey:#x}"
            ),
            (None, _) => format!("{entry} reaches outside the MR of its lkey {lkey:#x}"),
        }
    }

    /// Says why the kernel refuses an entry.
    fn refused(&self, culprit: Culprit, errno: Errno, own: u32) -> String {
        let at = culprit.at;
        let lkey = self.lkey(at).unwrap_or(0);
        let (entry, field) = match self.layout {
            // An indexed layout has one lkey, in the layout itself.
            Layout::Indexed(_) => (format!("indices[{at}]"), "lkey".to_owned()),
            _ => {
                let entry = format!("{}[{at}]", self.name());
                let field = format!("{entry}.lkey");
                (entry, field)
            }
        };

        match (errno.get(), culprit.why) {
            (_, Why::Outside(outside)) => self.outside(&entry, at, outside, lkey),
            (_, Why::Pieces) => format!(
                "with {field} {lkey:#x}, mkey would have more than 1048576 pieces of memory: let \
                 its blocks be whole pieces of the keys below it, or describe fewer levels of keys"
            ),
            (_, Why::Flush) => format!(
                "access has IBV_ACCESS_FLUSH_PERSISTENT, and the layout up to {entry} has an ODP \
                 MR, too many pieces, or too many bytes to flush"
            ),
            (libc::ENOENT, _) => {
                format!("{field} {lkey:#x} names no MR in the protection domain of mkey")
            }
            (libc::EACCES, _) => {
                format!(
                    "access {:#x} is more than the MR of {field} {lkey:#x} allows",
                    self.access
                )
            }
            (libc::ELOOP, _) if lkey == own => format!("{field} {lkey:#x} is mkey itself"),
            (libc::ELOOP, _) => format!("{field} {lkey:#x} is a key of too many levels"),
            _ => format!(
                "{field} {lkey:#x} names an MR that cannot be a leaf, or access {:#x} has a \
                          flag that the device lacks",
                self.access
            ),
        }
    }
}

/// Names the command that shows what refers to a key.
fn command(lkey: u32) -> String {
    format!("mkeyctl who DEVICE {lkey:#x} shows which")
}

/// Says what is invalid.
fn invalid(failed: &Failed<'_>) -> String {
    let many = failed.name();
    let remote = sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;

    if failed.count == 0 {
        return format!("num_{many} is 0");
    }
    if failed.access & remote != 0 && failed.access & sys::IBV_ACCESS_LOCAL_WRITE == 0 {
        return "access has IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without \
                IBV_ACCESS_LOCAL_WRITE"
            .into();
    }
    let found = match failed.layout {
        Layout::List(ranges) => invalid_range(ranges),
        Layout::Interleaved(repeat, blocks) => invalid_blocks(failed.dims, repeat, blocks),
        Layout::Indexed(layout) => invalid_indexed(layout),
    };

    found.unwrap_or_else(|| {
        format!(
            "access {:#x} has a flag that a key cannot have",
            failed.access
        )
    })
}

fn invalid_range(ranges: &[Range]) -> Option<String> {
    ranges.iter().enumerate().find_map(|(at, range)| {
        if range.comp_mask != 0 {
            Some(format!("ranges[{at}].comp_mask is not 0"))
        } else if range.length == 0 {
            Some(format!("ranges[{at}].length is 0"))
        } else {
            None
        }
    })
}

fn invalid_blocks(dims: u32, repeat: &[u64], blocks: &[Block]) -> Option<String> {
    let most = sys::IBMKEY_MAX_DIMS;

    if dims == 0 || dims > most {
        return Some(format!("num_dims is {dims}, not 1 to {most}"));
    }
    if let Some(at) = repeat.iter().position(|&count| count == 0) {
        return Some(format!("repeat_count[{at}] is 0"));
    }
    blocks.iter().enumerate().find_map(|(at, block)| {
        if block.comp_mask != 0 {
            Some(format!("blocks[{at}].comp_mask is not 0"))
        } else if block.bytes_count == 0 {
            Some(format!("blocks[{at}].bytes_count is 0"))
        } else {
            None
        }
    })
}

fn invalid_indexed(layout: &Indexed) -> Option<String> {
    let what = if layout.comp_mask != 0 {
        "comp_mask is not 0"
    } else if layout.indices32.is_null() == layout.indices64.is_null() {
        "one of indices32 and indices64 must be NULL, and the other not"
    } else if layout.unit == 0 {
        "unit is 0"
    } else if layout.bytes_count == 0 {
        "bytes_count is 0"
    } else {
        return None;
    };

    Some(what.to_owned())
}

/// Says what does not fit 64 bits.
fn overflow(failed: &Failed<'_>) -> String {
    const END: i128 = 1 << 64;
    let too_far = match failed.layout {
        Layout::List(ranges) => ranges
            .iter()
            .position(|range| range.addr.checked_add(range.length).is_none()),
        Layout::Interleaved(repeat, blocks) => blocks.iter().position(|block| {
            let start = i128::from(block.addr);
            let mut low = start;
            let mut high = start.saturating_add(block.bytes_count.into());
            for (&count, &stride) in repeat.iter().zip(&block.stride) {
                let last = i128::from(count).saturating_sub(1);
                let reach = last.saturating_mul(stride.into());
                low = low.saturating_add(reach.min(0));
                high = high.saturating_add(reach.max(0));
            }
            low < 0 || high > END
        }),
        Layout::Indexed(_) => None,
    };

    match (too_far, failed.layout) {
        (Some(at), Layout::List(_)) => format!("ranges[{at}]: addr + length exceeds 64 bits"),
        (Some(at), _) => format!("blocks[{at}]: its strides lead to addresses beyond 64 bits"),
        (None, Layout::Indexed(_)) => {
            "an address or the length of the layout exceeds 64 bits: see addr, unit and the indices"
                .into()
        }
        (None, _) => "the length of the layout exceeds 64 bits".into(),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
#[path = "explain_tests.rs"]
mod tests;
