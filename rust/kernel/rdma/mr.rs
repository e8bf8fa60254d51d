// SPDX-License-Identifier: GPL-2.0

//! Protection domains and memory regions.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::bindings;
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    str::{CStr, CStrExt},
    types::Opaque,
};

kernel::impl_flags!(
    /// A set of access rights, `enum ib_access_flags`.
    #[derive(Debug, Clone, Default, Copy, PartialEq, Eq)]
    pub(crate) struct Access(u32);

    /// One access right.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Right {
        /// The device may write on behalf of its own node.
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
    /// Makes a set of a C bit mask. Unknown bits are kept: they came through a check.
    pub(crate) const fn from_raw(bits: u32) -> Self {
        Self(bits)
    }

    /// Makes a set of what a kernel user asks for on `device`.
    ///
    /// # Errors
    ///
    /// Those of `ib_check_mr_access()`: `EINVAL` for unknown rights or for remote ones that need
    /// local write, `EOPNOTSUPP` for what the device cannot do.
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

/// A protection domain.
#[repr(transparent)]
pub(crate) struct Pd(Opaque<bindings::ib_pd>);

impl Pd {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_pd) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.0.get()
    }

    /// Is it one of the kernel's, not of a program?
    pub(crate) fn is_kernels(&self) -> bool {
        // SAFETY: The field is set when the domain is made.
        unsafe { (*self.as_raw()).uobject.is_null() }
    }

    /// Returns the lkey by which kernel users address all memory.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The field is set when the domain is made.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }

    /// Returns the device that it is of.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A protection domain's device is set when it is made and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }
}

/// A protection domain of this module's own.
///
/// # Invariants
///
/// The pointer came from `__ib_alloc_pd()`.
pub(crate) struct OwnedPd(NonNull<bindings::ib_pd>);

// SAFETY: Protection domains may be used from any thread.
unsafe impl Send for OwnedPd {}
// SAFETY: As above.
unsafe impl Sync for OwnedPd {}

impl OwnedPd {
    /// Makes a protection domain. `caller` is shown by `rdma resource show pd`.
    pub(crate) fn new(device: &Device, caller: &'static CStr) -> Result<Self> {
        // SAFETY: The device is valid and `caller` is a C string.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, caller.as_char_ptr())
        })?;
        // INVARIANT: As just allocated.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }
}

impl core::ops::Deref for OwnedPd {
    type Target = Pd;

    fn deref(&self) -> &Pd {
        // SAFETY: By the type invariant.
        unsafe { Pd::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedPd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; regions in it hold no reference any more, for their
        // owners are dropped first. The verb fails only where they are not.
        unsafe { bindings::ib_dealloc_pd_user(self.0.as_ptr(), core::ptr::null_mut()) };
    }
}

/// A memory region.
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

    /// Returns the device that it is of.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A region's device is set when it is made and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Returns the local key.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: The region is valid; the key is written when it is made.
        unsafe { (*self.as_raw()).lkey }
    }

    /// Returns the remote key.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: As for `lkey()`.
        unsafe { (*self.as_raw()).rkey }
    }

    /// Returns the index by which the device finds it, which no two regions of a device share.
    pub(crate) fn index(&self) -> u32 {
        self.lkey() >> 8
    }

    /// Is it of the type that kernel users map scatterlists with gaps to?
    pub(crate) fn has_gaps(&self) -> bool {
        // SAFETY: The region is valid; the type is set when it is made.
        unsafe { (*self.as_raw()).type_ == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS }
    }

    /// Returns the address that accesses to it start from, as its owner set it last.
    pub(crate) fn iova(&self) -> u64 {
        // SAFETY: The region is valid. The field is written as a whole, by its owner.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).iova) }
    }

    /// Returns the page size that its owner asked for last.
    pub(crate) fn page_size(&self) -> u32 {
        // SAFETY: As for `iova()`.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).page_size) }
    }

    /// Has the program's call that makes it succeeded, and none that destroys it begun?
    ///
    /// # Safety
    ///
    /// The region must be one of a program's, and its driver must not have finished
    /// deregistering it before this returns.
    pub(crate) unsafe fn is_committed(&self) -> bool {
        // SAFETY: The core sets the object when the region was made, and frees it after the driver
        // deregistered the region, which by the safety requirement is not yet. The count is that
        // of the object's users, negative while one has it to itself.
        unsafe {
            let raw = self.as_raw();
            let owner = (&raw const (*raw).__bindgen_anon_1).cast::<*mut bindings::ib_uobject>();
            let uobject = owner.read_volatile();
            !uobject.is_null() && (&raw const (*uobject).usecnt.counter).read_volatile() >= 0
        }
    }

    /// Returns the protection domain, which rereg_mr may change at any time.
    pub(crate) fn pd(&self) -> *mut bindings::ib_pd {
        // SAFETY: The region is valid. The field is a pointer, written as a whole.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).pd) }
    }
}

/// A memory window.
#[repr(transparent)]
pub(crate) struct Mw(Opaque<bindings::ib_mw>);

impl Mw {
    /// # Safety
    ///
    /// `raw` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_mw) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_mw {
        self.0.get()
    }

    /// Returns the device that it is of.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A window's device is set when it is made and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Returns what tells it from all other windows that there are.
    pub(crate) fn address(&self) -> usize {
        self.as_raw() as usize
    }
}

/// A memory region of a type that is made by `alloc_mr`, registered with `ib_core`.
///
/// # Invariants
///
/// The pointer came from `ib_alloc_mr()`, and nobody else deregisters it.
pub(crate) struct OwnedMr(NonNull<bindings::ib_mr>);

// SAFETY: Memory regions may be used from any thread.
unsafe impl Send for OwnedMr {}
// SAFETY: As above.
unsafe impl Sync for OwnedMr {}

impl OwnedMr {
    /// Allocates an `IB_MR_TYPE_MEM_REG` region for `pages` pages, in the free state.
    pub(crate) fn new(pd: &Pd, pages: u32) -> Result<Self> {
        // SAFETY: The protection domain is valid.
        let raw = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // INVARIANT: As just allocated.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Takes back what [`Self::into_raw`] gave away; [`None`] for NULL.
    ///
    /// # Safety
    ///
    /// `raw` must be NULL or have come from there, and nobody else may deregister it.
    pub(crate) unsafe fn from_raw(raw: *mut bindings::ib_mr) -> Option<Self> {
        // INVARIANT: By the safety requirement.
        NonNull::new(raw).map(Self)
    }

    /// Gives it to `ib_core`'s or a caller's keeping, to be deregistered by `ib_dereg_mr()`.
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
                "a region of our own cannot be deregistered: error {}\n",
                ret
            );
        }
    }
}
