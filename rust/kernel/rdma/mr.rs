// SPDX-License-Identifier: GPL-2.0

//! MRs and their access flags.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{mr_key, pd::Pd, Device};
use crate::{
    bindings,
    kernel_ext::sync::racing::{read_once, write_once},
};
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    types::Opaque,
};

kernel::impl_flags!(
    /// A set of access flags, `enum ib_access_flags`.
    #[derive(Debug, Clone, Default, Copy, PartialEq, Eq)]
    pub(crate) struct Access(u32);

    /// One access flag.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Right {
        /// This node may write.
        LocalWrite = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
        /// A remote node may write.
        RemoteWrite = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
        /// A remote node may read.
        RemoteRead = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        /// A remote node may do atomic operations.
        RemoteAtomic = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC,
        /// Memory windows may be bound to it.
        MwBind = bindings::ib_access_flags_IB_ACCESS_MW_BIND,
        /// Addresses start at zero.
        ZeroBased = bindings::ib_access_flags_IB_ZERO_BASED,
        /// A remote node may flush to global visibility.
        FlushGlobal = bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL,
        /// A remote node may flush to persistence.
        FlushPersistent = bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT,
        /// Writes may pass each other.
        RelaxedOrdering = bindings::ib_access_flags_IB_ACCESS_RELAXED_ORDERING,
    }
);

impl Access {
    /// Makes a set of a C bit mask. Unknown bits are kept, because the driver has checked the mask.
    pub(crate) const fn from_raw(bits: u32) -> Self {
        Self(bits)
    }

    /// Makes a set of the flags that a kernel user gives on `device`.
    ///
    /// # Errors
    ///
    /// The errors of `ib_check_mr_access()`: `EINVAL` for unknown flags, or for remote writes or
    /// atomics without local write; `EOPNOTSUPP` for flags that the device does not support.
    pub(crate) fn checked(device: &Device, bits: kernel::ffi::c_int) -> Result<Self> {
        let bits = bits as u32;
        // SAFETY: The device is registered.
        to_result(unsafe { bindings::ib_check_mr_access(device.as_raw(), bits) })?;
        Ok(Self(bits))
    }

    /// Returns the C bit mask.
    pub(crate) const fn into_raw(self) -> u32 {
        self.0
    }
}

/// Reads a field of a valid MR, which other code may write meanwhile.
macro_rules! read {
    ($mr:expr, $field:ident) => {
        // SAFETY: The MR is valid. All code writes the field at once, see `racing.rs`.
        unsafe { read_once(&raw const (*$mr.as_raw()).$field) }
    };
}

/// A memory region (MR).
#[repr(transparent)]
pub(crate) struct Mr(Opaque<bindings::ib_mr>);

impl Mr {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_mr) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.0.get()
    }

    /// Returns the MR's device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: An MR's device is set when it is made and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Returns the lkey.
    pub(crate) fn lkey(&self) -> u32 {
        read!(self, lkey)
    }

    /// Returns the rkey.
    pub(crate) fn rkey(&self) -> u32 {
        read!(self, rkey)
    }

    /// Makes `key` the lkey and the rkey in the fields that the owner of the MR reads.
    pub(crate) fn set_key(&self, key: u32) {
        // SAFETY: The MR is valid. All code writes the fields at once, see `racing.rs`.
        unsafe {
            write_once(&raw mut (*self.as_raw()).lkey, key);
            write_once(&raw mut (*self.as_raw()).rkey, key);
        }
    }

    /// Returns the index by which the device finds the MR. No two MRs of a device have the same
    /// index.
    pub(crate) fn index(&self) -> u32 {
        mr_key::index(self.lkey())
    }

    /// Returns `true` if the MR's type is `IB_MR_TYPE_SG_GAPS`.
    pub(crate) fn has_gaps(&self) -> bool {
        read!(self, type_) == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
    }

    /// Returns `true` if the type is that of memory of a process. Other pages may have this type,
    /// too.
    pub(crate) fn is_user(&self) -> bool {
        read!(self, type_) == bindings::ib_mr_type_IB_MR_TYPE_USER
    }

    /// Returns the first address of the MR, as its owner last set it.
    pub(crate) fn iova(&self) -> u64 {
        read!(self, iova)
    }

    /// Returns the page size that the MR's owner last asked for.
    pub(crate) fn page_size(&self) -> u32 {
        read!(self, page_size)
    }

    /// Returns `true` if the call that makes the MR has succeeded and no call that destroys it
    /// has begun.
    ///
    /// # Safety
    ///
    /// The MR must belong to a process. Its driver must not finish deregistering it before this
    /// returns.
    pub(crate) unsafe fn is_committed(&self) -> bool {
        // SAFETY: The core sets the object after the MR is made, and frees it after the driver
        // has deregistered the MR, which the safety requirement excludes. The counter is the
        // number of the object's users, or negative for one exclusive user.
        unsafe {
            let raw = self.as_raw();
            let owner = (&raw const (*raw).__bindgen_anon_1).cast::<*mut bindings::ib_uobject>();
            let uobject = read_once(owner);
            !uobject.is_null() && read_once(&raw const (*uobject).usecnt.counter) >= 0
        }
    }

    /// Returns the protection domain. `rereg_mr` may change it at any time.
    pub(crate) fn pd(&self) -> *mut bindings::ib_pd {
        read!(self, pd)
    }
}

