// SPDX-License-Identifier: GPL-2.0

//! The device operations of a module that extends the devices of a driver: the trait that the module
//! implements. `table.rs` makes the table of them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    dm::DriverDm,
    driver_mr::DriverMr,
    mr::{Access, Mr, Mw, NewMr},
    pd::{Pd, UserContext},
    scatterlist::{Elements, MappedElements},
    uapi::Attrs,
};
use crate::{
    bindings,
    kernel_ext::{
        dma_buf::{DmaBuf, Import},
        error::eopnotsupp,
        user::User,
    },
};
use kernel::{error::from_err_ptr, prelude::*};

/// The operations that a module provides for a device.
pub(crate) trait DeviceOps: Sized + Send + Sync + 'static {
    /// Returns the module's data of a device. They stay as long as the device is registered.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that has not the operations of [`Operations::new`](super::table::Operations::new).
    fn of(device: &Device) -> Result<&Self>;

    /// Returns the driver's own operations. There is a device, which may be about to be registered or
    /// may have been unregistered.
    fn driver() -> DriverOps;

    /// Returns the user who opened the device.
    fn user(context: &UserContext) -> User;

    /// The module's data in a device memory object.
    type Dm: Send + Sync + 'static;

    /// The class of device memory that an allocation asks for.
    type DmClass;

    /// Returns the class that a process asks for by the module's attributes.
    ///
    /// # Errors
    ///
    /// The errors of [`Attrs::get_u64`]; `EINVAL` for a class that does not exist.
    fn dm_class(attrs: &Attrs<'_>) -> Result<Self::DmClass>;

    /// Returns the bytes of device memory.
    fn dm_size(&self) -> u64;

    /// Returns the bytes of device memory that the standard query announces to processes: zero if
    /// they may be unable to allocate any.
    fn announced_dm_size(&self) -> u64;

    /// Allocates device memory of `attr.length` bytes, for a user, or for the kernel
    /// without one.
    fn alloc_dm(
        &self,
        attr: &bindings::ib_dm_alloc_attr,
        class: Self::DmClass,
        user: Option<User>,
    ) -> Result<KBox<DriverDm<Self::Dm>>>;

    /// Makes `mr` an MR in `pd` over `length` bytes of `dm`. The core has checked the range.
    fn reg_dm_mr(
        &self,
        mr: NewMr<'_>,
        pd: &Pd,
        dm: &Self::Dm,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result;

    /// Makes `mr` an MR for up to `max` elements of a scatterlist, which may have gaps.
    fn alloc_fast_reg(&self, mr: NewMr<'_>, max: u32) -> Result;

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

    /// The data of an MR that was deregistered. Dropping them may sleep as long as the exporter of a
    /// dma-buf likes.
    type Left;

    /// Deregisters an MR of a process, or of a kernel user, by calling `driver`. Waits for accesses to the MR. The binding of the MR is
    /// dropped, or stays if this fails.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; `EINTR` if the process is killed meanwhile; `EINVAL` while a window
    /// of the driver is bound to the MR; those of `driver`.
    fn dereg_mr(
        &self,
        mr: &Mr,
        for_process: bool,
        driver: impl FnOnce() -> Result,
    ) -> Result<Self::Left>;

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
    /// `ENODEV` if the module exported and revoked it.
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
        &self,
        mr: NewMr<'_>,
        import: Import,
        charge: Self::Charge,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result;

    /// Called before the driver deallocates the memory window `mw`. No access through it begins any
    /// more. Waits for those in progress.
    ///
    /// # Errors
    ///
    /// `EINTR` if the process is killed meanwhile.
    fn close_mw(&self, mw: &Mw) -> Result;

    /// The bindings of a deallocated memory window. Dropping them sleeps.
    type Forgotten;

    /// Called after the driver deallocated the memory window `mw`, and before the core frees it.
    fn forget_mw(&self, mw: &Mw) -> Self::Forgotten;

    /// Checks that the properties of an MR may be changed.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if they may not.
    fn may_rereg(&self, mr: &Mr) -> Result;

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
}

/// The operations of the driver of a device, to which a module passes calls.
///
/// # Invariants
///
/// The table is valid as long as the driver has a device with the module's operations.
#[derive(Clone, Copy)]
pub(crate) struct DriverOps(*const bindings::ib_device_ops);

impl DriverOps {
    /// # Safety
    ///
    /// `ops` must be as the type invariant requires, and operations for the devices of the module
    /// that implements [`DeviceOps`].
    pub(crate) unsafe fn new(ops: *const bindings::ib_device_ops) -> Self {
        // INVARIANT: By the safety requirement.
        Self(ops)
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &bindings::ib_device_ops {
        // SAFETY: By the type invariant. A module gets this while there is a device.
        unsafe { &*self.0 }
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
        let alloc_mr = self.table().alloc_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The protection domain is of a device of the driver.
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
        let mr = unsafe { DriverMr::from_raw(raw, self.table().dereg_mr) };
        // SAFETY: Allocated above, and there is no other `NewMr` of it.
        prepare(unsafe { NewMr::new(&mr) })?;
        Ok(mr)
    }
}
