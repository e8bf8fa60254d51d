// SPDX-License-Identifier: GPL-2.0

//! Memory of a PCI device that its driver published for peers, such as an NVMe controller's
//! memory buffer.
//!
//! C header: [`include/linux/pci-p2pdma.h`](srctree/include/linux/pci-p2pdma.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// A PCI device.
///
/// # Invariants
///
/// The pointer is a PCI device. A reference to it is held.
pub(crate) struct Provider(NonNull<bindings::pci_dev>);

// SAFETY: Any thread may use the device.
unsafe impl Send for Provider {}
// SAFETY: As above.
unsafe impl Sync for Provider {}

impl Provider {
    /// Finds a device. Its memory for peers is looked for only when some is allocated.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device, `EINVAL` for a domain of 2^31 or more, `ENOMEM`.
    pub(crate) fn find(domain: u32, bus: u8, devfn: u8) -> Result<Arc<Self>> {
        // SAFETY: No preconditions.
        let raw = unsafe {
            bindings::pci_get_domain_bus_and_slot(i32::try_from(domain)?, bus.into(), devfn.into())
        };
        // INVARIANT: The reference was taken above.
        let this = Self(NonNull::new(raw).ok_or(ENODEV)?);
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the size of the BAR that contains the device's memory for peers. No more than that
    /// can be allocated.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has no such memory, or none that is free.
    pub(crate) fn size(self: &Arc<Self>) -> Result<u64> {
        let piece = P2pPiece::new(self, PAGE_SIZE).map_err(|_| ENODEV)?;
        // SAFETY: By the type invariant; `piece` was allocated above.
        Ok(unsafe { bindings::pci_p2pmem_bar_size(self.0.as_ptr(), piece.start.as_ptr().cast()) })
    }

    /// Returns `true` if `client` can reach the memory by peer-to-peer DMA.
    ///
    /// # Safety
    ///
    /// `client` must be a device.
    pub(crate) unsafe fn is_reached_by(&self, client: *mut bindings::device) -> bool {
        // SAFETY: By the type invariant and the safety requirement.
        unsafe { bindings::pci_p2pdma_distance(self.0.as_ptr(), client) >= 0 }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::pci_dev_put(self.0.as_ptr()) };
    }
}

/// An allocation from a device's memory. While it exists, the driver stays bound to the device.
///
/// # Invariants
///
/// `start` is the first of `bytes` bytes that were allocated from the device.
pub(super) struct P2pPiece {
    provider: Arc<Provider>,
    pub(super) start: NonNull<u8>,
    bytes: usize,
}

impl P2pPiece {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(provider: &Arc<Provider>, bytes: usize) -> Result<Self> {
        // SAFETY: By the invariant of `Provider`.
        let start = unsafe { bindings::pci_alloc_p2pmem(provider.0.as_ptr(), bytes) };
        // INVARIANT: Allocated above.
        Ok(Self {
            provider: provider.clone(),
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            bytes,
        })
    }

    pub(super) fn provider(&self) -> &Provider {
        &self.provider
    }
}

impl Drop for P2pPiece {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe {
            bindings::pci_free_p2pmem(
                self.provider.0.as_ptr(),
                self.start.as_ptr().cast(),
                self.bytes,
            )
        };
    }
}
