// SPDX-License-Identifier: GPL-2.0

//! The interface between a backend and the rest of the module. `leaf.rs` has the part of the MRs
//! that are the memory of leaves.

use crate::{
    backend::{
        leaf::BaseMr,
        pins::{NoDereg, Unpinned},
        slot::SlotValue,
    },
    kernel_ext::{
        dma_buf::Import,
        memory::SharedMemory,
        rdma::{mr::NewMr, Access, Ah, Device, Mr, Mw, Pd, Qp},
        sync::srcu::Cell,
    },
};
use core::ops::Deref;
use kernel::prelude::*;

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
pub(crate) enum LookedUp<B> {
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
    /// An MR of this module. The address distinguishes the MR from a later one at the same index.
    Own(*const Mr),
    /// An MR that cannot be a leaf.
    Unfit,
}

/// A window of the driver. It may be deallocated at any time.
pub(crate) trait DriverWindow {
    /// A reference, which keeps the window from being deallocated.
    type Held;

    /// Returns a value that differs from that of all other windows that exist.
    fn address(&self) -> usize;

    /// Takes a reference; [`None`] if the window was deallocated.
    fn hold(&self) -> Option<Self::Held>;

    /// Returns `true` if the driver has bound the window to the MR `hidden`, or if the window was
    /// deallocated.
    fn is_over(&self, hidden: &Mr) -> bool;
}

/// An MR that a backend has claimed: the driver calls this module for accesses to it. Only a
/// backend makes references to such MRs, so code that has one cannot pass another MR to these
/// functions.
pub(crate) trait ClaimedMr: Deref<Target = Mr> {
    /// A window that the backend counts. Dropping it ends that.
    type Counted: Send;

    /// Counts a window that is going to be bound to this MR, the hidden MR of a window. While it
    /// counts none, the driver binds windows to its own MRs without this module.
    fn count_window(&self) -> Self::Counted;

    /// Returns `true` if the MR is for fast registration.
    fn is_fast_reg(&self) -> bool;

    /// Returns the slot, which is empty at first.
    fn slot<T: SlotValue>(&self) -> &Cell<T>;

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

/// A driver whose MRs can be given layouts.
///
/// For an object of another driver, a method returns an error, or does nothing if it cannot return
/// one.
pub(crate) trait Backend: Copy + Send + Sync {
    /// An MR that the backend has claimed.
    type Claimed: ClaimedMr;

    /// A reference to a claimed MR, which keeps the MR from being freed.
    type HeldClaimed: Deref<Target = Self::Claimed>;

    /// One of the driver's MRs, as the memory of a leaf.
    type Base: BaseMr;

    /// A suspended MR, with the state to restore. [`Self::suspend`] alone makes one, and it cannot
    /// be copied, so [`Self::resume`] or [`Self::retranslate`] ends the suspension at most once.
    /// Dropping this leaves the MR suspended, as an MR that was deregistered.
    type Suspended: Send;

    /// A window of the driver.
    type Window<'a>: DriverWindow;

    /// The attachment to the driver. Dropping it detaches the backend.
    type Attached: Send + Sync;

    /// Attaches to the driver, now or when it is loaded. The module's initialisation calls this.
    ///
    /// # Errors
    ///
    /// `EBUSY` after the first call; those of the redirection.
    fn attach() -> Result<Self::Attached>;

    /// Returns the number of pages that accesses faulted in, since the module was loaded.
    fn faults() -> u64;

    /// Checks that `device` belongs to the driver, and that the driver has the structures that this
    /// module was built with.
    ///
    /// # Errors
    ///
    /// `ENODEV` for a device of another driver; others, with a line in the log, for a device of
    /// the driver that does not behave as expected.
    fn probe(device: &Device, pd: &Pd) -> Result<Self>;

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
    unsafe fn find(&self, held: &NoDereg<'_>, lkey: u32, pd: &Pd) -> Result<LookedUp<Self::Base>>;

    /// Copies bytes of one of the driver's MRs over memory of a process, from address `addr` on.
    /// Returns `false`, with nothing copied, for other memory and for an ODP MR. `held` is as for
    /// [`Self::find`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::find`]; `ERANGE` for bytes outside of the MR; those of [`BaseMr::allows`]
    /// and [`BaseMr::copy_row`].
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

    /// Takes a new MR over for fast registration. As for [`Self::claim`].
    fn claim_fast_reg<'a>(&self, mr: NewMr<'a>) -> Result<&'a Self::Claimed>;

    /// Returns `mr` if it is claimed.
    fn claimed(mr: &Mr) -> Option<&Self::Claimed>;

    /// Returns the claimed MR of `device` at `index`, with a reference to it. Returns [`None`] for
    /// an MR that is being freed. The deregistration waits for the reference, so the caller drops
    /// it soon.
    fn hold_claimed(&self, device: &Device, index: u32) -> Option<Self::HeldClaimed>;

    /// Releases the QP to which `mw` is bound, a window of the driver that is about to be
    /// deallocated. No QP binds or uses the window from then on.
    fn close_window(&self, mw: &Mw);

