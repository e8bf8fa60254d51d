// SPDX-License-Identifier: GPL-2.0

//! The operations of an RDMA device that a client fills in or wraps: the trait that the client
//! implements, and the saved operations of the driver. `install.rs` installs the client's
//! operations in a device.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    client::{Adding, ClientOps, ModulePin},
    device::Device,
    dm::Dm,
    driver_mr::DriverMr,
    mr::{Access, Mr, Mw, NewMr},
    pd::Pd,
    qp::{Ah, Qp},
    scatterlist::{Elements, MappedElements},
    uapi::{Attrs, DefinitionChain, Definitions},
};
use crate::{
    bindings,
    kernel_ext::{
        dma_buf::{DmaBuf, Import},
        error::eopnotsupp,
        sync::srcu,
        user::User,
    },
};
use core::{marker::PhantomData, ops::Deref, ptr};
use kernel::{
    error::from_err_ptr,
    ffi::c_int,
    prelude::*,
    sync::{Arc, ArcBorrow},
    types::NotThreadSafe,
};

/// The operations that a client provides for a device.
pub(crate) trait DeviceOps: ClientOps {
    /// The client's table of uverbs definitions.
    const DEFINITIONS: Definitions;

    /// The client's data in a device memory object.
    type Dm: Send + Sync;

    /// The class of device memory that an allocation asks for.
    type DmClass;

