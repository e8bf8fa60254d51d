// SPDX-License-Identifier: GPL-2.0

//! rxe's MRs, and those that this module has claimed.
//!
//! A reference to one of these types proves that the functions of this backend may use the fields of
//! the MR. [`RxeMr::of`] and [`RxeMr::claimed`] make such references of any MR, by a comparison.
//! [`ClaimedRxeMr::new`] claims a new MR. The replacements of rxe's functions make them of their
//! arguments.

use super::{
    bindings::{
        self, rxe_mr, rxe_mr_state_RXE_MR_STATE_FREE as FREE,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    device::is_rxe,
    mw::CountedMw,
};
use crate::{
    backend::{
        interface::{ClaimedMr, MrRange},
        slot::SlotValue,
    },
    bindings::{
        ib_mr_type_IB_MR_TYPE_DM as TYPE_DM, ib_mr_type_IB_MR_TYPE_SG_GAPS as TYPE_SG_GAPS,
    },
    kernel_ext::{
        rdma::{
            mr::{NewMr, Right},
            Access, Mr,
        },
        sync::srcu::Cell,
    },
};
use core::{
    mem::{align_of, offset_of, size_of},
    ops::Deref,
    sync::atomic::{fence, Ordering},
};
use kernel::{prelude::*, types::Opaque};

/// Marks this module's MRs for fast registration. No MR has such a page size.
const FAST_REG_SHIFT: u32 = bindings::IB_MKEY_RXE_FAST_REG_SHIFT;

/// An MR of an rxe device.
///
/// # Invariants
///
/// This is the structure that rxe allocated for the MR. It is valid as long as the MR.
#[repr(transparent)]
pub(crate) struct RxeMr(Opaque<rxe_mr>);

impl Deref for RxeMr {
    type Target = Mr;

    #[inline]
    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(&raw mut (*self.private()).ibmr) }
    }
}

impl RxeMr {
    /// Returns `mr` with rxe's structure; [`None`] for an MR of another driver.
    #[inline]
    pub(super) fn of(mr: &Mr) -> Option<&Self> {
        if !is_rxe(mr.device()) {
            return None;
        }
        let private = mr.as_raw().wrapping_byte_sub(offset_of!(rxe_mr, ibmr));
        // SAFETY: rxe allocates each MR as a part of its structure.
        Some(unsafe { Self::from_raw(private.cast()) })
    }

    /// # Safety
    ///
    /// `mr` must be an MR of an rxe device, valid for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(mr: *mut rxe_mr) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        // INVARIANT: By the safety requirement.
        unsafe { &*mr.cast::<Self>() }
    }

    /// Returns rxe's structure.
    #[inline]
    pub(super) fn private(&self) -> *mut rxe_mr {
        self.0.get()
    }

    /// Returns the MR if it is claimed.
    #[inline]
    pub(super) fn claimed(&self) -> Option<&ClaimedRxeMr> {
        // SAFETY: The MR is valid, and its type does not change while accesses find it. The core
        // writes the type of device memory once more, but it is the same one.
        let kind = unsafe { (*self.as_raw()).type_ };
        if kind != TYPE_SG_GAPS && kind != TYPE_DM {
            return None;
        }
        // SAFETY: Stock rxe makes no MR of these types. Only `ClaimedRxeMr::new()` and `new_dm()` set
        // them.
        Some(unsafe { ClaimedRxeMr::from_raw(self.private()) })
    }

    /// Returns the state, as of a time after which all reads of other fields follow.
    pub(super) fn state(&self) -> bindings::rxe_mr_state {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_state(self.private()) }
    }

    /// Sets the state, after all writes of other fields.
    pub(super) fn set_state(&self, state: bindings::rxe_mr_state) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_set_state(self.private(), state) };
    }

    /// Returns the number of memory windows that are bound to the MR.
    pub(super) fn num_mw(&self) -> i32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_num_mw(self.private()) }
    }

    /// Returns the access flags.
    pub(super) fn access(&self) -> i32 {
        // SAFETY: By the type invariant; the field is written as a whole.
        unsafe { (&raw const (*self.private()).access).read_volatile() }
    }

    /// Sets the access flags.
    pub(super) fn set_access(&self, access: Access) {
        // SAFETY: By the type invariant; rxe reads the field as a whole, at any time.
        unsafe { (&raw mut (*self.private()).access).write_volatile(access.into_raw() as i32) };
    }
}

/// An MR of an rxe device that this module has claimed.
///
/// # Invariants
///
/// [`Self::new`] claimed the MR. Its `page_mask` is a [`Cell`], which stock code does not use for an MR
/// of this type.
#[repr(transparent)]
pub(crate) struct ClaimedRxeMr(RxeMr);

impl Deref for ClaimedRxeMr {
    type Target = Mr;

    #[inline]
    fn deref(&self) -> &Mr {
        &self.0
    }
}