    /// Forbids `qp`, which is about to be destroyed, to bind more windows. Returns `true` if
    /// windows may be bound to it.
    fn close(&self, qp: &Qp) -> bool;

    /// Returns the first window, from the index `from` on, that is bound to the closed QP `qp`.
    /// Sets `from` to the index after that window.
    fn next_window<'a>(&self, qp: &'a Qp, from: &mut u32) -> Option<Self::Window<'a>>;

    /// Ends the driver's binding of `window` to the closed QP `qp`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it was ended or the window was deallocated meanwhile.
    fn end_window(&self, qp: &Qp, window: &Self::Window<'_>) -> Result;

    /// Lets no access of `qp` begin, and waits until none is in progress. `qp` is the QP of a
    /// process and is about to be destroyed. Sleeps, without a limit.
    fn end_tasks(qp: &Qp);

    /// Waits for the requests that use an address handle of a process, which is about to be
    /// destroyed. No later request finds it. Sleeps as long as an access waits for a page.
    fn end_ah(ah: &Ah);

    /// Executes requests of a new QP that bind claimed MRs. A request to bind an MR that is bound
    /// waits until all earlier requests of the QP have completed. The driver may repeat the earlier
    /// requests after a loss of packets, and they must find the old binding.
    fn take_binds(&self, qp: &Qp);

    /// Lets the driver execute all requests again, for the QPs of `device`, which is about to be
    /// removed. Leaves out QPs that are being destroyed. Sleeps.
    fn give_binds_back(&self, device: &Device);

    /// Returns the page size of an MR that is not for fast registration of scatterlists with gaps.
    fn page_size(&self, mr: &Mr) -> u32;

    /// Lets later READs compare the protection domain of an ordinary MR with that of the QP. The
    /// caller calls this before it changes the protection domain of such an MR. Until then no READ
    /// pays for the comparison.
    fn compare_pds();

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

    /// Returns `true` for one of the driver's ODP MRs.
    fn is_on_demand(&self, mr: &Mr) -> bool;

    /// Waits until the driver has ended all uses of an MR that was suspended and that nothing pins.
    /// Sleeps for some seconds at most.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the driver still uses the MR.
    fn wait_until_alone(mr: &Mr) -> Result;

    /// Returns the access flags of one of the driver's MRs.
    fn rights(&self, mr: &Mr) -> Access;

    /// Exchanges the memory of a suspended MR and of `spare`, a new MR without users. The MR then
    /// begins at address `range.0` and has `range.1` bytes. Calls `finish` before it allows
    /// accesses again. Ends the suspension. On an error nothing has changed.
    ///
    /// # Errors
    ///
    /// Those of `finish`; `EBUSY` if the MR is still in use after some seconds; `EINVAL` for an
    /// address that the driver cannot give to this kind of memory.
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
    /// its page than `offset`; `EOPNOTSUPP` for memory without pages; those of [`Import::pages`].
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

/// The calls that the driver's workers make for accesses. The self-test makes the same calls, to
/// check that the driver calls this module for them.
pub(crate) trait DriverCalls: Backend {
    /// Copies between `packet` and an SGE of address `iova`, to the SGE if `write`.
    ///
    /// # Errors
    ///
    /// Those of the driver. All methods of this trait have these errors.
    fn copy_sge(&self, pd: &Pd, lkey: u32, iova: u64, packet: &mut [u8], write: bool) -> Result;

    /// Checks that `length` bytes from address `iova` on are in the MR.
    fn check_range(&self, mr: &Self::Claimed, iova: u64, length: usize) -> Result;

    /// Copies between `packet` and the MR for a peer, to the MR if `write`.
    fn copy(&self, mr: &Self::Claimed, iova: u64, packet: &mut [u8], write: bool) -> Result;

    /// Adds `add` to the word at address `iova`. Returns the former value.
    fn fetch_add(&self, mr: &Self::Claimed, iova: u64, add: u64) -> Result<u64>;

    /// Writes a word at address `iova` in one atomic write.
    fn atomic_write(&self, mr: &Self::Claimed, iova: u64, value: u64) -> Result;

    /// Makes `length` bytes from address `iova` on persistent.
    fn flush(&self, mr: &Self::Claimed, iova: u64, length: u32) -> Result;

    /// Returns `true` if an atomic operation, an atomic write and a flush at address 0 are refused
    /// when their peer is unknown.
    fn refuses_unknown(&self, mr: &Self::Claimed) -> Result<bool>;

    /// Returns `true` if a WRITE, an atomic operation and an atomic write at address `iova` are
    /// refused when their peer is in another protection domain.
    fn refuses_foreign(&self, mr: &Self::Claimed, iova: u64) -> Result<bool>;

    /// Registers the mapped elements from address `iova` on, as REG_MR does.
    fn reg_mr(&self, mr: &Self::Claimed, iova: u64, key: u32, access: Access) -> Result;

    /// Invalidates the MR that `key` names, as a peer's SEND with invalidate does.
    fn send_with_invalidate(&self, pd: &Pd, key: u32) -> Result;
}
