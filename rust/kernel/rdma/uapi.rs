// SPDX-License-Identifier: GPL-2.0

//! Additions to the uverbs interface of a device: attributes of the core's own methods.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use crate::bindings;
use core::marker::PhantomData;
use kernel::prelude::*;

/// The attributes of a method that a process calls.
pub(crate) struct Attrs<'a> {
    raw: *mut bindings::uverbs_attr_bundle,
    _bundle: PhantomData<&'a bindings::uverbs_attr_bundle>,
}

impl Attrs<'_> {
    /// # Safety
    ///
    /// `raw` must be the attributes of a method, valid as long as the result exists.
    pub(super) unsafe fn from_raw(raw: *mut bindings::uverbs_attr_bundle) -> Self {
        Self {
            raw,
            _bundle: PhantomData,
        }
    }

    /// Returns the 64-bit number in the attribute `id`; [`None`] if the process does not pass it.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that cannot be read, `EINVAL` for a larger attribute.
    pub(crate) fn get_u64(&self, id: u32) -> Result<Option<u64>> {
        let mut value = 0;
        // SAFETY: `from_raw()` required that the bundle is valid as long as `self`.
        unsafe {
            if !bindings::uverbs_attr_is_valid(self.raw, id) {
                return Ok(None);
            }
            kernel::error::to_result(bindings::uverbs_copy_u64(&mut value, self.raw, id))?;
        }
        Ok(Some(value))
    }
}
