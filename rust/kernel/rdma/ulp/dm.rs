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

/// The pages of a part of device memory.
///
/// # Invariants
///
/// `ib_dm_to_sgt()` made the table, and its memory exists.
pub(super) struct DmPages(bindings::sg_table);

// SAFETY: The table is only read, and any thread may free it.
unsafe impl Send for DmPages {}
// SAFETY: Any thread may read the table, also several at once.
unsafe impl Sync for DmPages {}

impl DmPages {
    /// Returns the first entry of the table.
    pub(super) fn as_raw(&self) -> *mut bindings::scatterlist {
        self.0.sgl
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> u32 {
        self.0.orig_nents
    }

    /// Returns `true` for RAM.
    pub(super) fn is_ram(&self) -> bool {
        // SAFETY: By the type invariant, the table has an entry.
        unsafe { bindings::sg_is_ram(self.0.sgl) }
    }
}

impl Drop for DmPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; only this frees the table.
        unsafe { bindings::sg_free_table(&mut self.0) };
    }
}

/// An MR over device memory. Its first address is zero. Dropping it deregisters the MR.
pub(crate) struct DmRegion {
    // Fields drop in declaration order: the MR and the table before the memory.
    mr: PdMr,
    len: u64,
    pages: Option<DmPages>,
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
        let this = Self::register(pd, memory, offset, len, access)?;
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Registers as [`Self::new`] does. Block devices can access the memory, too.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::new`], `EINVAL` also for no bytes.
    pub(crate) fn with_pages(
        pd: &Arc<DevicePd>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>> {
        let mut this = Self::register(pd, memory, offset, len, access)?;
        let mut table = bindings::sg_table::default();
        // SAFETY: The memory is valid.
        to_result(unsafe { bindings::ib_dm_to_sgt(memory.raw.as_ptr(), offset, len, &mut table) })?;
        // INVARIANT: Made above, and `_memory` keeps the memory.
        this.pages = Some(DmPages(table));
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn register(
        pd: &Arc<DevicePd>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Self> {
        let (dm, access) = (memory.raw.as_ptr(), access.into_raw() as c_int);
        // SAFETY: The domain and the memory are valid. `ib_reg_dm_mr()` returns a new MR in the
        // domain, or an error.
        let mr = unsafe {
            PdMr::from_raw(
                bindings::ib_reg_dm_mr(pd.as_raw(), dm, offset, len, access),
                pd,
            )
        }?;
        Ok(Self {
            mr,
            len,
            pages: None,
            _memory: memory.clone(),
        })
    }

    /// Returns the rkey.
    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    pub(super) fn mr(&self) -> &PdMr {
        &self.mr
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the pages, if block devices can access the memory.
    pub(super) fn pages(&self) -> Option<&DmPages> {
        self.pages.as_ref()
    }
}
