// SPDX-License-Identifier: GPL-2.0

//! The operations of an extended device.

use crate::{
    backend::{pins::Unpinned, rxe, Claimed, MrRange},
    bindings,
    device::MkeyDevice,
    dm::{self, Buffer},
    kernel_ext::{
        dma_buf::Import,
        error::eopnotsupp,
        rdma::{
            driver::{DriverMr, DriverOps},
            mr::{NewMr, Right},
            ops::{Attrs, DeviceOps},
            pd::UserContext,
            scatterlist::{Elements, MappedElements},
            table::Operations,
            Access, Device, DriverDm, Mr, Pd,
        },
        sync::pending::Timeout,
        user::User,
    },
    layout::{Entry, List},
    limits::cost,
    parameters,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace},
        flat::MAX_PIECES,
        rights::supported,
        Kind, Region,
    },
};
use kernel::{ffi::c_int, prelude::*, sync::Arc};

/// The operations of an extended device.
pub(crate) static OPERATIONS: Operations = Operations::new::<MkeyDevice>();

/// An MR that is about to be deregistered.
pub(crate) struct Leaving {
    /// Its region, if the MR belongs to this module.
    region: Option<Arc<Region>>,
    /// Resumed if deregistration fails.
    suspended: rxe::SuspendedMr,
}

/// Returns how long the end of an object waits for accesses, each of which can take as long as a
/// process likes. When a process closes the device, rxe stops its QPs first, which ends their
/// accesses. A kernel user frees the memory when the call returns.
fn end_timeout(for_process: bool) -> Timeout {
    if for_process {
        Timeout::WhenKilled
    } else {
        Timeout::Never
    }
}

impl MkeyDevice {
    /// Checks that an MR may be deregistered, and forbids new accesses to it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; `EINVAL` while a window of the driver is bound to it; `ENOMEM`,
    /// and `EINTR` if the process was killed.
    fn leave(&self, mr: &Mr) -> Result<Leaving> {
        let suspend = |unpinned: &Unpinned<'_>| rxe::suspend(mr, unpinned);
        if mr.is_user() && mr.pd() == self.core.pd.as_raw() {
            // This is the MR over the pages of device memory. Users cannot name it, so nothing pins
            // it, and it has no region.
            let suspended = self.core.pins.if_unpinned(mr.index(), suspend)??;
            return Ok(Leaving {
                region: None,
                suspended,
            });
        }
        let region = self.core.region_of(mr);
        let suspended = self.core.if_free_or_revocable(mr, suspend)?;
        Ok(Leaving { region, suspended })
    }

    /// Lets an MR stay that was not deregistered. One of this module's MRs has no binding any more.
    fn stay(mr: &Mr, region: Option<&Arc<Region>>, suspended: rxe::SuspendedMr) {
        match (Claimed::of(mr), region) {
            (Some(mr), Some(region)) => drop(region.clear(mr)),
            _ => rxe::resume(mr, suspended),
        }
    }
}

impl MkeyDevice {
    /// Allocates device memory of the class that `class` names as the uAPI does, for a user, or for
    /// the kernel without one.
    /// Fails with `EINVAL` for a class that does not exist, and with the errors of [`Buffer::new`].
    pub(crate) fn new_dm(
        &self,
        attr: &bindings::ib_dm_alloc_attr,
        class: u64,
        user: Option<User>,
    ) -> Result<KBox<DriverDm<Buffer>>> {
        let class = dm::ClassRequest::from_raw(class)?;
        let size = (attr.length, attr.alignment);
        DriverDm::new(Buffer::new(&self.core.pd, &self.memory, size, class, user)?)
    }
}

/// The largest number of pages of an MR over a dma-buf, which one allocation of the driver's table
/// can describe.
const MAX_DMABUF_PAGES: usize = 1 << 18;

impl DeviceOps for MkeyDevice {
    type Dm = Buffer;

    fn of(device: &Device) -> Result<&Self> {
        // The data stay as long as the device, and so does the reference.
        MkeyDevice::data(device)
    }

    fn driver() -> DriverOps {
        rxe::driver_ops()
    }

    fn query_device(&self, attr: &mut bindings::ib_device_attr, for_process: bool) {
        attr.max_dm_size = if for_process && !parameters::announce_dm() {
            0
        } else {
            self.memory.size()
        };
    }

    fn alloc_dm(
        &self,
        context: &UserContext,
        attr: &bindings::ib_dm_alloc_attr,
        attrs: &Attrs<'_>,
    ) -> Result<KBox<DriverDm<Buffer>>> {
        let class = attrs.get_u64(bindings::ib_mkey_dm_alloc_attrs_IB_MKEY_ATTR_DM_ALLOC_CLASS)?;
        self.new_dm(attr, class.unwrap_or(0), Some(rxe::user(context)))
    }

