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

pub(crate) use base::BaseMr;
pub(crate) use bindings::rxe_odp_stats as OdpStats;
pub(crate) use claimed::{Claimed, MrRange, SlotValue};
pub(crate) use find::{find, read_now, LookedUp};
pub(crate) use rereg::retranslate;

use crate::{
    backend::pins::Unpinned,
    bindings::ib_uverbs_mkey_refused_access as RefusedAccess,
    kernel_ext::{
        dma_buf::Import,
        memory::SharedMemory,
        rdma::{
            driver::DriverOps,
            mr::{NewMr, Right},
            mr_key,
            pd::UserContext,
            table::Operations,
            Access, Device, Mr,
        },
        sync::smp_mb,
        user::User,
    },
};
use bindings::{
    rxe_mr_state_RXE_MR_STATE_INVALID as INVALID, rxe_mr_state_RXE_MR_STATE_VALID as VALID,
};
use claimed::RxeMr;
use core::{iter, ptr};
use kernel::{
    error::to_result,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::atomic::{ordering, Atomic},
};

/// A suspended MR. [`suspend`] alone makes one, and it is neither [`Copy`] nor [`Clone`], so [`resume`] or
/// [`retranslate`] ends the suspension at most once. Dropping this leaves the MR suspended, as an MR
/// that was deregistered.
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

/// `true` after the first call of [`register`].
static REGISTERED: Atomic<bool> = Atomic::new(false);

/// The registered provider of rxe's devices. Dropping it unregisters the provider.
pub(crate) struct Registered(());

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: `register()` succeeded. The module is being unloaded, so there is no device of it.
        unsafe { bindings::ib_mkey_rxe_unregister() };
    }
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

/// Lets the driver ask this module before it registers a device. The driver calls
/// `ib_mkey_rxe_add()` (`device.rs`) for the device, which then has the operations `ops`. The
/// module's initialisation calls this.
///
/// # Errors
///
/// `EBUSY` after the first call, and if another module is registered.
pub(crate) fn register(ops: &'static Operations) -> Result<Registered> {
    if REGISTERED.xchg(true, ordering::Full) {
        return Err(EBUSY);
    }
    // SAFETY: There was no device, so there was no copy.
    unsafe { bindings::ib_mkey_rxe_init_page_base() };
    // SAFETY: This is called once, with a static table.
    to_result(unsafe { bindings::ib_mkey_rxe_register(ops.as_raw()) })?;
    Ok(Registered(()))
}

/// Returns the user who opened a device of the module, whatever the process did since.
pub(crate) fn user(context: &UserContext) -> User {
    // SAFETY: The context is one of an rxe device with this module as its provider, and keeps its
    // credentials.
    unsafe { User::of_cred(bindings::ib_mkey_rxe_cred(context.as_raw())) }
}

/// Returns the driver's own device operations. There is a device.
pub(crate) fn driver_ops() -> DriverOps {
    // SAFETY: There is a device, which came with the table of its driver.
    unsafe { DriverOps::new(bindings::ib_mkey_rxe_ops()) }
}

/// Returns the number of pages that accesses faulted in, since the module was loaded.
pub(crate) fn faults() -> u64 {
    // SAFETY: No preconditions.
    unsafe { bindings::ib_mkey_rxe_odp_faults() }
}

/// Passes a refused access to the tracepoint.
pub(crate) fn trace_refused(refused: &RefusedAccess) {
    // SAFETY: The structure is valid. rxe's bindings have the same one.
    unsafe { bindings::ib_mkey_rxe_trace_refused(ptr::from_ref(refused).cast()) };
}

/// Returns the page size of an MR that is not for fast registration of scatterlists with gaps.
pub(crate) fn page_size(mr: &Mr) -> u32 {
    1 << RxeMr::of(mr)
        .map_or(PAGE_SHIFT as u32, RxeMr::page_shift)
        .min(u32::BITS - 1)
}

/// Returns the memory windows of `device` that are bound to claimed MRs, in the order of their
/// indices.
pub(crate) fn windows(device: &Device) -> impl Iterator<Item = ShownWindow> + '_ {
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

/// Returns `true` if memory windows are bound to one of the driver's MRs.
pub(crate) fn has_windows(mr: &Mr) -> bool {
    RxeMr::of(mr).is_some_and(|mr| mr.num_mw() > 0)
}

/// Forbids accesses to an MR that is about to be deregistered.
///
/// # Errors
///
/// `EINVAL`, as the driver returns, while a memory window is bound to the MR; `EINVAL` if
/// `unpinned` is a proof for another MR.
pub(crate) fn suspend(mr: &Mr, unpinned: &Unpinned<'_>) -> Result<SuspendedMr> {
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

/// Undoes [`suspend`]. Does nothing if `suspended` is of another MR.
pub(crate) fn resume(mr: &Mr, suspended: SuspendedMr) {
    if let Some((private, state)) = suspended.end(mr) {
        private.set_state(state);
    }
}

/// Returns the access flags of one of the driver's MRs.
pub(crate) fn rights(mr: &Mr) -> Access {
    RxeMr::of(mr).map_or(Access::empty(), RxeMr::access)
}

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
pub(crate) unsafe fn fill(
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
pub(crate) unsafe fn back(mr: NewMr<'_>, memory: &SharedMemory) -> Result<BaseMr> {
    let length = SharedMemory::pages_of(memory.len()) * PAGE_SIZE;
    let access = Access::from(Right::LocalWrite);
    // SAFETY: The pages are those of `memory`, which is valid until then.
    let mr = unsafe { pages::fill(mr, memory.pages().map(Some), 0, length as u64, access)? };
    mr.set_state(VALID);
    // SAFETY: The MR is over the pages of `memory`. By the safety requirement it is not
    // deregistered before the result has dropped.
    let base = unsafe { BaseMr::new(mr.into()) };
    Ok(if memory.is_persistent() {
        base.into_persistent()
    } else {
        base
    })
}
