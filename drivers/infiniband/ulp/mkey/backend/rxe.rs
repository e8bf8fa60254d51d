// SPDX-License-Identifier: GPL-2.0

//! Software RoCE (`rdma_rxe`).
//!
//! | file | what |
//! |---|---|
//! | `rxe/bindings.rs` | bindings of rxe's structures and of the C half |
//! | `rxe/base.rs`, `rxe/page_table.rs` | one of rxe's MRs: its rights, its pages, its atomics |
//! | `rxe/scattered.rs`, `rxe/indexed.rs`, `rxe/records.rs`, `rxe/place.rs` | copies of pieces in many pages |
//! | `rxe/find.rs` | the MR that an lkey names |
//! | `rxe/fill.rs` | an MR over pages of the kernel |
//! | `rxe/replacements.rs`, `rxe/replacements_mw.rs` | the replacements of the redirected functions |
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
mod driver_calls;
mod fill;
mod find;
mod indexed;
mod mw;
mod on_demand;
mod page_table;
mod place;
mod records;
mod replacements;
mod replacements_mw;
mod rereg;
mod scattered;

use base::Base;
use mw::RxeMw;

use crate::{
    backend::{
        interface::{Backend, MrRange, Named},
        slot::SlotValue,
    },
    bindings::{
        ib_mr_type_IB_MR_TYPE_DM as TYPE_DM, ib_mr_type_IB_MR_TYPE_SG_GAPS as TYPE_SG_GAPS,
        rdma_driver_id_RDMA_DRIVER_RXE,
    },
    kernel_ext::{
        memory::SharedMemory,
        rdma::{mr::Right, Access, Device, Mr, Mw, OwnedMr, Pd, Qp},
        sync::srcu::Cell,
    },
};
use bindings::{rxe_mr, rxe_mr_state_RXE_MR_STATE_FREE, rxe_mr_state_RXE_MR_STATE_VALID};
use core::{
    mem::{align_of, offset_of, size_of},
    ptr::NonNull,
    sync::atomic::{fence, Ordering},
};
use kernel::{
    error::to_result,
    ffi::c_int,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// Marks this module's MRs for fast registration. No MR has such a page size.
const FAST_REG_SHIFT: u32 = bindings::IB_MKEY_RXE_FAST_REG_SHIFT;

/// The state of an MR, `enum rxe_mr_state`.
#[derive(Clone, Copy)]
pub(crate) struct MrState(bindings::rxe_mr_state);

/// The redirection of `rdma_rxe`'s functions. Dropping it undoes the redirection.
pub(crate) struct Redirection(());

impl Drop for Redirection {
    fn drop(&mut self) {
        // SAFETY: `attach()` succeeded. The module dropped its client, which removed every extended
        // device, before.
        unsafe { bindings::ib_mkey_rxe_exit() };
    }
}

/// The backend of rxe, after a device has passed [`Backend::probe`].
#[derive(Clone, Copy)]
pub(crate) struct Rxe(());

/// Returns rxe's structure around an MR; [`None`] for an MR of another driver. The structure is valid as
/// long as the MR.
#[inline]
fn private(mr: &Mr) -> Option<NonNull<rxe_mr>> {
    if mr.device().driver_id() != rdma_driver_id_RDMA_DRIVER_RXE {
        return None;
    }
    NonNull::new(around(mr))
}

/// Returns the structure around an MR of rxe, which allocates each MR as a part of it.
#[inline]
fn around(mr: &Mr) -> *mut rxe_mr {
    mr.as_raw()
        .wrapping_byte_sub(offset_of!(rxe_mr, ibmr))
        .cast()
}

/// Changes the access flags that rxe reads from an MR.
fn change_access(mr: &Mr, change: impl FnOnce(i32) -> i32) {
    if let Some(private) = private(mr) {
        // SAFETY: The MR is valid. rxe reads the field as a whole, at any time.
        unsafe {
            let field = &raw mut (*private.as_ptr()).access;
            field.write_volatile(change(field.read_volatile()));
        }
    }
}

impl Rxe {
    fn set_state(mr: &Mr, state: bindings::rxe_mr_state) {
        if let Some(private) = private(mr) {
            // SAFETY: `private()` returns the structure of `mr`, which is valid as long as `mr`.
            unsafe { bindings::ib_mkey_rxe_set_state(private.as_ptr(), state) };
        }
    }

    /// Returns the range of an MR of this module; [`None`] while no access is allowed.
    ///
    /// # Safety
    ///
    /// `mr` must be an MR of an rxe device, valid during the call.
    #[inline]
    unsafe fn published(mr: *mut rxe_mr) -> Option<MrRange> {
        // SAFETY: By the safety requirement. Each field is read as a whole, the state first.
        let (state, range) = unsafe {
            let state = (&raw const (*mr).state).read_volatile();
            // Pairs with `smp_store_release()` of the state: the range is as new.
            fence(Ordering::Acquire);
            let range = MrRange {
                start: (&raw const (*mr).ibmr.iova).read_volatile(),
                len: (&raw const (*mr).ibmr.length).read_volatile(),
            };
            (state, range)
        };
        (state == rxe_mr_state_RXE_MR_STATE_VALID).then_some(range)
    }

    /// Returns the slot of an MR of this module, see [`Backend::slot`].
    ///
    /// # Safety
    ///
    /// `mr` must be valid for `'a`, and [`Backend::claim`] must have claimed it.
    #[inline(always)]
    unsafe fn claimed_slot<'a, T: SlotValue>(mr: *mut rxe_mr) -> &'a Cell<T> {
        const { assert!(size_of::<Cell<T>>() == size_of::<u64>()) };
        const { assert!(align_of::<Cell<T>>() == align_of::<u64>()) };
        // SAFETY: By the safety requirement. `claim()` made the field an empty cell before it set the
        // type; stock code does not use the field of such an MR. Only one type of objects is in cells,
        // by the contract of `SlotValue`.
        unsafe { &*(&raw mut (*mr).page_mask).cast::<Cell<T>>() }
    }

    /// Returns `true` if an MR of this module is for fast registration.
    ///
    /// # Safety
    ///
    /// As for [`Self::published`].
    #[inline]
    unsafe fn is_fast_reg(mr: *mut rxe_mr) -> bool {
        // SAFETY: By the safety requirement. The field is set before any peer knows the MR's key.
        unsafe { (*mr).page_shift == FAST_REG_SHIFT }
    }

    /// Returns `true` if rxe's objects, and the fields of a new MR, match the headers that this module
    /// was built with.
    fn layout_matches(mr: &Mr, pages: u32) -> bool {
        let Some(private) = private(mr).map(NonNull::as_ptr) else {
            return false;
        };
        // SAFETY: The device is registered. As the sizes of other objects match, so does that of
        // the `elem` with which each object begins: `private` is the begin of the allocation. The
        // other reads stay within it, because it has room for an MR.
        unsafe {
            bindings::ib_mkey_rxe_sizes_match(mr.device().as_raw())
                && bindings::ib_mkey_rxe_has_room(private)
                && (*private).elem.obj == private.cast()
                && (*private).lkey == mr.lkey()
                && (*private).rkey == mr.rkey()
                && (*private).elem.index == mr.index()
                && (*private).num_buf == pages
                && (*private).state == rxe_mr_state_RXE_MR_STATE_FREE
                && (*private).page_shift == PAGE_SHIFT as u32
                && (*private).page_mask == !(PAGE_SIZE as u64 - 1)
                && (*private).nbuf == 0
                && (*private).access & Access::from(Right::LocalWrite).into_raw() as i32 == 0
                && bindings::ib_mkey_rxe_num_mw(private) == 0
                && (*private).umem.is_null()
                && !(*private).page_info.is_null()
        }
    }
}

impl Backend for Rxe {
    type Base = Base;
    type State = MrState;
    type Window<'a> = RxeMw<'a>;
    type Attached = Redirection;

    fn attach() -> Result<Redirection> {
        // SAFETY: The module's initialisation calls this once, before the first copy.
        unsafe { bindings::ib_mkey_rxe_init_copies() };
        // SAFETY: The module's initialisation calls this once.
        to_result(unsafe { bindings::ib_mkey_rxe_init() })?;
        Ok(Redirection(()))
    }

    fn faults() -> u64 {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_odp_faults() }
    }

    fn probe(device: &Device, pd: &Pd) -> Result<Self> {
        const PAGES: u32 = 3;

        if device.driver_id() != rdma_driver_id_RDMA_DRIVER_RXE {
            return Err(ENODEV);
        }
        // SAFETY: No preconditions.
        if !unsafe { bindings::ib_mkey_rxe_attach() } {
            pr_err!("{}: rdma_rxe does not call ib_mkey\n", device.name());
            return Err(EIO);
        }
        let mr = OwnedMr::new(pd, PAGES)?;
        if !Self::layout_matches(&mr, PAGES) {
            pr_err!(
                "{}: this rdma_rxe is not the one that ib_mkey was built for\n",
                device.name()
            );
            return Err(EIO);
        }
        Ok(Self(()))
    }

    fn find(&self, device: &Device, lkey: u32, pd: &Pd) -> Result<Named<Base>> {
        find::find(device, lkey, pd)
    }

    fn read_now(
        &self,
        device: &Device,
        lkey: u32,
        pd: &Pd,
        addr: u64,
        to: &mut [u8],
    ) -> Result<bool> {
        find::read_now(device, lkey, pd, addr, to)
    }

    fn claim(&self, mr: &Mr) {
        let Some(private) = private(mr).map(NonNull::as_ptr) else {
            return;
        };
        // SAFETY: The MR is new, and no peer knows its key. `nbuf` is 0, so stock code that ignored
        // the type would find no page.
        unsafe {
            // This makes the field an empty cell, see `claimed_slot()`.
            (*private).page_mask = 0;
            (*mr.as_raw()).type_ = TYPE_SG_GAPS;
            (*mr.as_raw()).iova = 0;
            (*mr.as_raw()).length = 0;
            (*private).access = 0;
            (*private).nbuf = 0;
            bindings::ib_mkey_rxe_claim(private);
        }
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_FREE);
    }

    fn claim_dm(&self, mr: &Mr) {
        self.claim(mr);
        // SAFETY: The MR is new, and no peer knows its key.
        unsafe { (*mr.as_raw()).type_ = TYPE_DM };
    }

    #[inline]
    fn slot<T: SlotValue>(mr: &Mr) -> Option<&Cell<T>> {
        // SAFETY: The MR is valid, and its type does not change while accesses find it. The core
        // writes the type of device memory once more, but it is the same one.
        let kind = unsafe { (*mr.as_raw()).type_ };
        if mr.device().driver_id() != rdma_driver_id_RDMA_DRIVER_RXE
            || (kind != TYPE_SG_GAPS && kind != TYPE_DM)
        {
            return None;
        }
        // SAFETY: The MR belongs to rxe, and its type is set by `claim()` and `claim_dm()` alone.
        Some(unsafe { Self::claimed_slot(around(mr)) })
    }

    fn narrow(&self, mr: &Mr, access: Access) {
        change_access(mr, |now| now & access.into_raw() as i32);
    }

    fn publish(&self, mr: &Mr, range: MrRange, access: Access) {
        // SAFETY: The MR is valid. rxe reads each field as a whole, at any time.
        unsafe {
            (&raw mut (*mr.as_raw()).iova).write_volatile(range.start);
            (&raw mut (*mr.as_raw()).length).write_volatile(range.len);
        }
        // With `MW_BIND`, rxe would bind windows directly to the MR, see `region/window.rs`. With
        // `ZERO_BASED`, rxe would bind no window to the MR.
        let access = access & !(Right::MwBind | Right::ZeroBased);
        change_access(mr, |_| access.into_raw() as i32);
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_VALID);
    }

    fn count_hidden(&self, device: u32, more: c_int) {
        // SAFETY: No preconditions.
        unsafe { bindings::ib_mkey_rxe_count_hidden(device, more) };
    }

    fn close_window(&self, mw: &Mw) {
        // SAFETY: The core of a device that belongs to rxe calls, and the window is not deallocated
        // yet.
        unsafe { bindings::ib_mkey_rxe_close_mw(mw.as_raw()) };
    }

    fn close(&self, qp: &Qp) -> bool {
        if qp.device().driver_id() != rdma_driver_id_RDMA_DRIVER_RXE {
            return false;
        }
        // SAFETY: The QP belongs to rxe and is not destroyed yet.
        unsafe { bindings::ib_mkey_rxe_close_qp(qp.as_raw()) }
    }

    fn next_window<'a>(&self, qp: &'a Qp, from: &mut u32) -> Option<RxeMw<'a>> {
        if qp.device().driver_id() != rdma_driver_id_RDMA_DRIVER_RXE {
            return None;
        }
        RxeMw::next_of(qp, from)
    }

    fn end_window(&self, qp: &Qp, window: &RxeMw<'_>) -> Result {
        window.end(qp)
    }

    fn rekey(&self, mr: &Mr, key: u32) {
        let Some(private) = private(mr).map(NonNull::as_ptr) else {
            return;
        };
        // SAFETY: As for `publish()`.
        unsafe {
            (&raw mut (*private).lkey).write_volatile(key);
            (&raw mut (*private).rkey).write_volatile(key);
        }
    }

    fn give_binds_back(&self, device: &Device) {
        if device.driver_id() == rdma_driver_id_RDMA_DRIVER_RXE {
            // SAFETY: The device belongs to rxe and is registered.
            unsafe { bindings::ib_mkey_rxe_give_binds_back(device.as_raw()) };
        }
    }

    fn take_binds(&self, qp: &Qp) {
        if qp.device().driver_id() == rdma_driver_id_RDMA_DRIVER_RXE {
            // SAFETY: The QP belongs to rxe, which has created it, and it is not in use yet.
            unsafe { bindings::ib_mkey_rxe_take_binds(qp.as_raw()) };
        }
    }

    fn withdraw(&self, mr: &Mr) {
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_FREE);
        change_access(mr, |_| 0);
        // SAFETY: As for `publish()`.
        unsafe { (&raw mut (*mr.as_raw()).length).write_volatile(0) };
    }

    fn is_open(&self, mr: &Mr) -> bool {
        // SAFETY: `private()` returns the structure of `mr`, which is valid as long as `mr`.
        let state = private(mr).map(|mr| unsafe { bindings::ib_mkey_rxe_state(mr.as_ptr()) });
        state == Some(rxe_mr_state_RXE_MR_STATE_VALID)
    }

    fn claim_fast_reg(&self, mr: &Mr) {
        self.claim(mr);
        if let Some(private) = private(mr) {
            // SAFETY: As for `claim()`. Stock code does not read the field of such an MR.
            unsafe { (*private.as_ptr()).page_shift = FAST_REG_SHIFT };
        }
    }

    fn is_free(&self, mr: &Mr) -> bool {
        // SAFETY: `private()` returns the structure of `mr`, which is valid as long as `mr`.
        let state = private(mr).map(|mr| unsafe { bindings::ib_mkey_rxe_state(mr.as_ptr()) });
        state == Some(rxe_mr_state_RXE_MR_STATE_FREE)
    }

    fn key(&self, mr: &Mr) -> u32 {
        // SAFETY: As for `publish()`; both keys are the same.
        let key = |mr: NonNull<rxe_mr>| unsafe { (&raw const (*mr.as_ptr()).rkey).read_volatile() };
        private(mr).map_or(0, key)
    }

    fn register(&self, mr: &Mr, key: u32, access: Access) {
        change_access(mr, |_| access.into_raw() as i32);
        self.rekey(mr, key);
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_VALID);
    }

    fn page_size(&self, mr: &Mr) -> u32 {
        // SAFETY: The MR is valid. rxe writes the field when the MR's owner maps pages, and the
        // owner does not map in two threads at once.
        let shift = |mr: NonNull<rxe_mr>| unsafe { (*mr.as_ptr()).page_shift };
        1 << private(mr)
            .map_or(PAGE_SHIFT as u32, shift)
            .min(u32::BITS - 1)
    }

    fn invalidate(&self, mr: &Mr) {
        // Length and address stay: the owner may have mapped new elements already.
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_FREE);
    }

    fn has_windows(&self, mr: &Mr) -> bool {
        // SAFETY: `private()` returns the structure of `mr`, which is valid as long as `mr`.
        private(mr).is_some_and(|mr| unsafe { bindings::ib_mkey_rxe_num_mw(mr.as_ptr()) } > 0)
    }

    fn suspend(&self, mr: &Mr) -> Result<MrState> {
        if self.has_windows(mr) {
            return Err(EINVAL);
        }
        let private = private(mr).ok_or(EINVAL)?.as_ptr();
        // SAFETY: `private()` returns the structure of `mr`, which is valid as long as `mr`.
        unsafe {
            let state = MrState(bindings::ib_mkey_rxe_state(private));
            bindings::ib_mkey_rxe_suspend(private);
            // A window may have been bound since the check above.
            if bindings::ib_mkey_rxe_num_mw(private) > 0 {
                bindings::ib_mkey_rxe_set_state(private, state.0);
                return Err(EINVAL);
            }
            Ok(state)
        }
    }

    fn resume(&self, mr: &Mr, state: MrState) {
        Self::set_state(mr, state.0);
    }

    fn rights(&self, mr: &Mr) -> Access {
        Self::access(mr)
    }

    fn retranslate(
        &self,
        mr: &Mr,
        state: MrState,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result {
        Self::exchange_with(mr, state, spare, range, finish)
    }

    fn fill(
        &self,
        mr: &Mr,
        pages: impl Iterator<Item = Option<*mut crate::bindings::page>>,
        addr: u64,
        length: u64,
        access: Access,
    ) -> Result {
        let private = private(mr).ok_or(EINVAL)?;
        fill::fill(mr, private, pages, addr, length, access)?;
        Self::set_state(mr, rxe_mr_state_RXE_MR_STATE_VALID);
        Ok(())
    }

    fn back(&self, mr: &OwnedMr, memory: &SharedMemory) -> Result<Base> {
        let length = SharedMemory::pages_of(memory.len()) * PAGE_SIZE;
        let access = Access::from(Right::LocalWrite);
        self.fill(mr, memory.pages().map(Some), 0, length as u64, access)?;
        // SAFETY: The MR is over the pages of `memory`, which the caller keeps as long as the MR.
        Ok(unsafe { Base::new(private(mr).ok_or(EINVAL)?) })
    }
}
