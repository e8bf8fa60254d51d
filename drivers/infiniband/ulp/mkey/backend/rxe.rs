// SPDX-License-Identifier: GPL-2.0

//! Software RoCE (`rdma_rxe`).
//!
//! | file | what |
//! |---|---|
//! | `rxe/bindings.rs` | bindings of rxe's structures and of the C half |
//! | `rxe/device.rs` | rxe's devices |
//! | `rxe/claimed.rs` | rxe's MRs, and those that this module has claimed |
//! | `rxe/base.rs` | one of rxe's MRs: its rights, its atomics |
//! | `rxe/pages.rs`, `rxe/pinned.rs`, `rxe/page_table.rs` | its pages |
//! | `rxe/scattered.rs`, `rxe/indexed.rs`, `rxe/records.rs`, `rxe/place.rs` | copies of pieces in many pages |
//! | `rxe/find.rs` | the MR that an lkey names |
//! | `rxe/fill.rs` | an MR over pages of the kernel |
//! | `rxe/replacements.rs`, `rxe/replacements_copy.rs`, `rxe/replacements_mw.rs` | the replacements of the redirected functions |
//! | `rxe/mw.rs` | memory windows |
//! | `rxe/rereg.rs` | new memory for an existing MR |
//! | `rxe/driver_calls.rs` | calls as rxe's workers make them; the self-test uses them |
//! | `rxe/on_demand.rs`, `rxe/rxe_odp_page.c` | ODP pages |
//! | `rxe/attach.c`, `rxe/redirect.c`, `rxe/redirect_mw.c`, `rxe/stock_redirected.c` | the redirection, by ftrace |
//! | `rxe/sender.c` | work requests that bind keys, of processes and of kernel users |
//! | `rxe/table.c` | the counterpart for an rxe that has a table of operations for each MR |
//! | `rxe/stock.c`, `rxe/functions.h` | calls of stock rxe; its functions |
//! | `rxe/mr.c` | access to an MR's fields by inline functions |
//!
//! A device is extended only if it passes four gates: the driver's id is rxe's, every function was
//! redirected or found, the fields of a new MR match the headers, and the self-test passes.
//!
//! An MR of this module has type `IB_MR_TYPE_SG_GAPS` or `IB_MR_TYPE_DM`, which stock rxe refuses,
//! and no page. An access therefore fails if the redirection is lost.

mod base;
mod bindings;
mod claimed;
mod device;
mod driver_calls;
mod fill;
mod find;
mod indexed;
mod mw;
mod on_demand;
mod page_table;
mod pages;
mod pinned;
mod place;
mod records;
mod replacements;
mod replacements_copy;
mod replacements_mw;
mod rereg;
mod scattered;

use base::Base;
use claimed::{ClaimedRxeMr, RxeMr};
use device::is_rxe;
use find::HeldClaimed;
use mw::RxeMw;

use crate::{
    backend::{
        interface::{Backend, LookedUp},
        pins::{NoDereg, Unpinned},
    },
    kernel_ext::{
        dma_buf::Import,
        memory::SharedMemory,
        rdma::{
            mr::{NewMr, Right},
            Access, Ah, Device, Mr, Mw, OwnedMr, Pd, Qp,
        },
        sync::barrier::smp_mb,
    },
};
use bindings::{
    rxe_mr_state_RXE_MR_STATE_FREE as FREE, rxe_mr_state_RXE_MR_STATE_INVALID as INVALID,
    rxe_mr_state_RXE_MR_STATE_VALID as VALID,
};
use core::ptr;
use kernel::{
    error::to_result,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::atomic::{ordering, Atomic},
    time::{delay::fsleep, Delta},
};

/// A suspended MR. It is neither [`Copy`] nor [`Clone`], so the state is restored at most once.
#[must_use]
pub(crate) struct SuspendedMr {
    /// The address of the MR.
    mr: usize,
    /// The state that the MR had.
    state: bindings::rxe_mr_state,
}

impl SuspendedMr {
    /// Returns `mr` with the state that it had; [`None`] if this is not `mr`.
    fn end(self, mr: &Mr) -> Option<(&RxeMr, bindings::rxe_mr_state)> {
        let is_of = self.mr == ptr::from_ref(mr) as usize;
        Some((RxeMr::of(mr).filter(|_| is_of)?, self.state))
    }
}

/// The longest time to wait for accesses to an MR that is deregistered.
const ALONE_MICROS: i64 = 2_000_000;

/// `true` after the first call of [`Backend::attach`].
static ATTACHED: Atomic<bool> = Atomic::new(false);

/// The redirection of `rdma_rxe`'s functions. Dropping it undoes the redirection.
pub(crate) struct Redirection(());

impl Drop for Redirection {
    fn drop(&mut self) {
        // SAFETY: `attach()` succeeded. The module drops its client first, so no device is extended
        // any more, and rxe has no MR of this module that an access can find.
        unsafe { bindings::ib_mkey_rxe_exit() };
    }
}

/// The backend of rxe, after a device has passed [`Backend::probe`].
#[derive(Clone, Copy)]
pub(crate) struct Rxe(());

