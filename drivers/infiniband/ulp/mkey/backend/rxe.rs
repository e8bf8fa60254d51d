// SPDX-License-Identifier: GPL-2.0

//! Software RoCE (`rdma_rxe`).
//!
//! | file | what |
//! |---|---|
//! | `rxe/bindings.rs` | bindings of rxe's structures and of the C half |
//! | `rxe/device.rs` | rxe's devices |
//! | `rxe/provider.c` | the provider of rxe's devices; the table of operations of MRs; work requests |
//! | `rxe/mr_ops.rs` | the operations that rxe calls for MRs of this module |
//! | `rxe/claimed.rs`, `rxe/mr.c` | rxe's MRs, and those that this module has claimed |
//! | `rxe/base.rs` | one of rxe's MRs: its rights, its atomics |
//! | `rxe/pages.rs`, `rxe/rxe_odp_page.c` | its memory: a list of pages, ODP pages, or all memory |
//! | `rxe/find.rs` | the MR that an lkey names |
//! | `rxe/rereg.rs` | new memory for an existing MR |
//!
//! rxe asks this module before it registers a device. The operations, the capabilities and the uverbs
//! methods of this module are part of the device from then on. This module is built with the headers
//! of the rdma_rxe beside which it is loaded.
//!
//! An MR of this module has a table of operations, which rxe calls in place of its own code.

mod base;
mod bindings;
mod claimed;
pub(crate) mod device;
mod find;
mod mr_ops;
mod pages;
mod rereg;

use base::Base;
use claimed::{ClaimedRxeMr, RxeMr};

use crate::{
    backend::{
        interface::{Backend, LookedUp, ShownWindow},
        pins::{NoDereg, Unpinned},
    },
    bindings::ib_uverbs_mkey_refused_access as RefusedAccess,
    kernel_ext::{
        dma_buf::Import,
        memory::SharedMemory,
        rdma::{
            device::NewDevice,
            driver::DriverOps,
            mr::{NewMr, Right},
            mr_key,
            pd::UserContext,
            table::Operations,
            Access, Device, Mr, Pd,
        },
        sync::smp_mb,
        user::User,
    },
};
use bindings::{
    rxe_mr_state_RXE_MR_STATE_INVALID as INVALID, rxe_mr_state_RXE_MR_STATE_VALID as VALID,
};
use core::{iter, ptr};
use kernel::{
    error::to_result,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::atomic::{ordering, Atomic},
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

/// `true` after the first call of [`Backend::register`].
static REGISTERED: Atomic<bool> = Atomic::new(false);

/// The registered provider of rxe's devices. Dropping it unregisters the provider.
pub(crate) struct Registered(());

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: `register()` succeeded. The module is being unloaded, so there is no device of it.
        unsafe { bindings::ib_mkey_rxe_unregister() };
    }
}

/// The backend of rxe.
#[derive(Clone, Copy)]
pub(crate) struct Rxe(());

impl Backend for Rxe {
    type Claimed = ClaimedRxeMr;
    type Base = Base;
    type Suspended = SuspendedMr;
    type Registered = Registered;

    fn register(ops: &'static Operations) -> Result<Registered> {
        if REGISTERED.xchg(true, ordering::Full) {
            return Err(EBUSY);
        }
        // SAFETY: There was no device, so there was no copy.
        unsafe { bindings::ib_mkey_rxe_init_page_base() };
        // SAFETY: This is called once, with a static table.
        to_result(unsafe { bindings::ib_mkey_rxe_register(ops.as_raw()) })?;
        Ok(Registered(()))
    }

    fn new(_device: &NewDevice<'_>) -> Self {
        Self(())
    }

    fn user(context: &UserContext) -> User {
        // SAFETY: The context is one of an rxe device with this module as its provider, and keeps its
        // credentials.
        unsafe { User::of_cred(bindings::ib_mkey_rxe_cred(context.as_raw())) }
    }

    fn driver_ops() -> DriverOps {
        // SAFETY: There is a device, which came with the table of its driver.
        unsafe { DriverOps::new(bindings::ib_mkey_rxe_ops()) }
    }

    fn faults() -> u64 {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_odp_faults() }
    }

    fn trace_refused(refused: &RefusedAccess) {
        // SAFETY: The structure is valid. rxe's bindings have the same one.
        unsafe { bindings::ib_mkey_rxe_trace_refused(ptr::from_ref(refused).cast()) };
    }

    unsafe fn find<'a>(
        &self,
        held: &'a NoDereg<'_>,
        lkey: u32,
        pd: &Pd,
    ) -> Result<LookedUp<'a, Base, ClaimedRxeMr>> {
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

    fn page_size(&self, mr: &Mr) -> u32 {
        1 << RxeMr::of(mr)
            .map_or(PAGE_SHIFT as u32, RxeMr::page_shift)
            .min(u32::BITS - 1)
    }

    fn windows(&self, device: &Device) -> impl Iterator<Item = ShownWindow> {
        let mut from = Some(0);
        iter::from_fn(move || {
            let mut found = bindings::ib_mkey_rxe_mw {
                rkey: 0,
                lkey: 0,
                length: 0,
            };
            let index = from.filter(|_| device::is_ours(device))?;
            // SAFETY: The device belongs to rxe.
            if !unsafe { bindings::ib_mkey_rxe_find_mw(device.as_raw(), index, &mut found) } {
                return None;
            }
            from = mr_key::index(found.rkey).checked_add(1);
            Some(ShownWindow {
                rkey: found.rkey,
                lkey: found.lkey,
                length: found.length,
            })
        })
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
        // Orders the state before the check for windows. Pairs with the barrier of the counting in
        // `rxe_mw_new_binding()` of rxe.
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
        let mr = unsafe { pages::fill(mr, pages, addr, length, access)? };
        mr.set_state(VALID);
        Ok(())
    }

    unsafe fn back(&self, mr: NewMr<'_>, memory: &SharedMemory) -> Result<Base> {
        let length = SharedMemory::pages_of(memory.len()) * PAGE_SIZE;
        let access = Access::from(Right::LocalWrite);
        // SAFETY: The pages are those of `memory`, which is valid until then.
        let mr = unsafe { pages::fill(mr, memory.pages().map(Some), 0, length as u64, access)? };
        mr.set_state(VALID);
        // SAFETY: The MR is over the pages of `memory`. By the safety requirement it is not
        // deregistered before the result has dropped.
        let base = unsafe { Base::new(mr.into()) };
        Ok(if memory.is_persistent() {
            base.into_persistent()
        } else {
            base
        })
    }
}