    fn reg_dm_mr(
        &self,
        mr: NewMr<'_>,
        pd: &Pd,
        dm: &Buffer,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result {
        // Only persistent memory can be flushed to persistence.
        let volatile = !dm.memory().is_persistent();
        if !supported(access) || (volatile && access.contains(Right::FlushPersistent)) {
            return Err(eopnotsupp());
        }
        let charge = self.core.charge(pd, cost::REGION + cost::BINDING)?;
        let mr = Claimed::new_dm(mr)?;
        if length == 0 {
            // Nothing is bound, so only an access of 0 bytes is in range.
            self.core.adopt(mr, Kind::Dm, charge)?;
            mr.publish(MrRange { start: 0, len: 0 }, access);
            return Ok(());
        }
        let mut entries = KVVec::with_capacity(1, GFP_KERNEL)?;
        entries.push(Entry::new(0, offset, length), GFP_KERNEL)?;
        let mut leaves = KVVec::with_capacity(1, GFP_KERNEL)?;
        leaves.push(
            Leaf {
                lkey: 0,
                start: 0,
                len: dm.memory().len() as u64,
                access: access | Right::LocalWrite,
                place: LeafPlace::Memory {
                    base: dm.base.clone(),
                    delta: 0,
                    mutable: false,
                },
                _pin: None,
            },
            GFP_KERNEL,
        )?;
        let layout = KLayout::List(List::new(entries)?);
        let mut binding = Binding::new(layout, leaves, None)?;
        binding.complete(access, pd, MAX_PIECES)?;
        let region = self.core.adopt(mr, Kind::Dm, charge)?;
        region.bind_first(&self.core.pins, mr, binding);
        Ok(())
    }

    fn alloc_fast_reg(&self, mr: NewMr<'_>, max: u32) -> Result {
        self.core.adopt_fast_reg(mr, max)?;
        Ok(())
    }

    fn map_fast_reg(&self, mr: &Mr, elements: Elements<'_>) -> Result<MappedElements> {
        let region = Claimed::of(mr).and_then(|mr| mr.object::<Region>());
        match &region.ok_or(EINVAL)?.kind {
            Kind::FastReg(fast_reg) => fast_reg.map(elements, mr.page_size()),
            _ => Err(EINVAL),
        }
    }

    fn page_size(&self, mr: &Mr) -> u32 {
        let region = Claimed::of(mr).and_then(|mr| mr.object::<Region>());
        match region.as_ref().map(|region| &region.kind) {
            Some(Kind::FastReg(fast_reg)) => fast_reg.page_size(),
            _ => rxe::page_size(mr),
        }
    }

    // Mapping elements may free the MR's page table, which a bound key reads. This check does not
    // exclude a concurrent bind: a ULP must not bind a key to the MR while it maps the MR.
    fn may_map(&self, mr: &Mr) -> Result {
        Ok(self.core.pins.if_unpinned(mr.index(), |_| ())?)
    }

    fn reg_user_mr_dmabuf(
        &self,
        pd: &Pd,
        offset: u64,
        length: u64,
        addr: u64,
        fd: c_int,
        access: Access,
    ) -> Result<DriverMr> {
        // No exporter tells whether the memory of its dma-buf is persistent.
        let never = [Right::ZeroBased, Right::FlushPersistent];
        if never.iter().any(|right| access.contains(*right)) || !supported(access) {
            return Err(eopnotsupp());
        }
        addr.checked_add(length).ok_or(EOVERFLOW)?;
        let writes = access.contains(Right::LocalWrite);
        let import = Import::new(fd, writes, dm::check_dma_buf)?;
        let pages = import.pages(offset, length)?.len();
        if pages > MAX_DMABUF_PAGES {
            return Err(ENOMEM);
        }
        let charge = self.core.charge(pd, cost::pages(pages)?)?;
        rxe::driver_ops().alloc_mr(pd, u32::try_from(pages)?, |mr| {
            // The import must be in the table before a program can find the MR: dereg_mr drops the
            // import with the region.
            let region = self.core.adopt(&mr, Kind::DmaBuf(import), charge)?;
            let Kind::DmaBuf(import) = &region.kind else {
                return Err(EINVAL);
            };
            // SAFETY: The region has the import, and is in the table until the MR was deregistered.
            let filled = unsafe { rxe::fill(mr, import, offset, length, addr, access) };
            if filled.is_err() {
                self.core.forget(&region);
            }
            filled
        })
    }

    type Left = Option<Arc<Region>>;

    fn dereg_mr(
        &self,
        mr: &Mr,
        for_process: bool,
        driver: impl FnOnce() -> Result,
    ) -> Result<Option<Arc<Region>>> {
        let Leaving { region, suspended } = self.leave(mr)?;
        if let Some(region) = &region {
            // After an error the MR is not bound any more.
            if let Err(killed) = region.end(end_timeout(for_process)) {
                Self::stay(mr, Some(region), suspended);
                return Err(killed);
            }
            region.set_gone(true);
        }
        if let Err(err) = driver() {
            if let Some(region) = &region {
                region.set_gone(false);
            }
            Self::stay(mr, region.as_ref(), suspended);
            return Err(err);
        }
        // rxe has freed `mr`, after the last access to it.
        if let Some(region) = &region {
            self.core.forget(region);
        }
        Ok(region)
    }

    fn may_rereg(&self, mr: &Mr) -> Result {
        if self.core.region_of(mr).is_some() {
            return Err(eopnotsupp());
        }
        Ok(())
    }

    fn rights(&self, mr: &Mr) -> Access {
        rxe::rights(mr)
    }

    fn retranslate(
        &self,
        mr: &Mr,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result {
        // Memory that a key or a window refers to must stay in its place.
        let suspended = self.core.if_unpinned(mr.index(), |unpinned| {
            if rxe::has_windows(mr) {
                return Err(EBUSY);
            }
            rxe::suspend(mr, unpinned)
        })?;
        rxe::retranslate(mr, suspended, spare, range, finish)
    }
}
