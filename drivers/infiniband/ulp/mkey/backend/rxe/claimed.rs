// SPDX-License-Identifier: GPL-2.0

//! rxe's MRs, and those that this module has claimed.
//!
//! A reference to one of these types proves that the functions of this backend may use the fields
//! of the MR. [`RxeMr::of`] and [`Claimed::of`] make such references of any MR, by a comparison.
//! [`Claimed::new`] claims a new MR. rxe's operations make them of their arguments
//! (`mr_ops.rs`).
//!
//! # Racing accesses
//!
//! rxe reads and writes the state, the keys, the access flags, the range and the counts of an MR at
//! any time: for each packet, in rereg, and for fast registration. It takes no lock that this
//! module could hold. rxe and this module write each of these fields at once, with a value of its
//! type. So Rust reads and writes them here alone, by the functions of
//! `rust/kernel/sync/racing.rs`. That file says why this is sound. C uses `READ_ONCE()`,
//! `WRITE_ONCE()` and the functions of `atomic_t`. A reader that needs several fields reads the
//! state first. The same holds for the type and the page size: both change only while an MR is new,
//! but a request with a guessed key may find the MR then.
//!
//! The page table and the memory of an MR (`umem`) are not accessed in this way. They are written
//! before an MR becomes valid, and exchanged while no other thread has a reference to the MR
//! (`rereg.rs`). Only code that keeps the MR from being mapped again reads them (`pages.rs`).

use super::{
    bindings::{
        self, rxe_mr, rxe_mr_state, rxe_mr_state_RXE_MR_STATE_FREE as FREE,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    device::is_ours,
};
use crate::{
    bindings::{
        ib_mr_type, ib_mr_type_IB_MR_TYPE_DM as TYPE_DM,
        ib_mr_type_IB_MR_TYPE_SG_GAPS as TYPE_SG_GAPS,
    },
    kernel_ext::{
        rdma::{mr::NewMr, Access, Device, Mr},
        sync::racing::{load_acquire, read_once, store_release, write_once},
    },
};
use core::{mem::offset_of, ops::Deref, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{
        aref::{ARef, AlwaysRefCounted},
        Arc, ArcBorrow,
    },
    types::Opaque,
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

/// The type of the objects in the slots of claimed MRs.
///
/// A slot is a pointer in the driver's own structure of a claimed MR, by which the data path finds
/// the object of the MR without a look-up. The slot is a part of the MR, so only code that has a
/// reference to the MR reads it ([`Claimed::object`]). The driver waits for all references when it
/// deregisters the MR, and the owner of the object keeps it until then. So a reader needs no lock and
/// no count.
///
/// # Safety
///
/// Only one type implements this trait, because a slot does not record the type of its object.
pub(crate) unsafe trait SlotValue: Send + Sync + 'static {}

/// Marks this module's MRs for fast registration. No MR has such a page size.
const FAST_REG_SHIFT: u32 = bindings::IB_MKEY_RXE_FAST_REG_SHIFT;

/// Reads a field that rxe may write meanwhile.
macro_rules! get_field {
    ($mr:ident . $($field:ident).+) => {
        // SAFETY: By the invariant of `RxeMr`, and as the comment of the file says.
        unsafe { read_once(&raw const (*$mr.private()).$($field).+) }
    };
}

/// Writes a field that rxe may read meanwhile.
macro_rules! set_field {
    ($mr:ident . $($field:ident).+, $value:expr) => {
        // SAFETY: By the invariant of `RxeMr`, and as the comment of the file says.
        unsafe { write_once(&raw mut (*$mr.private()).$($field).+, $value) }
    };
}

/// Reads a field, and makes the fields that are read later as new as this one. Pairs with
/// `release_field!`.
macro_rules! acquire_field {
    ($mr:ident . $($field:ident).+) => {
        // SAFETY: By the invariant of `RxeMr`, and as the comment of the file says.
        unsafe { load_acquire(&raw const (*$mr.private()).$($field).+) }
    };
}

/// Writes a field after the fields that were written before. Pairs with `acquire_field!`.
macro_rules! release_field {
    ($mr:ident . $($field:ident).+, $value:expr) => {
        // SAFETY: By the invariant of `RxeMr`, and as the comment of the file says.
        unsafe { store_release(&raw mut (*$mr.private()).$($field).+, $value) }
    };
}

/// Returns the structure around `mr`, if the MR belongs to rxe.
fn around(mr: &Mr) -> *mut rxe_mr {
    mr.as_raw()
        .wrapping_byte_sub(offset_of!(rxe_mr, ibmr))
        .cast()
}

/// An MR of an rxe device.
///
/// # Invariants
///
/// This is the structure that rxe allocated for the MR. It is valid as long as the MR.
#[repr(transparent)]
pub(crate) struct RxeMr(Opaque<rxe_mr>);

impl Deref for RxeMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(&raw mut (*self.private()).ibmr) }
    }
}

