// SPDX-License-Identifier: GPL-2.0

//! The interface between a backend and the rest of the module.

use crate::{
    backend::{
        copy::{Fault, Payload},
        pins::{NoDereg, Unpinned},
    },
    bindings::ib_uverbs_mkey_refused_access as RefusedAccess,
    kernel_ext::{
        dma_buf::Import,
        memory::SharedMemory,
        rdma::{
            device::NewDevice, driver::DriverOps, mr::NewMr, pd::UserContext, table::Operations,
            Access, Device, Mr, Pd,
        },
        user::User,
    },
    layout::Segment,
};
use core::ops::Deref;
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// A range of addresses of an MR.
#[derive(Clone, Copy)]
pub(crate) struct MrRange {
    /// The first address.
    pub(crate) start: u64,
    /// The length in bytes.
    pub(crate) len: u64,
}

impl MrRange {
    /// Returns `true` if `length` bytes from `iova` on are in the range.
    #[inline]
    pub(crate) fn contains(&self, iova: u64, length: u64) -> bool {
        length <= self.len && iova.wrapping_sub(self.start) <= self.len - length
    }
}

/// The MR that an lkey names.
pub(crate) enum LookedUp<'a, B, C> {
    /// One of the driver's MRs.
    Memory {
        /// The MR.
        base: B,
        /// Its first address.
        start: u64,
        /// Its length in bytes; 0 if it is not registered now.
        len: u64,
        /// Its current access flags.
        access: Access,
    },
    /// An MR of this module.
    Own(&'a C),
    /// An MR that cannot be a leaf.
    Unfit,
}

/// A memory window that is bound to a claimed MR.
pub(crate) struct ShownWindow {
    /// The rkey of the window.
    pub(crate) rkey: u32,
    /// The lkey of the MR.
    pub(crate) lkey: u32,
    /// The length in bytes.
    pub(crate) length: u64,
}

/// The type of the objects in the slots of claimed MRs.
///
/// A slot is a pointer in the driver's own structure of a claimed MR, by which the data path finds
/// the object of the MR without a look-up. The slot is a part of the MR, so only code that has a
/// reference to the MR reads it ([`ClaimedMr::object`]). The driver waits for all references when it
/// deregisters the MR, and the owner of the object keeps it until then. So a reader needs no lock and
/// no count.
///
/// # Safety
///
/// Only one type implements this trait, because a slot does not record the type of its object.
pub(crate) unsafe trait SlotValue: Send + Sync + 'static {}

/// An MR that a backend has claimed: the driver calls this module for accesses to it. Only a
/// backend makes references to such MRs, so code that has one cannot pass another MR to these
/// functions.
pub(crate) trait ClaimedMr: Deref<Target = Mr> {
    /// Returns `true` if the MR is for fast registration.
    fn is_fast_reg(&self) -> bool;

    /// Returns the object in the slot of the MR, which is empty at first.
    fn object<T: SlotValue>(&self) -> Option<ArcBorrow<'_, T>>;

    /// Puts `object` into the slot, which does not own it.
    ///
    /// # Safety
    ///
    /// The caller must keep the object until the driver has deregistered the MR.
    unsafe fn set_object<T: SlotValue>(&self, object: &Arc<T>);

    /// Removes all access flags that are not in `access`.
    fn narrow(&self, access: Access);

    /// Allows accesses to `range`, with the access flags `access`.
    fn publish(&self, range: MrRange, access: Access);

    /// Makes `key` the lkey and the rkey by which the driver knows the MR. Only the low 8 bits may
    /// differ. The caller changes the fields of `ib_mr`.
    fn rekey(&self, key: u32);

    /// Forbids accesses.
    fn withdraw(&self);

    /// Returns `true` if accesses are allowed.
    fn is_open(&self) -> bool;

    /// Returns `true` if the MR is neither open nor being deregistered.
    fn is_free(&self) -> bool;

    /// Returns the lkey and rkey by which the driver knows the MR. The key in `ib_mr` may differ,
    /// because a kernel user changes it before the next registration or bind.
    fn key(&self) -> u32;

    /// Allows accesses to an MR for fast registration, by `key`.
    fn register(&self, key: u32, access: Access);

    /// Forbids accesses to a registered MR.
    fn invalidate(&self);
}

