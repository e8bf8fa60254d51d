// SPDX-License-Identifier: GPL-2.0

//! Memory of a PCI device that its driver published for peers, such as an NVMe controller's
//! memory buffer.
//!
//! C header: [`include/linux/pci-p2pdma.h`](srctree/include/linux/pci-p2pdma.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{page::PAGE_SIZE, pci, prelude::*, sync::aref::ARef};

/// A PCI device. Its memory for peers is looked for only when some is allocated.
#[derive(Clone)]
pub(crate) struct Provider(ARef<pci::Device>);

impl Provider {
    /// Finds a device.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device, `EINVAL` for a domain of 2^31 or more.
    pub(crate) fn find(domain: u32, bus: u8, devfn: u8) -> Result<Self> {
        // SAFETY: No preconditions.
        let raw = unsafe {
            bindings::pci_get_domain_bus_and_slot(i32::try_from(domain)?, bus.into(), devfn.into())
        };
        let raw = NonNull::new(raw).ok_or(ENODEV)?;
        // SAFETY: The function took the reference. `pci::Device` is a transparent `pci_dev`.
        Ok(Self(unsafe { ARef::from_raw(raw.cast()) }))
    }

    fn as_raw(&self) -> *mut bindings::pci_dev {
        (&raw const *self.0).cast_mut().cast()
    }

    /// Returns the size of the BAR that contains the device's memory for peers. No more than that
    /// can be allocated.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has no such memory, or none that is free.
    pub(crate) fn size(&self) -> Result<u64> {
        let piece = self.allocate(PAGE_SIZE).map_err(|_| ENODEV)?;
        // SAFETY: The device is valid, and `piece` was allocated from its memory.
        Ok(unsafe { bindings::pci_p2pmem_bar_size(self.as_raw(), piece.start.as_ptr().cast()) })
    }

    /// Returns `true` if `client` can reach the memory by peer-to-peer DMA.
    ///
    /// # Safety
    ///
    /// `client` must be a device.
    pub(crate) unsafe fn is_reached_by(&self, client: *mut bindings::device) -> bool {
        // SAFETY: The device is valid, and `client` by the safety requirement.
        unsafe { bindings::pci_p2pdma_distance(self.as_raw(), client) >= 0 }
    }

    /// Allocates `bytes` bytes, which are not cleared.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn allocate(&self, bytes: usize) -> Result<P2pPiece> {
        // SAFETY: The device is valid.
        let start = unsafe { bindings::pci_alloc_p2pmem(self.as_raw(), bytes) };
        // INVARIANT: Allocated above.
        Ok(P2pPiece {
            provider: self.clone(),
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            bytes,
        })
    }
}

/// An allocation from a device's memory. While it exists, the driver stays bound to the device.
///
/// # Invariants
///
/// `start` is the first of `bytes` bytes that were allocated from the device.
pub(super) struct P2pPiece {
    provider: Provider,
    start: NonNull<u8>,
    bytes: usize,
}

impl P2pPiece {
    pub(super) fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for P2pPiece {
    fn drop(&mut self) {
        let (raw, start) = (self.provider.as_raw(), self.start.as_ptr().cast());
        // SAFETY: By the type invariant.
        unsafe { bindings::pci_free_p2pmem(raw, start, self.bytes) };
    }
}