/// A new MR. Its maker gives the MR its kind by consuming this.
///
/// # Invariants
///
/// - The driver made the MR for fast registration. The MR was never mapped or registered, and its
///   maker has not given it to a user. The driver may look the MR up for a peer that guesses its
///   key, and refuses the request.
/// - An MR has one `NewMr` at most.
pub(crate) struct NewMr<'a>(&'a Mr);

impl<'a> NewMr<'a> {
    /// # Safety
    ///
    /// `mr` must be as the type invariants require.
    pub(super) unsafe fn new(mr: &'a Mr) -> Self {
        // INVARIANT: By the safety requirement.
        Self(mr)
    }

    /// Returns the MR, which is not new any more.
    pub(crate) fn into_mr(self) -> &'a Mr {
        self.0
    }
}

impl core::ops::Deref for NewMr<'_> {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        self.0
    }
}

/// An MR that `ib_alloc_mr()` made. Dropping it deregisters the MR.
///
/// # Invariants
///
/// The pointer came from `ib_alloc_mr()` or another function that makes an MR, and only this
/// deregisters it.
#[repr(transparent)]
pub(crate) struct OwnedMr(pub(super) NonNull<bindings::ib_mr>);

// SAFETY: MRs may be used from any thread.
unsafe impl Send for OwnedMr {}
// SAFETY: Any thread may use an MR, also several at once.
unsafe impl Sync for OwnedMr {}

impl OwnedMr {
    /// Allocates an `IB_MR_TYPE_MEM_REG` MR for `pages` pages, in the free state. Returns the MR,
    /// and the result of `prepare`, which gets the MR while it is new.
    ///
    /// # Errors
    ///
    /// The errors of `ib_alloc_mr()` and of `prepare`.
    pub(crate) fn new<T>(
        pd: &Pd,
        pages: u32,
        prepare: impl FnOnce(NewMr<'_>) -> Result<T>,
    ) -> Result<(Self, T)> {
        // SAFETY: The protection domain is valid.
        let raw = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // INVARIANT: Allocated above.
        let mr = Self(NonNull::new(raw).ok_or(ENOMEM)?);
        // SAFETY: Allocated above, and there is no other `NewMr` of it.
        let prepared = prepare(unsafe { NewMr::new(&mr) })?;
        Ok((mr, prepared))
    }

    /// Gives the MR to `ib_core` or to a caller, who deregisters it with `ib_dereg_mr()`.
    pub(crate) fn into_raw(self) -> *mut bindings::ib_mr {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl core::ops::Deref for OwnedMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedMr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let ret = unsafe { bindings::ib_dereg_mr_user(self.0.as_ptr(), core::ptr::null_mut()) };
        if ret != 0 {
            pr_err!(
                "an MR of this module cannot be deregistered: error {}\n",
                ret
            );
        }
    }
}