/// One of the driver's MRs, as the memory of a leaf.
///
/// This holds a reference to the MR. The pin in the leaf keeps the MR from being deregistered.
pub(crate) trait BaseMr: Clone + Send + Sync {
    /// The driver's numbers of pages that were faulted in, invalidated and prefetched.
    type OdpStats;

    /// Returns `true` for an ODP MR.
    fn is_on_demand(&self) -> bool;

    /// Checks that the MR is still in the protection domain `pd`, has the lkey `lkey` and begins at
    /// address `start`. rereg_mr and fast registration can change these after a bind.
    ///
    /// # Errors
    ///
    /// `EACCES` if one of these has changed, or if a `write` is not allowed.
    fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result;

    /// Copies between the pieces of `segment` and `payload`. `delta` is added to their addresses; the
    /// sums are addresses of the MR.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR, and for a page that cannot be faulted in; `EIO` for
    /// persistent memory that cannot be read.
    fn copy(&self, segment: Segment<'_, '_>, delta: u64, payload: &Payload<'_>) -> Result;

    /// Performs an atomic operation by the driver's code, which serialises all atomic operations on
    /// the memory.
    ///
    /// # Errors
    ///
    /// `ACCESS_ALIGN` for memory that is not aligned to eight bytes; `ACCESS_MEMORY`.
    fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> Result;

    /// Writes eight bytes in one atomic write. Fails as [`Self::atomic_op`] does.
    fn atomic_write(&self, iova: u64, value: u64) -> Result;

    /// Makes `len` bytes from address `iova` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of the driver.
    fn flush(&self, iova: u64, len: u64) -> Result;

    /// Prefetches the pages of `len` bytes from address `iova` on, by the `advice` of
    /// `ibv_advise_mr()`. Does nothing if the MR is not on demand. Unless `wait`, does not wait for
    /// pages, and keeps only the MR until they are there.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address outside of the MR; with `wait`, the errors of faulting pages in.
    fn prefetch(&self, iova: u64, len: u64, advice: u32, wait: bool) -> Result;

    /// Adds the numbers of the MR to `sum`. Returns `false` if the MR is not on demand.
    fn add_odp_stats(&self, sum: &mut Self::OdpStats) -> bool;
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Outside => EFAULT,
            Fault::Poisoned => EIO,
        }
    }
}

/// A driver whose MRs can be given layouts.
///
/// For an object of another driver, a method returns an error, or does nothing if it cannot return
/// one.
pub(crate) trait Backend: Copy + Send + Sync {
    /// An MR that the backend has claimed.
    type Claimed: ClaimedMr;

    /// One of the driver's MRs, as the memory of a leaf.
    type Base: BaseMr;

    /// A suspended MR, with the state to restore. [`Self::suspend`] alone makes one, and it cannot
    /// be copied, so [`Self::resume`] or [`Self::retranslate`] ends the suspension at most once.
    /// Dropping this leaves the MR suspended, as an MR that was deregistered.
    type Suspended: Send;

    /// The registration with the driver. Dropping it ends the registration.
    type Registered: Send + Sync;

    /// Lets the driver ask this module before it registers a device. The driver calls
    /// `ib_mkey_rxe_add()` (`device.rs`) for the device, which then has the operations `ops`. The
    /// module's initialisation calls this.
    ///
    /// # Errors
    ///
    /// `EBUSY` after the first call, and if another module is registered.
    fn register(ops: &'static Operations) -> Result<Self::Registered>;

    /// Makes the backend of a device.
    fn new(device: &NewDevice<'_>) -> Self;

    /// Returns the user who opened a device of the module, whatever the process did since.
    fn user(context: &UserContext) -> User;

    /// Returns the driver's own device operations. There is a device.
    fn driver_ops() -> DriverOps;

    /// Returns the number of pages that accesses faulted in, since the module was loaded.
    fn faults() -> u64;

    /// Passes a refused access to the tracepoint.
    fn trace_refused(refused: &RefusedAccess);

    /// Finds the MR that `lkey` names. `held` excludes [`Self::suspend`], so the driver does not
    /// free the MR while `held` exists.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `lkey` names no MR in `pd`, and if `held` is a proof for another device.
    ///
    /// # Safety
    ///
    /// The driver must not deregister the MR while the [`BaseMr`] or a clone of it exists. `held`
    /// excludes that, and so does a pin that is made before `held` drops.
    unsafe fn find<'a>(
        &self,
        held: &'a NoDereg<'_>,
        lkey: u32,
        pd: &Pd,
    ) -> Result<LookedUp<'a, Self::Base, Self::Claimed>>;

    /// Copies bytes of one of the driver's MRs over memory of a process, from address `addr` on.
    /// Returns `false`, with nothing copied, for other memory and for an ODP MR. `held` keeps
    /// the MR from being freed meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::find`]; `ERANGE` for bytes outside of the MR; the errors of
    /// [`BaseMr::allows`] and [`BaseMr::copy`].
    fn read_now(
        &self,
        held: &NoDereg<'_>,
        lkey: u32,
        pd: &Pd,
        addr: u64,
        to: &mut [u8],
    ) -> Result<bool>;

    /// Takes a new MR over: the driver calls this module for accesses to it. No access is allowed
    /// yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR of another driver.
    fn claim<'a>(&self, mr: NewMr<'a>) -> Result<&'a Self::Claimed>;

