// SPDX-License-Identifier: GPL-2.0

//! The device operations of a module that extends the devices of a driver: the trait that the
//! module implements. `table.rs` makes the table of them.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::{
    device::Device,
    dm::{Dm, DriverDm},
    driver::{DriverMr, DriverOps},
    mr::{Access, Mr, NewMr},
    pd::{Pd, UserContext},
    scatterlist::{Elements, MappedElements},
};
use crate::bindings;
use core::marker::PhantomData;
use kernel::{error::to_result, ffi::c_int, prelude::*};

/// The operations that a module provides for a device.
pub(crate) trait DeviceOps: Sized + Send + Sync + 'static {
    /// Returns the module's data of a device. They stay as long as the device is registered.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that has not the operations of
    /// [`Operations::new`](super::table::Operations::new).
    fn of(device: &Device) -> Result<&Self>;

    /// Returns the driver's own operations. There is a device, which may be about to be registered
    /// or may have been unregistered.
    fn driver() -> DriverOps;

    /// The module's data in a device memory object.
    type Dm: Send + Sync + 'static;

    /// Changes the attributes that the driver has filled in, for a process or for the core, which
    /// keeps them in `ib_device.attrs` for kernel users.
    fn query_device(&self, attr: &mut bindings::ib_device_attr, for_process: bool);

    /// Allocates device memory of `attr.length` bytes for a process. The method's attributes may
    /// have more of the module.
    fn alloc_dm(
        &self,
        context: &UserContext,
        attr: &bindings::ib_dm_alloc_attr,
        attrs: &Attrs<'_>,
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

    /// The data of an MR that was deregistered. Dropping them may sleep as long as the exporter of
    /// a dma-buf likes.
    type Left;

    /// Deregisters an MR of a process, or of a kernel user, by calling `driver`. Waits for accesses
    /// to the MR. The binding of the MR is dropped, or stays if this fails.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; `EINTR` if the process is killed meanwhile; `EINVAL` while a
    /// window of the driver is bound to the MR; the errors of `driver`.
    fn dereg_mr(
        &self,
        mr: &Mr,
        for_process: bool,
        driver: impl FnOnce() -> Result,
    ) -> Result<Self::Left>;

    /// Makes an MR in `pd` over `length` bytes of the dma-buf of `fd`, from `offset` on. The first
    /// address of the MR is `addr`.
    fn reg_user_mr_dmabuf(
        &self,
        pd: &Pd,
        offset: u64,
        length: u64,
        addr: u64,
        fd: c_int,
        access: Access,
    ) -> Result<DriverMr>;

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

/// The attributes of a method that a process calls.
///
/// # Invariants
///
/// The pointer is valid for `'a`.
#[repr(transparent)]
pub(crate) struct Attrs<'a> {
    raw: *mut bindings::uverbs_attr_bundle,
    _bundle: PhantomData<&'a bindings::uverbs_attr_bundle>,
}

impl Attrs<'_> {
    /// Returns the 64-bit number in the attribute `id`; [`None`] if the process does not pass it.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that cannot be read, `EINVAL` for a larger attribute.
    pub(crate) fn get_u64(&self, id: u32) -> Result<Option<u64>> {
        let mut value = 0;
        // SAFETY: By the type invariant.
        unsafe {
            if !bindings::uverbs_attr_is_valid(self.raw, id) {
                return Ok(None);
            }
            to_result(bindings::uverbs_copy_u64(&mut value, self.raw, id))?;
        }
        Ok(Some(value))
    }
}

impl Dm {
    /// Returns the data of memory of a device that has the operations of `T`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver itself has the memory.
    pub(crate) fn data<T: DeviceOps>(&self) -> Result<&T::Dm> {
        T::of(self.device())?;
        // SAFETY: All device memory of a device of `T` came from `DeviceOps::alloc_dm()`, which
        // returns a `DriverDm`.
        Ok(unsafe { self.driver_data() })
    }
}
