// SPDX-License-Identifier: GPL-2.0

//! Device memory.
//!
//! | file | what |
//! |---|---|
//! | `dm/class.rs` | where memory can be, and how it is named |
//! | `dm/pool.rs` | the memory that a device offers |
//! | `dm/show.rs` | all of that in debugfs |
//!
//! A buffer has whole pages of its own, so that no two owners share one, and a region of the
//! driver over them in a protection domain that nobody else has. Users' regions over the buffer
//! are layouts that end in that region; atomics through any of them serialise.

mod class;
mod pool;
pub(crate) mod show;

pub(crate) use class::{Offer, Wanted};
pub(crate) use pool::OfferedMemory;

use crate::{
    backend::{Backend, Hw},
    bindings,
    kernel_ext::{
        dma_buf::{self, DmaBuf},
        memory::SharedMemory,
        rdma::{OwnedMr, Pd},
    },
    limits::{
        account::Charge,
        owner::{OwnerCharge, Owners},
    },
    parameters,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SetOnce},
};

/// Pages of one buffer: the driver keeps 16 bytes for each in one allocation.
const MAX_PAGES: usize = 1 << 16;

/// What an allocation asks for.
pub(crate) struct DmRequest {
    /// Bytes.
    pub(crate) length: u64,
    /// Alignment of the physical address, as a power of two.
    pub(crate) log_align: u32,
    /// Which memory.
    pub(crate) class: Wanted,
    /// Is it for the process that runs, or else for a kernel user?
    pub(crate) for_process: bool,
}

/// The bytes of a buffer, and who pays for them. Who uses a buffer's dma-buf may keep them longer
/// than the buffer.
pub(crate) struct Store {
    memory: SharedMemory,
    _owner: OwnerCharge,
    _charge: Charge,
}

impl dma_buf::Backing for Store {
    fn memory(&self) -> &SharedMemory {
        &self.memory
    }
}

/// Looks whether a dma-buf is device memory that was freed since it was exported.
///
/// # Errors
///
/// `ENODEV` if it is.
pub(crate) fn check_dma_buf(buffer: &DmaBuf) -> Result {
    if dma_buf::Export::<Store>::is_revoked(buffer) {
        return Err(ENODEV);
    }
    Ok(())
}

/// A buffer of device memory.
// Fields are dropped in order: mappings and the region before the memory that they are over.
pub(crate) struct Buffer {
    export: SetOnce<dma_buf::Export<Store>>,
    pub(crate) base: <Hw as Backend>::Base,
    _region: OwnedMr,
    store: Arc<Store>,
    device: Arc<OfferedMemory>,
}

impl Buffer {
    /// Allocates a buffer of zeroed bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, for more than the core's 32-bit length can tell and for an alignment
    /// above that of the largest block of pages; `EOPNOTSUPP` for a class that the device does not
    /// offer; `ENOMEM` beyond a quota or without memory.
    pub(crate) fn new(
        hw: &Hw,
        pd: &Pd,
        device: &Arc<OfferedMemory>,
        request: &DmRequest,
    ) -> Result<Self> {
        if request.length == 0 || request.log_align > crate::kernel_ext::memory::MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        let length = usize::try_from(u32::try_from(request.length)?)?;
        let pages = SharedMemory::pages_of(length);
        if pages > MAX_PAGES {
            return Err(ENOMEM);
        }
        let bytes = i64::try_from(pages.checked_mul(PAGE_SIZE).ok_or(ENOMEM)?)?;
        let pool = device.pool(request.class)?;
        let charge = pool.charge(bytes)?;
        let owner = Owners::charge(&device.owners, request.for_process, bytes)?;
        let memory = pool.allocate(length, request.log_align)?;
        let store = Store {
            memory,
            _owner: owner,
            _charge: charge,
        };
        let store = Arc::new(store, GFP_KERNEL)?;
        let region = OwnedMr::new(pd, u32::try_from(pages)?)?;
        // Nothing fails from here on: the region would go before its reference.
        let base = hw.back(&region, &store.memory)?;
        Ok(Self {
            export: SetOnce::new(),
            base,
            _region: region,
            store,
            device: device.clone(),
        })
    }

    /// Returns the bytes.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.store.memory
    }

    /// Returns the buffer as a dma-buf, with a reference for the caller.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV` if this module is on its way out.
    pub(crate) fn export(&self) -> Result<*mut bindings::dma_buf> {
        let _exporting = self.device.exporting.lock();
        if self.export.as_ref().is_none() {
            let export =
                dma_buf::Export::new(self.store.clone(), c"ib_mkey", parameters::this_module()?)?;
            self.export.populate(export);
        }
        Ok(self.export.as_ref().ok_or(ENOMEM)?.get())
    }
}