impl Rxe {
    /// Returns `true` if rxe's objects, and the fields of a new MR, match the headers that this
    /// module was built with.
    fn layout_matches(mr: &Mr, pages: u32) -> bool {
        if !is_rxe(mr.device()) {
            return false;
        }
        let private = claimed::around(mr);
        // SAFETY: The device is registered and belongs to rxe. As the sizes of other objects match,
        // so does that of the `elem` with which each object begins: `private` is the begin of the
        // allocation.
        let has_room = unsafe {
            bindings::ib_mkey_rxe_sizes_match(mr.device().as_raw())
                && bindings::ib_mkey_rxe_has_room(private)
        };
        if !has_room {
            return false;
        }
        let Some(mr) = RxeMr::of(mr) else {
            return false;
        };
        // SAFETY: The allocation has room for an MR, and the MR is new.
        unsafe {
            (*private).elem.obj == private.cast()
                && mr.own_lkey() == mr.lkey()
                && mr.own_rkey() == mr.rkey()
                && (*private).elem.index == mr.index()
                && (*private).num_buf == pages
                && mr.state() == FREE
                && mr.page_shift() == PAGE_SHIFT as u32
                && (*private).page_mask == !(PAGE_SIZE as u64 - 1)
                && (*private).nbuf == 0
                && !mr.access().contains(Right::LocalWrite)
                && mr.num_mw() == 0
                && (*private).umem.is_null()
                && !(*private).page_info.is_null()
        }
    }
}

impl Backend for Rxe {
    type Claimed = ClaimedRxeMr;
    type HeldClaimed = HeldClaimed;
    type Base = Base;
    type Suspended = SuspendedMr;
    type Window<'a> = RxeMw<'a>;
    type Attached = Redirection;

    fn attach() -> Result<Redirection> {
        if ATTACHED.xchg(true, ordering::Full) {
            return Err(EBUSY);
        }
        // SAFETY: No device has passed `probe()`, so there was no copy.
        unsafe { bindings::ib_mkey_rxe_init_copies() };
        // SAFETY: This is called once.
        to_result(unsafe { bindings::ib_mkey_rxe_init() })?;
        Ok(Redirection(()))
    }

