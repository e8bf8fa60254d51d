// SPDX-License-Identifier: GPL-2.0

//! Device memory and regions over it.

use super::{pd::Region, Access, HeldDevice, Pd};
use crate::bindings;
use core::{mem::MaybeUninit, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
};

/// Where device memory is to be; a device offers what its administrator lets it.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    /// What the device gives where nothing is asked for.
    Default,
    /// RAM, near the device.
    Host,
    /// The first of a kind that the device offers, or this one: RAM of a NUMA node.
    Node(Option<u16>),
    /// Memory of a PCI device, the first that the device offers.
    P2p,
    /// As for [`Self::Node`]: the DAX device `/dev/pmemN`.
    Pmem(Option<u16>),
}

impl Class {
    /// Returns what `include/uapi/rdma/ib_mkey_ioctl.h` has for it.
    fn into_raw(self) -> u32 {
        let which = |which: Option<u16>| which.map_or(0, |which| (u32::from(which) + 1) << 8);
        match self {
            Self::Default => 0,
            Self::Host => bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_HOST,
            Self::Node(n) => bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_NODE | which(n),
            Self::P2p => bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_P2P,
            Self::Pmem(n) => bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_PMEM | which(n),
        }
    }
}

/// Device memory, freed on drop.
///
/// # Invariants
///
/// The pointer came from `ib_alloc_dm()` of `_device`, and nobody else frees it.
pub(crate) struct DeviceMemory {
    raw: NonNull<bindings::ib_dm>,
    _device: HeldDevice,
}

// SAFETY: The functions on device memory may be called from any thread, at the same time.
unsafe impl Send for DeviceMemory {}
// SAFETY: As above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `len` bytes of `class`, at a physical address that is a multiple of
    /// `1 << log_align`. They are zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes or above 32 bits, `ENOMEM` also beyond a quota, `EOPNOTSUPP` where
    /// ib_mkey does not extend the device or the device does not offer the class.
    pub(crate) fn new(
        device: &HeldDevice,
        len: u64,
        log_align: u32,
        class: Class,
    ) -> Result<Arc<Self>> {
        // SAFETY: All-zero is a valid `ib_dm_alloc_attr`: integers.
        let mut attr: bindings::ib_dm_alloc_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.length = len;
        attr.alignment = log_align;
        attr.flags = class.into_raw();
        // SAFETY: The device is registered.
        let raw = from_err_ptr(unsafe { bindings::ib_alloc_dm(device.as_raw(), &attr) })?;
        // INVARIANT: As just allocated.
        let this = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _device: device.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Copies `bytes` to `offset`. In any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, with nothing copied.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result {
        // SAFETY: By the type invariant; `bytes` is valid for as many.
        to_result(unsafe {
            bindings::ib_memcpy_to_dm(
                self.raw.as_ptr(),
                offset,
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        })
    }

    /// Copies from `offset` to `bytes`. In any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, with nothing copied.
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
        // SAFETY: By the type invariant. Regions hold what they are over, so there is none.
        let ret = unsafe { bindings::ib_free_dm(self.raw.as_ptr()) };
        if ret != 0 {
            pr_err!("device memory cannot be freed: error {ret}\n");
        }
    }
}

/// A region over device memory, whose addresses start at zero. Deregistered on drop.
pub(crate) struct DmRegion {
    // Fields are dropped in order: the region before the memory.
    region: Region,
    _memory: Arc<DeviceMemory>,
}

impl DmRegion {
    /// Registers `len` bytes from `offset` on. Its keys work as soon as this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, for no bytes, or for memory of another device; `ENOMEM`.
    pub(crate) fn new(
        pd: &Arc<Pd>,
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
        // SAFETY: That made a new region in the domain, or failed.
        let region = unsafe { Region::from_raw(raw, pd) }?;
        let this = Self {
            region,
            _memory: memory.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the local key.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// Returns the remote key.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}
