// SPDX-License-Identifier: GPL-2.0

//! Device memory.
//!
//! | file | what |
//! |---|---|
//! | `dm/class.rs` | the classes of memory and their names |
//! | `dm/pool.rs` | the memory that a device offers |
//! | `dm/show.rs` | the debugfs files that show pools and owners |
//!
//! A buffer consists of whole pages, so no two owners share a page. One of the driver's MRs, in a
//! protection domain that only this module uses, is over these pages. Users' MRs over the buffer
//! are layouts whose leaf is that MR. Atomics through any of them therefore serialise.

mod class;
mod pool;
pub(crate) mod show;

use class::Class;
pub(crate) use class::{ClassRequest, Offer};
pub(crate) use pool::OfferedMemory;

use crate::{
    backend::{rxe, BaseMr},
    bindings,
    kernel_ext::{
        dma_buf::{self, DmaBuf},
        memory::SharedMemory,
        rdma::{mr::NewMr, OwnedMr, Pd},
        user::User,
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

/// The most pages of one buffer. The driver keeps 16 bytes for each page in one allocation.
const MAX_PAGES: usize = 1 << 16;

/// The bytes of a buffer, and the charges for them. A dma-buf may keep them after the buffer was
/// freed.
pub(crate) struct Store {
    memory: SharedMemory,
    /// To the owner's share of all memory of the device.
    owner: OwnerCharge,
    /// To the owner's share of the source.
    share: OwnerCharge,
    _charge: Charge,
}

impl dma_buf::Backing for Store {
    type Charge = (OwnerCharge, OwnerCharge);

    fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn charge(&self, bytes: usize) -> Result<(OwnerCharge, OwnerCharge)> {
        let bytes = i64::try_from(bytes)?;
        Ok((self.owner.beside(bytes)?, self.share.beside(bytes)?))
    }
}

/// Checks that a dma-buf is not device memory that was freed since the export.
///
/// # Errors
///
/// `ENODEV` if it was freed.
pub(crate) fn check_dma_buf(buffer: &DmaBuf) -> Result {
    if dma_buf::Export::<Store>::is_revoked(buffer) {
        return Err(ENODEV);
    }
    Ok(())
}

/// A buffer of device memory.
// Fields drop in declaration order: the dma-buf's mappings and the MR drop before their memory.
pub(crate) struct Buffer {
    export: SetOnce<dma_buf::Export<Store>>,
    view: SetOnce<dma_buf::Export<Store>>,
    pub(crate) base: BaseMr,
    _region: OwnedMr,
    store: Arc<Store>,
    device: Arc<OfferedMemory>,
    class: Class,
}

impl Buffer {
    /// Allocates a buffer of `length` zeroed bytes for a user, or for the kernel without one. Its
    /// physical address is a multiple of `1 << log_align`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the length is 0 or exceeds 32 bits, and if the alignment exceeds that of the
    /// largest block of pages; `EOPNOTSUPP` for a class that the device does not offer; `ENOMEM`
    /// beyond a quota or without memory.
    pub(crate) fn new(
        pd: &Pd,
        device: &Arc<OfferedMemory>,
        (length, log_align): (u64, u32),
        class: ClassRequest,
        user: Option<User>,
    ) -> Result<Self> {
        if length == 0 || log_align > crate::kernel_ext::memory::MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        let length = usize::try_from(u32::try_from(length)?)?;
        let pages = SharedMemory::pages_of(length);
        if pages > MAX_PAGES {
            return Err(ENOMEM);
        }
        let pool = device.pool(class)?;
        let source = pool.find()?;
        let slack = source.source.slack(log_align)?;
        let bytes = pages.checked_mul(PAGE_SIZE).ok_or(ENOMEM)?;
        let bytes = i64::try_from(bytes.checked_add(slack).ok_or(ENOMEM)?)?;
        let charge = pool.charge(&source, bytes)?;
        let owner = Owners::charge(&device.owners, user, bytes)?;
        let share = Owners::charge(&source.shares, user, bytes)?;
        let memory = source.source.allocate(length, log_align)?;
        let store = Store {
            memory,
            owner,
            share,
            _charge: charge,
        };
        let store = Arc::new(store, GFP_KERNEL)?;
        // Nothing may fail once `base` is made: a failure would drop the MR before `base`, which
        // refers to the MR.
        // SAFETY: The buffer keeps the memory and the MR, which drops first. The result drops
        // before the MR. Its clones are in MRs over the buffer, whose user deregisters them before
        // it frees the buffer.
        let back = |new: NewMr<'_>| unsafe { rxe::back(new, &store.memory) };
        let (region, base) = OwnedMr::new(pd, u32::try_from(pages)?, back)?;
        Ok(Self {
            export: SetOnce::new(),
            view: SetOnce::new(),
            base,
            _region: region,
            store,
            device: device.clone(),
            class: pool.class(),
        })
    }

    /// Returns the number of its class, which `include/uapi/rdma/ib_mkey_ioctl.h` describes.
    pub(crate) fn class(&self) -> u64 {
        self.class.into_raw()
    }

    /// Returns the bytes.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.store.memory
    }

    /// Returns the buffer as a dma-buf, with a reference for the caller.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` if this module is being unloaded.
    pub(crate) fn export(&self) -> Result<*mut bindings::dma_buf> {
        self.once(&self.export, false)
    }

    /// Returns a view of the buffer, which a process maps to copy. The caller owns a reference to
    /// it.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::export`]; `EOPNOTSUPP` for memory of a PCI device.
    pub(crate) fn view(&self) -> Result<*mut bindings::dma_buf> {
        self.once(&self.view, true)
    }

    /// Returns the dma-buf in `place`, with a reference for the caller. The first call makes it.
    fn once(
        &self,
        place: &SetOnce<dma_buf::Export<Store>>,
        is_view: bool,
    ) -> Result<*mut bindings::dma_buf> {
        let _exporting = self.device.exporting.lock();
        if place.as_ref().is_none() {
            let (store, module) = (self.store.clone(), parameters::this_module()?);
            place.populate(dma_buf::Export::new(store, is_view, c"ib_mkey", module)?);
        }
        Ok(place.as_ref().ok_or(ENOMEM)?.get())
    }
}