// SAFETY: Any thread may do the operations on an MR.
unsafe impl Send for RxeMr {}
// SAFETY: Any thread may do the operations on an MR, and several at a time.
unsafe impl Sync for RxeMr {}

// SAFETY: rxe counts the references to an MR, and frees it after the last one was dropped.
unsafe impl AlwaysRefCounted for RxeMr {
    fn inc_ref(&self) {
        // SAFETY: The MR has a reference.
        unsafe { bindings::ib_mkey_rxe_ref_mr(self.private()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { bindings::ib_mkey_rxe_put_mr(obj.as_ptr().cast()) };
    }
}

impl RxeMr {
    /// Finds the MR at `index`; [`None`] for a device of another driver.
    pub(super) fn at(device: &Device, index: u32) -> Option<ARef<Self>> {
        if !is_ours(device) {
            return None;
        }
        // SAFETY: The device belongs to rxe. The function takes the reference, and the type is
        // transparent.
        unsafe {
            let raw = NonNull::new(bindings::ib_mkey_rxe_get_mr(device.as_raw(), index))?;
            Some(ARef::from_raw(raw.cast()))
        }
    }

    /// Returns `mr` with rxe's structure; [`None`] for an MR of another driver.
    pub(super) fn of(mr: &Mr) -> Option<&Self> {
        if !is_ours(mr.device()) {
            return None;
        }
        // SAFETY: rxe allocates each MR as a part of its structure, which this module knows.
        Some(unsafe { Self::from_raw(around(mr)) })
    }

    /// # Safety
    ///
    /// `mr` must be an MR of an rxe device, valid for `'a`.
    pub(super) unsafe fn from_raw<'a>(mr: *mut rxe_mr) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        // INVARIANT: By the safety requirement.
        unsafe { &*mr.cast::<Self>() }
    }

    /// Returns rxe's structure.
    pub(super) fn private(&self) -> *mut rxe_mr {
        self.0.get()
    }

    /// Returns the type. Fields that are read later are as new as the type.
    pub(super) fn kind(&self) -> ib_mr_type {
        acquire_field!(self.ibmr.type_)
    }

    /// Sets the type, after the fields that were written before.
    pub(super) fn set_kind(&self, kind: ib_mr_type) {
        release_field!(self.ibmr.type_, kind);
    }

    /// Returns the state. Fields that are read later are as new as the state.
    pub(super) fn state(&self) -> rxe_mr_state {
        acquire_field!(self.state)
    }

    /// Sets the state, after the fields that were written before.
    pub(super) fn set_state(&self, state: rxe_mr_state) {
        release_field!(self.state, state);
    }

    /// Returns the access flags.
    pub(super) fn access(&self) -> Access {
        Access::from_raw(get_field!(self.access) as u32)
    }

    /// Sets the access flags.
    pub(super) fn set_access(&self, access: Access) {
        set_field!(self.access, access.into_raw() as i32);
    }

    /// Returns the lkey by which rxe knows the MR. The one in `ib_mr` may differ.
    pub(super) fn own_lkey(&self) -> u32 {
        get_field!(self.lkey)
    }

    /// Returns the rkey by which rxe knows the MR. The one in `ib_mr` may differ.
    pub(super) fn own_rkey(&self) -> u32 {
        get_field!(self.rkey)
    }

    /// Sets the lkey and the rkey by which rxe knows the MR.
    fn set_own_keys(&self, key: u32) {
        set_field!(self.lkey, key);
        set_field!(self.rkey, key);
    }

    /// Returns the first address and the length.
    pub(super) fn range(&self) -> MrRange {
        MrRange {
            start: get_field!(self.ibmr.iova),
            len: get_field!(self.ibmr.length),
        }
    }

    /// Sets the first address and the length.
    pub(super) fn set_range(&self, range: MrRange) {
        self.set_start(range.start);
        set_field!(self.ibmr.length, range.len);
    }

    /// Sets the first address.
    pub(super) fn set_start(&self, start: u64) {
        set_field!(self.ibmr.iova, start);
    }

    /// Returns the page size, as the power of two.
    pub(super) fn page_shift(&self) -> u32 {
        get_field!(self.page_shift)
    }

    /// Returns the number of references. What the holders of others did to the MR before they
    /// dropped them is done.
    pub(super) fn references(&self) -> i32 {
        // Pairs with the release in `refcount_dec_and_test()`.
        acquire_field!(self.elem.ref_cnt.refcount.refs.counter)
    }

    /// Returns the number of memory windows that are bound to the MR.
    pub(super) fn num_mw(&self) -> i32 {
        get_field!(self.num_mw.counter)
    }
}

/// An MR of an rxe device that this module has claimed: rxe calls this module for accesses to it. Only
/// the backend makes references to such MRs, so code that has one cannot pass another MR.
///
/// # Invariants
///
/// [`Self::with_type`] claims the MR, or has claimed it. Its `page_mask` is zero, or the address of
/// an object that exists until rxe has deregistered the MR. rxe does not use the field of such an MR.
#[repr(transparent)]
pub(crate) struct Claimed(RxeMr);

impl Deref for Claimed {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        &self.0
    }
}