impl ClaimedRxeMr {
    /// Claims an MR.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR of another driver.
    pub(super) fn new(new: NewMr<'_>) -> Result<&Self> {
        let mr = RxeMr::of(new.into_mr()).ok_or(EINVAL)?;
        let private = mr.private();
        // SAFETY: The MR is new, so no other thread reads these fields for an access. `nbuf` is 0, so
        // stock code that ignored the type would find no page.
        unsafe {
            // This makes the field an empty cell.
            (*private).page_mask = 0;
            (*mr.as_raw()).type_ = TYPE_SG_GAPS;
            (*mr.as_raw()).iova = 0;
            (*mr.as_raw()).length = 0;
            (*private).access = 0;
            (*private).nbuf = 0;
            bindings::ib_mkey_rxe_claim(private);
        }
        mr.set_state(FREE);
        // SAFETY: The MR was claimed above.
        Ok(unsafe { Self::from_raw(private) })
    }

    /// Claims an MR for device memory. As for [`Self::new`].
    pub(super) fn new_dm(new: NewMr<'_>) -> Result<&Self> {
        let mr = Self::new(new)?;
        // SAFETY: No access has been allowed, so no other thread reads the field.
        unsafe { (*mr.as_raw()).type_ = TYPE_DM };
        Ok(mr)
    }

    /// Claims an MR for fast registration. As for [`Self::new`].
    pub(super) fn new_fast_reg(new: NewMr<'_>) -> Result<&Self> {
        let mr = Self::new(new)?;
        // SAFETY: As for `new_dm()`. Stock code does not read the field of such an MR.
        unsafe { (*mr.private()).page_shift = FAST_REG_SHIFT };
        Ok(mr)
    }

    /// # Safety
    ///
    /// `mr` must be an MR that was claimed, valid for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(mr: *mut rxe_mr) -> &'a Self {
        // SAFETY: By the safety requirement, and the types are transparent.
        // INVARIANT: By the safety requirement.
        unsafe { &*mr.cast::<Self>() }
    }

    /// Returns rxe's structure.
    #[inline]
    pub(super) fn private(&self) -> *mut rxe_mr {
        self.0.private()
    }

    /// Returns the range to which accesses are allowed; [`None`] while no access is.
    #[inline]
    pub(super) fn published(&self) -> Option<MrRange> {
        let mr = self.private();
        // SAFETY: By the type invariant. Each field is read as a whole, the state first.
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
        (state == VALID).then_some(range)
    }

    /// Returns `true` if the MR is for fast registration.
    #[inline]
    pub(super) fn is_fast_reg(&self) -> bool {
        // SAFETY: By the type invariant. The field is set before any peer knows the MR's key.
        unsafe { (*self.private()).page_shift == FAST_REG_SHIFT }
    }
}

impl ClaimedMr for ClaimedRxeMr {
    type Counted = CountedMw;

    fn count_window(&self) -> CountedMw {
        CountedMw::new(self.device())
    }

    #[inline(always)]
    fn slot<T: SlotValue>(&self) -> &Cell<T> {
        const { assert!(size_of::<Cell<T>>() == size_of::<u64>()) };
        const { assert!(align_of::<Cell<T>>() == align_of::<u64>()) };
        // SAFETY: By the type invariant. Only one type of objects is in cells, by the contract of
        // `SlotValue`.
        unsafe { &*(&raw mut (*self.private()).page_mask).cast::<Cell<T>>() }
    }

    fn narrow(&self, access: Access) {
        let now = Access::from_raw(self.0.access() as u32);
        self.0.set_access(now & access);
    }

    fn publish(&self, range: MrRange, access: Access) {
        // SAFETY: By the type invariant. rxe reads each field as a whole, at any time.
        unsafe {
            (&raw mut (*self.as_raw()).iova).write_volatile(range.start);
            (&raw mut (*self.as_raw()).length).write_volatile(range.len);
        }
        // With `MW_BIND`, rxe would bind windows directly to the MR, see `region/window.rs`. With
        // `ZERO_BASED`, rxe would bind no window to the MR.
        self.0
            .set_access(access & !(Right::MwBind | Right::ZeroBased));
        self.0.set_state(VALID);
    }

    fn rekey(&self, key: u32) {
        let private = self.private();
        // SAFETY: As for `publish()`.
        unsafe {
            (&raw mut (*private).lkey).write_volatile(key);
            (&raw mut (*private).rkey).write_volatile(key);
        }
    }

    fn withdraw(&self) {
        self.0.set_state(FREE);
        self.0.set_access(Access::empty());
        // SAFETY: As for `publish()`.
        unsafe { (&raw mut (*self.as_raw()).length).write_volatile(0) };
    }

    fn is_open(&self) -> bool {
        self.0.state() == VALID
    }

    fn is_free(&self) -> bool {
        self.0.state() == FREE
    }

    fn key(&self) -> u32 {
        // SAFETY: As for `publish()`; both keys are the same.
        unsafe { (&raw const (*self.private()).rkey).read_volatile() }
    }

    fn register(&self, key: u32, access: Access) {
        self.0.set_access(access);
        self.rekey(key);
        self.0.set_state(VALID);
    }

    fn invalidate(&self) {
        // Length and address stay: the owner may have mapped new elements already.
        self.0.set_state(FREE);
    }
}