    fn faults() -> u64 {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_odp_faults() }
    }

    fn probe(device: &Device, pd: &Pd) -> Result<Self> {
        const PAGES: u32 = 3;

        if !is_rxe(device) {
            return Err(ENODEV);
        }
        // SAFETY: No preconditions.
        if !unsafe { bindings::ib_mkey_rxe_attach() } {
            pr_err!("{}: rdma_rxe does not call ib_mkey\n", device.name());
            return Err(EIO);
        }
        let look = |new: NewMr<'_>| Ok(Self::layout_matches(&new, PAGES));
        let (_, matches) = OwnedMr::new(pd, PAGES, look)?;
        if !matches {
            pr_err!(
                "{}: this rdma_rxe is not the one that ib_mkey was built for\n",
                device.name()
            );
            return Err(EIO);
        }
        Ok(Self(()))
    }

    unsafe fn find(&self, held: &NoDereg<'_>, lkey: u32, pd: &Pd) -> Result<LookedUp<Base>> {
        // SAFETY: By the safety requirement.
        unsafe { find::find(held, lkey, pd) }
    }

    fn read_now(
        &self,
        held: &NoDereg<'_>,
        lkey: u32,
        pd: &Pd,
        addr: u64,
        to: &mut [u8],
    ) -> Result<bool> {
        find::read_now(held, lkey, pd, addr, to)
    }

    fn claim<'a>(&self, mr: NewMr<'a>) -> Result<&'a ClaimedRxeMr> {
        ClaimedRxeMr::new(mr)
    }

    fn claim_dm<'a>(&self, mr: NewMr<'a>) -> Result<&'a ClaimedRxeMr> {
        ClaimedRxeMr::new_dm(mr)
    }

    fn claim_fast_reg<'a>(&self, mr: NewMr<'a>) -> Result<&'a ClaimedRxeMr> {
        ClaimedRxeMr::new_fast_reg(mr)
    }

    #[inline]
    fn claimed(mr: &Mr) -> Option<&ClaimedRxeMr> {
        RxeMr::of(mr)?.claimed()
    }

    fn hold_claimed(&self, device: &Device, index: u32) -> Option<HeldClaimed> {
        HeldClaimed::at(device, index)
    }

    fn close_window(&self, mw: &Mw) {
        if is_rxe(mw.device()) {
            // SAFETY: The window belongs to rxe and is not deallocated yet.
            unsafe { bindings::ib_mkey_rxe_close_mw(mw.as_raw()) };
        }
    }

    fn close(&self, qp: &Qp) -> bool {
        // SAFETY: The QP belongs to rxe and is not destroyed yet.
        is_rxe(qp.device()) && unsafe { bindings::ib_mkey_rxe_close_qp(qp.as_raw()) }
    }

    fn next_window<'a>(&self, qp: &'a Qp, from: &mut u32) -> Option<RxeMw<'a>> {
        RxeMw::next_of(qp, from)
    }

    fn end_window(&self, qp: &Qp, window: &RxeMw<'_>) -> Result {
        window.end(qp)
    }

    fn end_tasks(qp: &Qp) {
        if is_rxe(qp.device()) {
            // SAFETY: The QP belongs to rxe and is not destroyed yet.
            unsafe { bindings::ib_mkey_rxe_end_tasks(qp.as_raw()) };
        }
    }

    fn end_ah(ah: &Ah) {
        if is_rxe(ah.device()) {
            // SAFETY: The handle belongs to rxe and is not destroyed yet.
            unsafe { bindings::ib_mkey_rxe_end_ah(ah.as_raw()) };
        }
    }

    fn give_binds_back(&self, device: &Device) {
        if is_rxe(device) {
            // SAFETY: The device belongs to rxe and is registered.
            unsafe { bindings::ib_mkey_rxe_give_binds_back(device.as_raw()) };
        }
    }

    fn take_binds(&self, qp: &Qp) {
        if is_rxe(qp.device()) {
            // SAFETY: The QP belongs to rxe, which has created it.
            unsafe { bindings::ib_mkey_rxe_take_binds(qp.as_raw()) };
        }
    }

    fn page_size(&self, mr: &Mr) -> u32 {
        1 << RxeMr::of(mr)
            .map_or(PAGE_SHIFT as u32, RxeMr::page_shift)
            .min(u32::BITS - 1)
    }

    fn compare_pds() {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_compare_pds() };
    }

    fn has_windows(&self, mr: &Mr) -> bool {
        RxeMr::of(mr).is_some_and(|mr| mr.num_mw() > 0)
    }

    fn suspend(&self, mr: &Mr, unpinned: &Unpinned<'_>) -> Result<SuspendedMr> {
        let private = RxeMr::of(mr).ok_or(EINVAL)?;
        if !unpinned.proves(mr) {
            return Err(EINVAL);
        }
        if private.num_mw() > 0 {
            return Err(EINVAL);
        }
        let state = private.state();
        private.set_state(INVALID);
        // Orders the state before the check for windows. Pairs with `count_window()` in C.
        smp_mb();
        // A window may have been bound since the check above.
        if private.num_mw() > 0 {
            private.set_state(state);
            return Err(EINVAL);
        }
        let mr = ptr::from_ref(mr) as usize;
        Ok(SuspendedMr { mr, state })
    }

    fn resume(mr: &Mr, suspended: SuspendedMr) {
        if let Some((private, state)) = suspended.end(mr) {
            private.set_state(state);
        }
    }

    fn is_on_demand(&self, mr: &Mr) -> bool {
        // SAFETY: The MR belongs to rxe. Its owner deregisters it and does not register it again
        // meanwhile.
        RxeMr::of(mr).is_some_and(|mr| unsafe { bindings::ib_mkey_rxe_is_odp(mr.private()) })
    }

    // rxe waits 50 seconds for the references to an MR that is deregistered, and frees the MR
    // nevertheless. A task has a reference while an access by the MR's own lkey or rkey waits for a
    // page. A QP in an error may keep one until it is reset or destroyed, so the wait has a limit.
    fn wait_until_alone(mr: &Mr) -> Result {
        let mr = RxeMr::of(mr).ok_or(EINVAL)?;
        let (mut micros, mut waited) = (20i64, 0i64);
        while mr.references() > 1 {
            if waited > ALONE_MICROS {
                return Err(EBUSY);
            }
            fsleep(Delta::from_micros(micros));
            waited = waited.saturating_add(micros);
            micros = micros.saturating_mul(2).min(10_000);
        }
        Ok(())
    }

    fn rights(&self, mr: &Mr) -> Access {
        RxeMr::of(mr).map_or(Access::empty(), RxeMr::access)
    }

    fn retranslate(
        &self,
        mr: &Mr,
        suspended: SuspendedMr,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result {
        Self::exchange_with(mr, suspended, spare, range, finish)
    }

    unsafe fn fill(
        &self,
        mr: NewMr<'_>,
        import: &Import,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result {
        if addr.wrapping_sub(offset) % PAGE_SIZE as u64 != 0 {
            return Err(EINVAL);
        }
        let pages = import.pages(offset, length)?;
        // SAFETY: The pages are those of `import`, of which a clone exists until then.
        let mr = unsafe { fill::fill(mr, pages, addr, length, access)? };
        mr.set_state(VALID);
        Ok(())
    }

    unsafe fn back(&self, mr: NewMr<'_>, memory: &SharedMemory) -> Result<Base> {
        let length = SharedMemory::pages_of(memory.len()) * PAGE_SIZE;
        let access = Access::from(Right::LocalWrite);
        // SAFETY: The pages are those of `memory`, which is valid until then.
        let mr = unsafe { fill::fill(mr, memory.pages().map(Some), 0, length as u64, access)? };
        mr.set_state(VALID);
        // SAFETY: The MR is over the pages of `memory`. By the safety requirement it is not
        // deregistered before the result has dropped.
        Ok(unsafe { Base::new(mr) })
    }
}
