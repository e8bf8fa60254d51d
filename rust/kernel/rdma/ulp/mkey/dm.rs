// SPDX-License-Identifier: GPL-2.0

//! Device memory and MRs over it.

use crate::{
    bindings,
    kernel_ext::rdma::ulp::{pd::PdMr, Access, DevicePd, HeldDevice},
};
use core::{mem::MaybeUninit, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
};

/// A class of device memory. The administrator chooses the classes that a device offers.
#[derive(Clone, Copy)]
pub(crate) enum DmClass {
    /// The device's default class.
    Default,
    /// RAM, near the device.
    Host,
    /// RAM of this NUMA node, or of the first one that the device offers.
    Node(Option<u16>),
    /// Memory of the first PCI device that the device offers.
    P2p,
    /// The DAX device `/dev/pmemN`, or the first one that the device offers.
    Pmem(Option<u16>),
}

impl DmClass {
    /// Returns the class as `include/uapi/rdma/ib_mkey_ioctl.h` encodes it.
    fn into_raw(self) -> u64 {
        let (class, number) = match self {
            Self::Default => return 0,
            Self::Host => (
                bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_HOST,
                None,
            ),
            Self::Node(n) => (bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_NODE, n),
            Self::P2p => (
                bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_P2P,
                None,
            ),
            Self::Pmem(n) => (bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_PMEM, n),
        };
        u64::from(class) | number.map_or(0, |n| (u64::from(n) + 1) << 8)
    }
}

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
// SAFETY: As above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `len` zeroed bytes of `class`, at a physical address that is a multiple of `1 <<
    /// log_align`.
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
        class: DmClass,
    ) -> Result<Arc<Self>> {
        // SAFETY: All-zero is a valid `ib_dm_alloc_attr`: integers.
        let mut attr: bindings::ib_dm_alloc_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.length = len;
        attr.alignment = log_align;
        // SAFETY: The device is registered.
        let raw = from_err_ptr(unsafe {
            bindings::ib_alloc_dm_class(device.as_raw(), &attr, class.into_raw())
        })?;
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
        // SAFETY: By the type invariant; `bytes` is valid for reads of its length.
        to_result(unsafe {
            bindings::ib_memcpy_to_dm(
                self.raw.as_ptr(),
                offset,
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        })
    }

    /// Fills `bytes` from `offset` on. May be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the memory. Nothing is copied then.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result {
        // SAFETY: As for `write()`.
        to_result(unsafe {
            bindings::ib_memcpy_from_dm(
                bytes.as_mut_ptr().cast(),
                self.raw.as_ptr(),
                offset,
                bytes.len(),
            )
        })
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

/// An MR over device memory. Its first address is zero. Dropping it deregisters the
/// MR.
pub(crate) struct DmRegion {
    // Fields drop in declaration order: the MR before the memory.
    region: PdMr,
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
        // SAFETY: The domain and the memory are valid.
        let raw = unsafe {
            bindings::ib_reg_dm_mr(
                pd.as_raw(),
                memory.raw.as_ptr(),
                offset,
                len,
                access.into_raw() as c_int,
            )
        };
        // SAFETY: `ib_reg_dm_mr()` returned a new MR in the domain, or an error.
        let region = unsafe { PdMr::from_raw(raw, pd) }?;
        let this = Self {
            region,
            _memory: memory.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the protection domain.
    pub(in super::super) fn pd(&self) -> &DevicePd {
        self.region.pd()
    }

    /// Returns the local key.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// Returns the rkey.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}