impl Claimed {
    /// Returns `mr` if it is claimed.
    #[inline]
    pub(crate) fn of(mr: &Mr) -> Option<&Self> {
        let mr = RxeMr::of(mr)?;
        // Pairs with the release in `ib_mkey_rxe_claim()`.
        if acquire_field!(mr.ops).is_null() {
            return None;
        }
        // SAFETY: rxe makes MRs without operations. Only `with_type()` gives an MR some.
        Some(unsafe { Self::from_raw(mr.private()) })
    }

    /// Takes a new MR over: rxe calls this module for accesses to it. No access is allowed yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR of another driver.
    pub(crate) fn new(new: NewMr<'_>) -> Result<&Self> {
        Self::with_type(new, TYPE_SG_GAPS)
    }

    /// Takes a new MR over for device memory, as [`Self::new`] does. Sets the MR's type now: the core
    /// sets the same type only when accesses may already read it.
    pub(crate) fn new_dm(new: NewMr<'_>) -> Result<&Self> {
        Self::with_type(new, TYPE_DM)
    }

    /// Takes a new MR over for fast registration, as [`Self::new`] does.
    pub(crate) fn new_fast_reg(new: NewMr<'_>) -> Result<&Self> {
        let mr = Self::new(new)?;
        // rxe does not use the page size of such an MR. A request with a guessed key may find
        // the MR before this line. It takes the MR for an unbound key, and is refused.
        set_field!(mr.page_shift, FAST_REG_SHIFT);
        Ok(mr)
    }

    fn with_type(new: NewMr<'_>, kind: ib_mr_type) -> Result<&Self> {
        let mr = RxeMr::of(new.into_mr()).ok_or(EINVAL)?;
        let private = mr.private();
        // SAFETY: The MR is new. rxe and this module use these fields only of an MR that is valid or
        // claimed. `nbuf` is 0, so rxe would find no page without the operations.
        unsafe {
            // This makes the field an empty slot.
            (*private).page_mask = 0;
            (*private).nbuf = 0;
        }
        mr.set_range(MrRange { start: 0, len: 0 });
        mr.set_access(Access::empty());
        // rxe calls this module from the next line on, for a request with a guessed key, too. That
        // finds the empty slot.
        // SAFETY: The MR is valid, and not in the state `VALID`. It is claimed after the call.
        let claimed = unsafe {
            bindings::ib_mkey_rxe_claim(private);
            Self::from_raw(private)
        };
        mr.set_kind(kind);
        mr.set_state(FREE);
        Ok(claimed)
    }

