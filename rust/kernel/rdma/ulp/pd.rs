// SPDX-License-Identifier: GPL-2.0

//! Protection domains, MRs in them, and memory of the host that devices access.

use super::HeldDevice;
use crate::{
    bindings,
    kernel_ext::{
        rdma::{Mr, OwnedMr, OwnedPd, Pd},
        sync::racing::copy_racing,
    },
};
use core::{ops::Deref, ptr::NonNull};
use kernel::{dma::DataDirection, error::from_err_ptr, prelude::*, sync::Arc};

/// A protection domain.
pub(crate) struct DevicePd {
    // Fields drop in declaration order: the domain before its device.
    pd: OwnedPd,
    device: HeldDevice,
}

impl DevicePd {
    /// Makes a protection domain.
    pub(crate) fn new(device: &HeldDevice) -> Result<Arc<Self>> {
        let pd = Self {
            pd: OwnedPd::new(device, super::NAME)?,
            device: device.clone(),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// Returns the device.
    pub(super) fn held_device(&self) -> &HeldDevice {
        &self.device
    }
}

impl Deref for DevicePd {
    type Target = Pd;

    fn deref(&self) -> &Pd {
        &self.pd
    }
}

/// An MR. Dropping it deregisters the MR.
pub(super) struct PdMr {
    // Fields drop in declaration order: the MR before its protection domain.
    mr: OwnedMr,
    pd: Arc<DevicePd>,
}

impl PdMr {
    /// Takes over the result of a function that makes an MR in `pd`.
    ///
    /// # Safety
    ///
    /// `raw` must be an error pointer or a new MR in `pd`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_mr, pd: &Arc<DevicePd>) -> Result<Self> {
        let raw = from_err_ptr(raw)?;
        Ok(Self {
            // INVARIANT: By the safety requirement a new MR, which has no other owner.
            mr: OwnedMr(NonNull::new(raw).ok_or(ENOMEM)?),
            pd: pd.clone(),
        })
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }
}

impl Deref for PdMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        &self.mr
    }
}

/// The remote side of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    /// The address. For device memory it is an offset.
    pub(crate) addr: u64,
    /// The rkey.
    pub(crate) rkey: u32,
}

/// Devices read and write the memory.
const DIRECTION: DataDirection = DataDirection::Bidirectional;

/// Memory of the host that is mapped for a device, zeroed at first.
///
/// The device may read and write the memory at any time, so there is never a reference to its
/// bytes. A copy that runs while the device writes has old bytes, new bytes, or both.
///
/// # Invariants
///
/// `memory` is mapped for `device` at `addr`, in both directions.
pub(crate) struct HostBuffer {
    memory: KVec<u8>,
    addr: u64,
    device: HeldDevice,
}

impl HostBuffer {
    /// Allocates `len` bytes and maps them for `device`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, `ENOMEM`.
    pub(crate) fn new(device: &HeldDevice, len: usize) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(EINVAL);
        }
        let mut memory = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        let start = memory.as_mut_ptr().cast();
        // SAFETY: The device is registered, and there are `len` bytes of memory.
        let addr = unsafe {
            let raw = device.as_raw();
            let addr = bindings::ib_dma_map_single(raw, start, len, DIRECTION.into());
            if bindings::ib_dma_mapping_error(raw, addr) != 0 {
                return Err(ENOMEM);
            }
            addr
        };
        // INVARIANT: Mapped above.
        let this = Self {
            memory,
            addr,
            device: device.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the device for which the buffer is mapped.
    pub(super) fn device(&self) -> &HeldDevice {
        &self.device
    }

    /// Returns the DMA address of the first byte.
    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the address of the first byte for the processor.
    pub(super) fn start(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Calls `copy` with the address of `len` bytes at `offset`, between a synchronisation for the
    /// processor and one for the device.
    pub(super) fn access(&self, offset: usize, len: usize, copy: impl FnOnce(*mut u8)) -> Result {
        self.sync_for_cpu(offset, len)?;
        // SAFETY: `offset` is in the memory.
        copy(unsafe { self.memory.as_ptr().cast_mut().add(offset) });
        self.sync_for_device(offset, len)
    }

    /// Returns the DMA address of `len` bytes at `offset`.
    fn range(&self, offset: usize, len: usize) -> Result<u64> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        Ok(self.addr + offset as u64)
    }

    /// Gives `len` bytes at `offset` to the processor, or to another device.
    pub(super) fn sync_for_cpu(&self, offset: usize, len: usize) -> Result {
        let (raw, addr) = (self.device.as_raw(), self.range(offset, len)?);
        // SAFETY: The bytes are mapped (type invariant).
        unsafe { bindings::ib_dma_sync_single_for_cpu(raw, addr, len, DIRECTION.into()) };
        Ok(())
    }

    /// Gives `len` bytes at `offset` back to the device.
    pub(super) fn sync_for_device(&self, offset: usize, len: usize) -> Result {
        let (raw, addr) = (self.device.as_raw(), self.range(offset, len)?);
        // SAFETY: The bytes are mapped (type invariant).
        unsafe { bindings::ib_dma_sync_single_for_device(raw, addr, len, DIRECTION.into()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the buffer.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        let len = bytes.len();
        // SAFETY: `to` is valid for `len` bytes. `bytes` does not overlap them, because there is no
        // reference to the buffer's memory.
        self.access(offset, len, |to| unsafe {
            copy_racing(to, bytes.as_ptr(), len)
        })
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the buffer.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let len = bytes.len();
        // SAFETY: `from` is valid for `len` bytes. `bytes` does not overlap them, because there is
        // no reference to the buffer's memory.
        self.access(offset, len, |from| unsafe {
            copy_racing(bytes.as_mut_ptr(), from, len)
        })
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let (raw, len) = (self.device.as_raw(), self.len());
        // SAFETY: The memory is mapped (type invariant). Work requests borrow the buffer or hold it,
        // and keys hold it, so none of them refers to it now.
        unsafe { bindings::ib_dma_unmap_single(raw, self.addr, len, DIRECTION.into()) };
    }
}
