// SPDX-License-Identifier: GPL-2.0

//! Memory of the host that devices access.

use super::HeldDevice;
use crate::{bindings, kernel_ext::sync::racing::copy_racing};
use core::ptr::NonNull;
use kernel::{dma::DataDirection, prelude::*, sync::Arc};

/// Devices read and write the memory.
const DIRECTION: DataDirection = DataDirection::Bidirectional;

/// Zeroed memory that is mapped for a device.
///
/// The device may read and write the memory at any time, so there is never a reference to its
/// bytes. A copy that runs while the device writes has old bytes, new bytes, or both.
///
/// # Invariants
///
/// `start`, `len` and `capacity` are the parts of a [`KVec`]. It is mapped for `device` at `addr`,
/// in both directions.
pub(crate) struct HostBuffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    addr: u64,
    device: HeldDevice,
}

// SAFETY: The memory is plain bytes. Any thread may copy them.
unsafe impl Send for HostBuffer {}
// SAFETY: As above.
unsafe impl Sync for HostBuffer {}

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
        let bytes = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        let raw = device.as_raw();
        let (start, len, capacity) = bytes.into_raw_parts();
        // SAFETY: The device is registered and the memory is valid.
        let (addr, failed) = unsafe {
            let addr = bindings::ib_dma_map_single(raw, start.cast(), len, DIRECTION.into());
            (addr, bindings::ib_dma_mapping_error(raw, addr) != 0)
        };
        if failed {
            // SAFETY: These are the parts of the vector above.
            drop(unsafe { KVec::from_raw_parts(start, len, capacity) });
            return Err(ENOMEM);
        }
        // INVARIANT: Allocated and mapped above.
        let this = Self {
            start: NonNull::new(start).ok_or(ENOMEM)?,
            len,
            capacity,
            addr,
            device: device.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the device for which the buffer is mapped.
    pub(super) fn device(&self) -> &HeldDevice {
        &self.device
    }

    /// Returns the DMA address of the first byte.
    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len {
            return Err(EINVAL);
        }
        // SAFETY: `offset` is at most the length of the allocation.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the buffer.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        let to = self.at(offset, bytes.len())?;
        let (raw, direction) = (self.device.as_raw(), DIRECTION.into());
        // SAFETY: The memory is mapped (type invariant) and `at()` checked the range. `bytes` does
        // not overlap it, because there is no reference to the buffer's memory.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(raw, self.addr, self.len, direction);
            copy_racing(to.as_ptr(), bytes.as_ptr(), bytes.len());
            bindings::ib_dma_sync_single_for_device(raw, self.addr, self.len, direction);
        }
        Ok(())
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is outside the buffer.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let from = self.at(offset, bytes.len())?;
        let (raw, direction) = (self.device.as_raw(), DIRECTION.into());
        // SAFETY: As for `write()`.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(raw, self.addr, self.len, direction);
            copy_racing(bytes.as_mut_ptr(), from.as_ptr(), bytes.len());
            bindings::ib_dma_sync_single_for_device(raw, self.addr, self.len, direction);
        }
        Ok(())
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. Work requests borrow the buffer and keys hold it, so none
        // of them refers to it now.
        unsafe {
            bindings::ib_dma_unmap_single(
                self.device.as_raw(),
                self.addr,
                self.len,
                DIRECTION.into(),
            );
            drop(KVec::from_raw_parts(
                self.start.as_ptr(),
                self.len,
                self.capacity,
            ));
        }
    }
}