    /// Returns the class that a process asks for by the client's attributes.
    ///
    /// # Errors
    ///
    /// The errors of [`Attrs::get_u64`]; `EINVAL` for a class that does not exist.
    fn dm_class(attrs: &Attrs<'_>) -> Result<Self::DmClass>;

    /// Returns the device's operations, the original ones and the current ones.
    fn overlay(&self) -> &Overlay;

    /// Returns the bytes of device memory that the standard query announces to processes: zero if
    /// they may be unable to allocate any. Kernel users find the total in `ib_device.attrs`.
    fn announced_dm_size(&self) -> u64;

    /// Allocates device memory of `attr.length` bytes, for a user, or for the kernel
    /// without one.
    fn alloc_dm(
        this: ArcBorrow<'_, Self>,
        attr: &bindings::ib_dm_alloc_attr,
        class: Self::DmClass,
        user: Option<User>,
    ) -> Result<KBox<Dm<Self::Dm>>>;

    /// Makes `mr` an MR in `pd` over `length` bytes of `dm`. The core has checked the range.
    fn reg_dm_mr(
        this: ArcBorrow<'_, Self>,
        mr: NewMr<'_>,
        pd: &Pd,
        dm: &Dm<Self::Dm>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result;

    /// Makes `mr` an MR for up to `max` elements of a scatterlist, which may have gaps.
    fn alloc_fast_reg(this: ArcBorrow<'_, Self>, mr: NewMr<'_>, max: u32) -> Result;

    /// Maps as many of the first elements as fit to such an MR. The next registration of the MR is
    /// over these elements. Must not sleep or allocate.
    fn map_fast_reg(&self, mr: &Mr, elements: Elements<'_>) -> Result<MappedElements>;

    /// Returns the page size with which the MR was last mapped, or its initial one. Must not sleep.
    fn page_size(&self, mr: &Mr) -> u32;

    /// Checks whether the driver may map other memory to an ordinary MR for fast registration. Must
    /// not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned.
    fn may_map(&self, mr: &Mr) -> Result;

    /// An MR that is about to be deregistered.
    type Leaving;

    /// Checks that an MR may be deregistered, and forbids new accesses to it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; `EINVAL` while a window of the driver is bound to it.
    fn leave(&self, mr: &Mr) -> Result<Self::Leaving>;

    /// Returns `true` if an access to the MR may be in progress that can take arbitrarily long,
    /// because a process decides how long.
    fn is_held_up(leaving: &Self::Leaving) -> bool;

    /// Waits for the accesses of which [`Self::is_held_up`] tells. `mr` is the MR that is leaving.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if accesses are left, and the MR must stay. [`Self::stay`] is called then.
    fn wait(mr: &Mr, leaving: &Self::Leaving) -> Result;

    /// The data of an MR that was deregistered. Dropping them may sleep as long as the exporter of a
    /// dma-buf likes.
    type Left;

    /// Deregisters an MR by calling `stock`, after [`Self::wait`] has returned. The binding of the
    /// MR is dropped, or stays if this fails.
    fn dereg_mr(
        &self,
        mr: &Mr,
        leaving: Self::Leaving,
        stock: impl FnOnce() -> Result,
    ) -> Result<Self::Left>;

    /// Undoes [`Self::leave`], after an error of [`Self::wait`], or if the client was removed and the
    /// driver did not deregister the MR.
    fn stay(mr: &Mr, leaving: Self::Leaving);

    /// Checks that an MR over a dma-buf can have these access flags.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if it cannot.
    fn may_import(&self, access: Access) -> Result;

    /// Checks that a dma-buf may be mapped in the kernel.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the client exported and revoked it.
    fn check_dma_buf(buffer: &DmaBuf) -> Result;

    /// The charge for the memory of an MR over a dma-buf.
    type Charge;

    /// Charges the memory of an MR in `pd` over `pages` pages, before the MR is made.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    fn charge_import(&self, pd: &Pd, pages: usize) -> Result<Self::Charge>;

    /// Makes `mr` an MR over `length` bytes of `import` from `offset` on. The first address of `mr`
    /// is `addr`. `mr` was allocated for as many pages as the range has, and keeps `charge`.
    #[allow(clippy::too_many_arguments, reason = "those of the verb")]
    fn reg_dmabuf_mr(
        this: ArcBorrow<'_, Self>,
        mr: NewMr<'_>,
        import: Import,
        charge: Self::Charge,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result;

    /// Called before the driver deallocates the memory window `mw`.
    fn close_mw(&self, mw: &Mw);

    /// The bindings of a deallocated memory window. Dropping them sleeps.
    type Forgotten;

    /// Called after the driver deallocated the memory window `mw`, and before the core frees it.
    fn forget_mw(&self, mw: &Mw) -> Self::Forgotten;

    /// Prepares a change of the protection domain, if `changes_pd` is `true`, or of other properties
    /// of an MR.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if they may not be changed.
    fn prepare_rereg(&self, mr: &Mr, changes_pd: bool) -> Result;

    /// Returns the access flags of one of the driver's MRs.
    fn rights(&self, mr: &Mr) -> Access;

    /// Moves an MR to the memory of `spare`, which has no other user. The MR then has `range.1`
    /// bytes from address `range.0` on, and `spare` has the old memory. `finish` lets the driver do
    /// the rest. On an error nothing has changed.
    fn retranslate(
        &self,
        mr: &Mr,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result;

    /// Called with a QP that the driver has created, before its user knows it. Only the QP of a
    /// kernel user may outlive the client.
    fn created_qp(&self, qp: &Qp);

    /// Called with the QP of a process, before the driver destroys it. Forbids the QP to bind more
    /// memory windows. Returns `true` if windows may be bound to it.
    fn close_qp(&self, qp: &Qp) -> bool;

    /// The bindings of some memory windows that ended. Dropping them sleeps.
    type Ended;

    /// Ends the bindings of some memory windows that are bound to a closed QP, from the index
    /// `from` on. Sets `from` to the index with which the next call begins. Returns [`None`] if no
    /// window is left. Sleeps.
    fn end_windows(&self, qp: &Qp, from: &mut u32) -> Option<Self::Ended>;

    /// Waits for the accesses of the QP of a process, which is about to be destroyed. Sleeps as
    /// long as the process likes.
    fn end_tasks(qp: &Qp);

    /// Waits for the requests that use an address handle of a process, which is about to be
    /// destroyed. No later request finds it. Sleeps as long as the process likes.
    fn end_ah(ah: &Ah);

    /// Keeps MRs from being deregistered.
    type Held;

    /// Keeps the MRs that `lkeys` name, while the driver handles advice about them.
    ///
    /// # Errors
    ///
    /// `ENOENT` or `EINVAL` if the driver must not handle advice about one of them; `ENOMEM`.
    fn hold_for_advice(&self, pd: &Pd, lkeys: impl Iterator<Item = u32>) -> Result<Self::Held>;

    /// Keeps the client's module loaded.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the module is being unloaded, as only a forced removal does here.
    fn pin() -> Result<ModulePin>;
}

/// A device's operations before a client changed them.
///
/// # Invariants
///
/// `stock` and the fields after it are those of `device` before [`Self::install`] changed them.
pub(crate) struct Overlay {
    pub(super) device: *const bindings::ib_device,
    pub(super) stock: bindings::ib_device_ops,
    pub(super) stock_def: *const bindings::uapi_definition,
    pub(super) stock_max_dm_size: u64,
    pub(super) stock_cap_flags: u64,
    /// The client's table, after the device's own one if it has one.
    pub(super) chain: DefinitionChain,
}

// SAFETY: `stock` and the pointers are only read. Only `install()` writes `chain`, while the device
// is being added.
unsafe impl Send for Overlay {}
// SAFETY: As above.
unsafe impl Sync for Overlay {}

impl Overlay {
    /// Saves the operations of a device.
    pub(crate) fn new(device: &Adding<'_>) -> Self {
        let raw = device.as_raw();
        // SAFETY: Operations and attributes are set before a device is registered, and only the
        // client changes them later.
        // INVARIANT: The client installs after it was added, and restores when it is removed.
        unsafe {
            Self {
                device: raw,
                stock: ptr::read(&raw const (*raw).ops),
                stock_def: (*raw).driver_def,
                stock_max_dm_size: (*raw).attrs.max_dm_size,
                stock_cap_flags: (*raw).attrs.kernel_cap_flags,
                chain: DefinitionChain::new(),
            }
        }
    }

    /// Returns `true` if these are the operations of `device`.
    pub(super) fn is_of(&self, device: &Device) -> bool {
        ptr::eq(device.as_raw(), self.device)
    }

    /// Returns `true` if the device lacks device memory, so that the client fills it in.
    pub(crate) fn fills_dm(&self) -> bool {
        self.stock.alloc_dm.is_none()
    }

    /// Returns `true` if the device supports fast registration, but not of scatterlists with gaps.
    pub(super) fn fills_gaps(&self) -> bool {
        let gaps = u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
        self.stock.alloc_mr.is_some()
            && self.stock.map_mr_sg.is_some()
            && self.stock_cap_flags & gaps == 0
    }

    /// Makes an MR for `pages` pages by the driver. `ib_core` does not know it. `prepare` gets the
    /// MR while it is new.
    ///
    /// # Errors
    ///
    /// Those of the driver and of `prepare`.
    pub(super) fn alloc_mr(
        &self,
        pd: &Pd,
        pages: u32,
        prepare: impl FnOnce(NewMr<'_>) -> Result,
    ) -> Result<DriverMr> {
        let alloc_mr = self.stock.alloc_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The protection domain is of this device.
        let raw = from_err_ptr(unsafe {
            alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // SAFETY: `raw` is a new MR. The core sets these fields in `ib_alloc_mr()`, or after
        // `reg_dm_mr()` has returned; `device` and `pd` are needed before.
        unsafe {
            (*raw).device = pd.device().as_raw();
            (*raw).pd = pd.as_raw();
        }
        // SAFETY: Allocated above.
        let mr = unsafe { DriverMr::from_raw(raw, self.stock.dereg_mr) };
        // SAFETY: Allocated above, and there is no other `NewMr` of it.
        prepare(unsafe { NewMr::new(&mr) })?;
        Ok(mr)
    }
}

/// A part of a call that [`Overlay::drain`] waits for.
struct Section {
    index: c_int,
    _not_send: NotThreadSafe,
}

impl Section {
    fn enter() -> Self {
        Self {
            // SAFETY: No preconditions.
            index: unsafe { bindings::rdma_ops_enter() },
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: `enter()` entered, in this thread.
        unsafe { bindings::rdma_ops_leave(self.index) };
    }
}

/// Keeps the client's module loaded while a driver's operation sleeps. The operation returns to code
/// of the module.
///
/// [`Overlay::drain`] does not wait for this, because a process may decide how long the operation
/// takes. It waits only if the module could not be pinned.
pub(crate) struct Loaded {
    _pin: Option<ModulePin>,
    _section: Option<Section>,
}

impl Loaded {
    /// Replaces `section` by a pin of the module. While `section` exists, the client has data of
    /// the device or waits in [`Overlay::drain`]. The module is not unloaded in either case.
    fn instead_of<T: DeviceOps>(section: Section) -> Self {
        let pin = T::pin().ok();
        let section = pin.is_none().then_some(section);
        Self {
            _pin: pin,
            _section: section,
        }
    }
}

/// The client was removed from the device after an operation had been called. The device has the
/// driver's operations again. [`Overlay::drain`] waits until this is dropped.
pub(crate) struct Removed<T: DeviceOps> {
    section: Section,
    _client: PhantomData<T>,
}

impl<T: DeviceOps> Removed<T> {
    /// Keeps the client's module loaded while the driver's operation sleeps.
    pub(crate) fn keep_loaded(self) -> Loaded {
        Loaded::instead_of::<T>(self.section)
    }
}

impl<T: DeviceOps> From<Removed<T>> for Error {
    fn from(_: Removed<T>) -> Self {
        ENODEV
    }
}

/// A running operation of a client. The client's data for the device stay until this is dropped.
pub(crate) struct Running<'a, T: DeviceOps> {
    data: Arc<T>,
    section: Section,
    _device: PhantomData<&'a Device>,
}

impl<'a, T: DeviceOps> Running<'a, T> {
    /// # Errors
    ///
    /// [`Removed`] if the client was removed meanwhile. As an [`Error`] it is `ENODEV`.
    pub(crate) fn on(device: &'a Device) -> Result<Self, Removed<T>> {
        let section = Section::enter();
        let guard = srcu::read_brief();
        match T::client().data(device, &guard) {
            Some(data) => Ok(Self {
                data: data.into(),
                section,
                _device: PhantomData,
            }),
            None => Err(Removed {
                section,
                _client: PhantomData,
            }),
        }
    }

    /// Returns the client's data.
    pub(crate) fn data(&self) -> ArcBorrow<'_, T> {
        self.data.as_arc_borrow()
    }

    /// Ends the use of the client's data, and keeps the client's module loaded.
    pub(crate) fn keep_loaded(self) -> Loaded {
        Loaded::instead_of::<T>(self.section)
    }
}

impl<T: DeviceOps> Deref for Running<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}
