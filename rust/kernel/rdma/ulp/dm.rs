// SPDX-License-Identifier: GPL-2.0

//! Device memory and MRs over it.

use super::{pd::PdMr, Access, DevicePd, HeldDevice};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
};

/// Device memory. Dropping it frees the memory.
///
/// # Invariants
///
/// The pointer came from `ib_alloc_dm_class()` of `_device`, and only this frees it.
pub(crate) struct DeviceMemory {
    raw: NonNull<bindings::ib_dm>,
    _device: HeldDevice,
}

// SAFETY: Any thread may call the functions on device memory, concurrently.
unsafe impl Send for DeviceMemory {}
// SAFETY: Any thread may call the functions on device memory, also several at once.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `len` zeroed bytes, at a physical address that is a multiple of `1 << log_align`.
    /// `class` is the number that `ib_alloc_dm_class()` takes, or 0 for the default class.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, for 2^32 bytes or more, and for an alignment above that of the page
    /// allocator's largest block; `ENOMEM` also beyond a quota; `EOPNOTSUPP` if ib_mkey does not
    /// extend the device, or if the device or the machine lacks the class; `EBUSY` if another user
    /// has the persistent memory open.
    pub(crate) fn new(
        device: &HeldDevice,
        len: u64,
        log_align: u32,
        class: u64,
    ) -> Result<Arc<Self>> {
        let attr = bindings::ib_dm_alloc_attr {
            length: len,
            alignment: log_align,
            ..pin_init::zeroed()
        };
        // SAFETY: The device is registered.
        let raw = unsafe { bindings::ib_alloc_dm_class(device.as_raw(), &attr, class) };
        let raw = from_err_ptr(raw)?;
        // INVARIANT: Allocated above.
        let this = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _device: device.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Copies `bytes` to `offset`. May be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory. Nothing is copied then.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result {
        let (raw, from) = (self.raw.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: By the type invariant; `bytes` is valid for reads of its length.
        to_result(unsafe { bindings::ib_memcpy_to_dm(raw, offset, from, bytes.len()) })
    }

    /// Fills `bytes` from `offset` on. May be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory. Nothing is copied then.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result {
        let (raw, to) = (self.raw.as_ptr(), bytes.as_mut_ptr().cast());
        // SAFETY: By the type invariant; `bytes` is valid for writes of its length.
        to_result(unsafe { bindings::ib_memcpy_from_dm(to, raw, offset, bytes.len()) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. An MR holds its memory, so there is no MR over it.
        let ret = unsafe { bindings::ib_free_dm(self.raw.as_ptr()) };
        if ret != 0 {
            pr_err!("device memory cannot be freed: error {ret}\n");
        }
    }
}

/// An MR over device memory. Its first address is zero. Dropping it deregisters the MR.
pub(crate) struct DmRegion {
    // Fields drop in declaration order: the MR before the memory.
    mr: PdMr,
    _memory: Arc<DeviceMemory>,
}

impl DmRegion {
    /// Registers `len` bytes from `offset` on. The lkey and the rkey are valid when this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a range outside the memory, memory of another device or invalid access flags;
    /// `EOPNOTSUPP` for access flags that the memory does not support; `ENOMEM`.
    pub(crate) fn new(
        pd: &Arc<DevicePd>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>> {
        let (dm, access) = (memory.raw.as_ptr(), access.into_raw() as c_int);
        // SAFETY: The domain and the memory are valid. `ib_reg_dm_mr()` returns a new MR in the
        // domain, or an error.
        let mr = unsafe {
            PdMr::from_raw(
                bindings::ib_reg_dm_mr(pd.as_raw(), dm, offset, len, access),
                pd,
            )
        }?;
        let this = Self {
            mr,
            _memory: memory.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the rkey.
    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    pub(super) fn mr(&self) -> &PdMr {
        &self.mr
    }
}