    /// # Safety
    ///
    /// `mr` must be an MR that was claimed, valid for `'a`.
    pub(super) unsafe fn from_raw<'a>(mr: *mut rxe_mr) -> &'a Self {
        // SAFETY: By the safety requirement, and the types are transparent.
        // INVARIANT: By the safety requirement.
        unsafe { &*mr.cast::<Self>() }
    }

    /// Returns rxe's structure.
    pub(super) fn private(&self) -> *mut rxe_mr {
        self.0.private()
    }

    /// Returns the range to which accesses are allowed; [`None`] while no access is.
    pub(super) fn published(&self) -> Option<MrRange> {
        let state = self.0.state();
        let range = self.0.range();
        (state == VALID).then_some(range)
    }

    /// Returns `true` if the MR is for fast registration.
    pub(crate) fn is_fast_reg(&self) -> bool {
        self.0.page_shift() == FAST_REG_SHIFT
    }

    /// Returns the object in the slot of the MR, which is empty at first.
    pub(crate) fn object<T: SlotValue>(&self) -> Option<ArcBorrow<'_, T>> {
        let object = acquire_field!(self.page_mask) as usize as *const T;
        // SAFETY: `set_object()` got the pointer from an `Arc`. Only one type of objects is in
        // slots, by the contract of `SlotValue`. rxe does not deregister the MR while there is a
        // reference to it, so the object exists as long as `self`.
        (!object.is_null()).then(|| unsafe { ArcBorrow::from_raw(object) })
    }

    /// Puts `object` into the slot, which does not own it.
    ///
    /// # Safety
    ///
    /// The caller must keep the object until the driver has deregistered the MR.
    pub(crate) unsafe fn set_object<T: SlotValue>(&self, object: &Arc<T>) {
        let object = Arc::as_ptr(object) as usize as u64;
        // INVARIANT: By the safety requirement.
        release_field!(self.page_mask, object);
    }

    /// Removes all access flags that are not in `access`.
    pub(crate) fn narrow(&self, access: Access) {
        self.0.set_access(self.0.access() & access);
    }

    /// Allows accesses to `range`, with the access flags `access`.
    pub(crate) fn publish(&self, range: MrRange, access: Access) {
        self.0.set_range(range);
        self.0.set_access(access);
        self.0.set_state(VALID);
    }

    /// Makes `key` the lkey and the rkey by which the driver knows the MR. Only the low 8 bits may
    /// differ. The caller changes the fields of `ib_mr`.
    pub(crate) fn rekey(&self, key: u32) {
        self.0.set_own_keys(key);
    }

    /// Forbids accesses.
    pub(crate) fn withdraw(&self) {
        self.0.set_state(FREE);
        self.0.set_access(Access::empty());
        self.0.set_range(MrRange { start: 0, len: 0 });
    }

    /// Returns `true` if accesses are allowed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.state() == VALID
    }

    /// Returns `true` if the MR is neither open nor being deregistered.
    pub(crate) fn is_free(&self) -> bool {
        self.0.state() == FREE
    }

    /// Returns the lkey and rkey by which the driver knows the MR. The key in `ib_mr` may differ,
    /// because a kernel user changes it before the next registration or bind.
    pub(crate) fn key(&self) -> u32 {
        // Both keys are the same.
        self.0.own_rkey()
    }

    /// Allows accesses to an MR for fast registration, by `key`.
    pub(crate) fn register(&self, key: u32, access: Access) {
        self.0.set_access(access);
        self.rekey(key);
        self.0.set_state(VALID);
    }

    /// Forbids accesses to a registered MR.
    pub(crate) fn invalidate(&self) {
        // Length and address stay: the owner may have mapped new elements already.
        self.0.set_state(FREE);
    }
}
