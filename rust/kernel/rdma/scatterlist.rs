// SPDX-License-Identifier: GPL-2.0

//! Scatterlists that are mapped for a device.
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

use crate::bindings;
use core::{marker::PhantomData, ptr};
use kernel::{
    ffi::{c_int, c_uint},
    prelude::*,
};

/// The elements of a scatterlist that is mapped for a device. Each has an address and a length.
///
/// # Invariants
///
/// `next` is null, or the first of at least `left` elements, or `left` is zero.
#[derive(Clone)]
pub(crate) struct Elements<'a> {
    next: *mut bindings::scatterlist,
    left: usize,
    /// Bytes of the first element to skip.
    offset: c_uint,
    _list: PhantomData<&'a bindings::scatterlist>,
}

impl Elements<'_> {
    /// # Safety
    ///
    /// `list` must have `nents` elements that stay as long as the result exists. `offset` must be
    /// valid for reads, or NULL.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative number.
    pub(super) unsafe fn new(
        list: *mut bindings::scatterlist,
        nents: c_int,
        offset: *const c_uint,
    ) -> Result<Self> {
        let left = usize::try_from(nents).map_err(|_| EINVAL)?;
        // INVARIANT: By the safety requirement.
        Ok(Self {
            next: if left == 0 { ptr::null_mut() } else { list },
            left,
            // SAFETY: By the safety requirement.
            offset: unsafe { offset.as_ref() }.copied().unwrap_or(0),
            _list: PhantomData,
        })
    }
}

impl Iterator for Elements<'_> {
    type Item = (u64, u64);

    /// Returns elements of zero bytes, too, and a first element that is skipped completely.
    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 || self.next.is_null() {
            return None;
        }
        // SAFETY: By the type invariant; the caller of the verb mapped the list.
        // INVARIANT: One element less is left after the next one.
        let (addr, len) = unsafe {
            let element = self.next;
            self.next = bindings::sg_next(element);
            (
                bindings::sg_dma_address(element),
                bindings::sg_dma_len(element),
            )
        };
        self.left -= 1;
        let offset = core::mem::take(&mut self.offset);
        Some((
            addr.wrapping_add(offset.into()),
            len.saturating_sub(offset).into(),
        ))
    }
}

/// The result of mapping a scatterlist.
pub(crate) struct MappedElements {
    /// The number of leading elements that were mapped.
    pub(crate) count: usize,
    /// Address of the first byte.
    pub(crate) start: u64,
    /// Number of bytes.
    pub(crate) length: u64,
}