    /// Takes a new MR over for device memory, as [`Self::claim`] does. Sets the MR's type now: the
    /// core sets the same type only when accesses may already read it.
    fn claim_dm<'a>(&self, mr: NewMr<'a>) -> Result<&'a Self::Claimed>;

    /// Takes a new MR over for fast registration, as [`Self::claim`] does.
    fn claim_fast_reg<'a>(&self, mr: NewMr<'a>) -> Result<&'a Self::Claimed>;

    /// Returns `mr` if it is claimed.
    fn claimed(mr: &Mr) -> Option<&Self::Claimed>;

    /// Returns the page size of an MR that is not for fast registration of scatterlists with gaps.
    fn page_size(&self, mr: &Mr) -> u32;

    /// Returns the memory windows of `device` that are bound to claimed MRs, in the order of their
    /// indices.
    fn windows(&self, device: &Device) -> impl Iterator<Item = ShownWindow>;

    /// Returns `true` if memory windows are bound to one of the driver's MRs.
    fn has_windows(&self, mr: &Mr) -> bool;

    /// Forbids accesses to an MR that is about to be deregistered.
    ///
    /// # Errors
    ///
    /// `EINVAL`, as the driver returns, while a memory window is bound to the MR; `EINVAL` if
    /// `unpinned` is a proof for another MR.
    fn suspend(&self, mr: &Mr, unpinned: &Unpinned<'_>) -> Result<Self::Suspended>;

    /// Undoes [`Self::suspend`]. Does nothing if `suspended` is of another MR.
    fn resume(mr: &Mr, suspended: Self::Suspended);

    /// Returns the access flags of one of the driver's MRs.
    fn rights(&self, mr: &Mr) -> Access;

    /// Exchanges the memory of a suspended MR and of `spare`, a new MR without users. The MR then
    /// begins at address `range.0` and has `range.1` bytes. Calls `finish` before it allows
    /// accesses again. Ends the suspension. On an error nothing has changed.
    ///
    /// # Errors
    ///
    /// The errors of `finish`; `EBUSY` if the MR is still in use after some seconds; `EINVAL` for
    /// an address that the driver cannot give to this kind of memory.
    fn retranslate(
        &self,
        mr: &Mr,
        suspended: Self::Suspended,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result;

    /// Fills a new MR with `length` bytes of `import` from `offset` on. The MR begins at address
    /// `addr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more pages than the MR has room for, and for an address with another place in
    /// its page than `offset`; `EOPNOTSUPP` for memory without pages; the errors of
    /// [`Import::pages`].
    ///
    /// # Safety
    ///
    /// After a success, a clone of `import` must exist until the driver has deregistered the MR.
    unsafe fn fill(
        &self,
        mr: NewMr<'_>,
        import: &Import,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result;

    /// Fills a new MR with memory of this module, which layouts can have as a leaf.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more pages than the MR has room for.
    ///
    /// # Safety
    ///
    /// `memory` must be valid until the driver has deregistered the MR, which must not be before the
    /// result and all clones of it have dropped.
    unsafe fn back(&self, mr: NewMr<'_>, memory: &SharedMemory) -> Result<Self::Base>;
}
