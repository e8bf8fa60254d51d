// SPDX-License-Identifier: GPL-2.0

//! A client's additions to the uverbs interface of a device: tables of objects and methods, and
//! attributes of the core's own methods.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use crate::bindings;
use core::{cell::UnsafeCell, marker::PhantomData, mem::MaybeUninit};
use kernel::prelude::*;

/// A table of uverbs definitions that is defined in C.
///
/// # Invariants
///
/// The pointer is to a static table that ends with an empty definition.
#[derive(Clone, Copy)]
pub(crate) struct Definitions(*const bindings::uapi_definition);

impl Definitions {
    /// # Safety
    ///
    /// `table` must be a static table that ends with an empty definition.
    pub(crate) const unsafe fn new(table: *const bindings::uapi_definition) -> Self {
        // INVARIANT: By the safety requirement.
        Self(table)
    }
}

/// Makes [`Definitions`] of `$table`, a C array in the bindings of a header. Like all such tables,
/// it ends with an empty definition.
macro_rules! uapi_definitions {
    ($table:path) => {
        // SAFETY: The array is static, and its end is an empty definition.
        unsafe { $crate::kernel_ext::rdma::uapi::Definitions::new((&raw const $table).cast()) }
    };
}
pub(crate) use uapi_definitions;

/// Room for a table that chains two others, for a device that has its own table.
pub(super) struct DefinitionChain(UnsafeCell<[bindings::uapi_definition; 3]>);

impl DefinitionChain {
    /// Makes an empty table.
    pub(super) const fn new() -> Self {
        // SAFETY: All-zero is a valid `uapi_definition`, the end of a table.
        Self(unsafe { MaybeUninit::zeroed().assume_init() })
    }

    /// Makes the table chain `first`, which is the device's own one or NULL, and `second`. Returns
    /// it.
    ///
    /// # Safety
    ///
    /// `first` must be NULL or a table that outlives this one. Nothing may use this table while it
    /// is filled in.
    pub(super) unsafe fn fill(
        &self,
        first: *const bindings::uapi_definition,
        second: Definitions,
    ) -> *const bindings::uapi_definition {
        if first.is_null() {
            return second.0;
        }
        let chain = self.0.get().cast();
        // SAFETY: The table has room for three. The rest is by the safety requirement.
        unsafe { bindings::uapi_def_chain(chain, first, second.0) };
        chain
    }
}

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
