// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Finds the entry and the field for which the kernel refuses a layout. To do so, binds a key of
//! this module to parts of the layout.

use core::ffi::c_int;

use super::{
    Failed,
    Layout, //
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    indexed, mkey, object,
    sys::{
        self,
        ibmkey_range as Range, //
    },
};

/// The entry that the kernel refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Culprit {
    pub(super) at: usize,
    pub(super) why: Why,
}

/// The reason why an entry is refused, if the errno value has several meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The errno value has one meaning, or the most common one applies.
    Errno,
    /// This field leads outside the MR: "addr", "length", "bytes_count" or "stride". Empty if it
    /// is not known.
    Outside(&'static str),
    /// `ELOOP`: The entry's key may be a leaf, but the pieces of the layout are too small.
    Pieces,
    /// `EOPNOTSUPP`: The layout can be bound without the flag `IBV_ACCESS_FLUSH_PERSISTENT`.
    Flush,
}

/// A key for trial binds, which no program uses. Dropping this destroys it.
pub(super) struct Scratch {
    fd: c_int,
    handle: u32,
}

impl Scratch {
    /// Makes a key for `count` entries. Returns `None` if the kernel refuses that.
    pub(super) fn new(fd: c_int, pd: u32, count: u32) -> Option<Self> {
        let key = mkey::create(fd, pd, count.max(1)).ok()?;

        Some(Self {
            fd,
            handle: key.handle,
        })
    }

    /// Finds the entry for which the kernel refuses a layout with `errno`.
    pub(super) fn find(&self, failed: &Failed<'_>, errno: Errno) -> Option<Culprit> {
        let count = usize::try_from(failed.count).ok()?;
        let access = failed.access;
        let at = first_refused(count, errno, |count| self.bind(failed, access, count))?;
        let flush = sys::IBV_ACCESS_FLUSH_PERSISTENT;
        let why = match errno {
            Errno::ERANGE => Why::Outside(outside(&failed.layout, at, |range| {
                self.bind_range(range) == Err(errno)
            })),
            // One range of a key costs no more than the key itself.
            Errno::ELOOP if self.bind_range(first_byte(failed.lkey(at)?)) != Err(errno) => {
                Why::Pieces
            }
            Errno::EOPNOTSUPP
                if access & flush != 0
                    && self.bind(failed, access & !flush, at.saturating_add(1)) != Err(errno) =>
            {
                Why::Flush
            }
            _ => Why::Errno,
        };

        Some(Culprit { at, why })
    }

    /// Binds the key to one range, without access flags.
    fn bind_range(&self, range: Range) -> Result {
        let layout = mkey::describe_list(0, 1, core::ptr::from_ref(&range));

        mkey::bind(self.fd, self.handle, layout).map(drop)
    }

    /// Binds the key to the first `count` entries.
    fn bind(&self, failed: &Failed<'_>, access: u32, count: usize) -> Result {
        // CAST: `count` is at most the caller's count, which is a `u32`.
        let num = count as u32;

        match failed.layout {
            Layout::List(ranges) => {
                let layout = mkey::describe_list(access, num, ranges.as_ptr());
                mkey::bind(self.fd, self.handle, layout).map(drop)
            }
            Layout::Interleaved(repeat, blocks) => {
                let blocks: Vec<_> = blocks
                    .iter()
                    .take(count)
                    .map(|block| mkey::block_to_uapi(block, repeat.len()))
                    .collect();
                let (counts, at) = (repeat.as_ptr(), blocks.as_ptr());
                let layout = mkey::describe_interleaved(access, failed.dims, counts, num, at);
                mkey::bind(self.fd, self.handle, layout).map(drop)
            }
            Layout::Indexed(layout) => {
                let mut uapi = indexed::to_uapi(layout)?;
                uapi.num_indices = num;
                mkey::bind(self.fd, self.handle, indexed::describe(access, &uapi)).map(drop)
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Ignore an error: the kernel destroys the key when the file is closed.
        let _ = object::destroy(self.fd, self.handle);
    }
}

/// Returns the first byte of a key, whose addresses begin at 0.
fn first_byte(lkey: u32) -> Range {
    Range {
        addr: 0,
        length: 1,
        lkey,
        comp_mask: 0,
    }
}

/// Returns the first entry that the kernel refuses with `errno`, by bisection. `bind` binds the
/// first n entries, and fails with `errno` if that entry is among them.
pub(super) fn first_refused(
    count: usize,
    errno: Errno,
    mut bind: impl FnMut(usize) -> Result,
) -> Option<usize> {
    let mut refuses = |count| bind(count) == Err(errno);
    let (mut good, mut bad) = (0usize, count);

    if count == 0 || !refuses(count) {
        return None;
    }
    while bad.saturating_sub(good) > 1 {
        let middle = good.midpoint(bad);
        if refuses(middle) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    bad.checked_sub(1)
}

/// Returns the field of entry `at` that leads outside its MR. `is_outside` returns `true` if the
/// kernel refuses a list of one range with `ERANGE`.
pub(super) fn outside(
    layout: &Layout<'_>,
    at: usize,
    is_outside: impl Fn(Range) -> bool,
) -> &'static str {
    let (addr, bytes, lkey, name) = match layout {
        Layout::List(ranges) => match ranges.get(at) {
            Some(range) => (range.addr, range.length, range.lkey, "length"),
            None => return "",
        },
        Layout::Interleaved(_, blocks) => match blocks.get(at) {
            Some(block) => (block.addr, block.bytes_count, block.lkey, "bytes_count"),
            None => return "",
        },
        // An entry of an indexed layout is an index, which has no fields.
        Layout::Indexed(_) => return "",
    };
    let range = |length| Range {
        addr,
        length,
        lkey,
        comp_mask: 0,
    };

    if is_outside(range(1)) {
        "addr"
    } else if is_outside(range(bytes)) {
        name
    } else {
        "stride"
    }
}
