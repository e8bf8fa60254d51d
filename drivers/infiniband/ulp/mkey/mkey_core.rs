// SPDX-License-Identifier: GPL-2.0

//! The core of an extended device: its regions, their pins, and the backend.
//!
//! Everything except the top of the module (`device.rs`, `api/`) works on a [`Core`]. The module is
//! not named `core`, because that is the name of a crate.

use crate::{
    backend::{
        pins::{NoDereg, Unpinned},
        rxe, Claimed, LookedUp,
    },
    kernel_ext::{
        error::eopnotsupp,
        rdma::{device::NewDevice, mr::NewMr, Device, Mr, OwnedPd, Pd},
        sched::Process,
        sync::pending::Timeout,
    },
    limits::{
        cost,
        owner::{OwnerCharge, Owners},
        worker::call_timeout,
    },
    parameters,
    region::{binding::MAX_ENTRIES, fast_reg::FastReg, state::Pins, table::Regions, Kind, Region},
};
use kernel::{prelude::*, sync::Arc};

/// The core of an extended device.
//
// Fields drop in declaration order: the regions drop before the protection domain of their MRs.
#[pin_data]
pub(crate) struct Core {
    /// The regions of this module, by the indices of their MRs.
    #[pin]
    pub(crate) regions: Regions,
    /// The pins of the MRs to which bindings refer.
    pub(crate) pins: Arc<Pins>,
    /// The protection domain of this module's own MRs, which processes cannot name.
    pub(crate) pd: OwnedPd,
    /// Owners of the kernel's memory that keys and other regions take.
    pub(crate) owners: Arc<Owners>,
}

/// Finds the core of a device. `device.rs`, which has the data of devices, implements this trait for
/// [`Core`].
pub(crate) trait Lookup {
    /// Returns the core of an extended device. It stays as long as the device.
    /// Fails with `EOPNOTSUPP` for a device that is not extended.
    fn of(device: &Device) -> Result<&Self>;
}

/// A type that has a core. Code that must not know the data of a device uses this trait.
pub(crate) trait HasCore: Send + Sync {
    /// Returns the core.
    fn core(&self) -> &Core;
}

impl Core {
    /// Makes the core of a device, without regions.
    pub(crate) fn new(device: NewDevice<'_>) -> Result<impl PinInit<Self>> {
        let pd = OwnedPd::new(&device, c"ib_mkey")?;
        let pins = Pins::new(device)?;
        let owners = Owners::new(
            parameters::max_key_memory(),
            parameters::max_key_memory_per_user(),
        )?;
        Ok(pin_init!(Self {
            regions <- Regions::new(),
            pins,
            pd,
            owners,
        }))
    }

    /// Charges `bytes` bytes of the kernel's memory for a region to the user of `pd`, or to kernel
    /// users.
    /// Fails with `ENOMEM` beyond a limit.
    pub(crate) fn charge(&self, pd: &Pd, bytes: i64) -> Result<OwnerCharge> {
        Owners::charge(&self.owners, pd.context().map(rxe::user), bytes)
    }

    /// Makes the unbound region of an MR, and puts it into the table. The current process is shown
    /// as its maker, if a user is charged.
    pub(crate) fn adopt(&self, mr: &Mr, kind: Kind, charge: OwnerCharge) -> Result<Arc<Region>> {
        let user = charge.user();
        let maker = user.map(|_| Process::current());
        let region = Region::new(mr, kind, maker, charge)?;
        self.regions.insert(&region)?;
        if let Some(mr) = Claimed::of(mr) {
            // SAFETY: The table keeps the region until `forget()`, which is called when the driver
            // has deregistered the MR. A caller that makes an MR of the driver's does nothing after
            // this that could fail, so the driver deregisters the MR by `dereg_mr()` alone.
            unsafe { mr.set_object(&region) };
        }
        Ok(region)
    }

    /// Makes the region of a new MR for fast registration of up to `max` elements.
    ///
    /// # Errors
    ///
    /// The errors of [`FastReg::new`]; `EOPNOTSUPP` if the device gives kernel users no MR of all
    /// memory.
    pub(crate) fn adopt_fast_reg(&self, mr: NewMr<'_>, max: u32) -> Result<Arc<Region>> {
        // The elements have DMA addresses, which are the same in each protection domain. So
        // the MR of the module's own domain can be their leaf.
        let lkey = self.pd.local_dma_lkey();
        let base = self.pins.exclude(|held: &NoDereg<'_>| {
            // SAFETY: The MR is a part of the domain, and the regions drop before the domain.
            match unsafe { rxe::find(held, lkey, &self.pd)? } {
                LookedUp::Memory { base, .. } => Ok(base),
                _ => Err(eopnotsupp()),
            }
        })?;
        let bytes = cost::fast_reg(max.min(MAX_ENTRIES) as usize)?;
        let charge = Owners::charge(&self.owners, None, bytes)?;
        let fast = FastReg::new(&self.pd, base, max, self.pins.clone())?;
        let mr = Claimed::new_fast_reg(mr)?;
        self.adopt(mr, Kind::FastReg(fast), charge)
    }

    /// Takes `region` out of the table, after the driver has freed its MR. Sleeps.
    pub(crate) fn forget(&self, region: &Arc<Region>) {
        self.regions.remove(region);
        // A request may have registered the MR while it was being deregistered. Nothing waits for
        // accesses that have ended with the MR.
        let _ = region.end(Timeout::Never);
    }

    /// Runs `change`, which must not sleep, if the MR at `index` is not pinned. A retired binding does
    /// not count. Sleeps.
    /// Fails with `EBUSY` if the MR is pinned, and with the errors of `change`.
    pub(crate) fn if_unpinned<T>(
        &self,
        index: u32,
        change: impl Fn(&Unpinned<'_>) -> Result<T>,
    ) -> Result<T> {
        let attempt = || self.pins.if_unpinned(index, &change);
        self.pins.when_unpinned(index, call_timeout(), attempt)?
    }

    /// Returns the region of `mr`; [`None`] for one of the driver's MRs.
    pub(crate) fn region_of(&self, mr: &Mr) -> Option<Arc<Region>> {
        match Claimed::of(mr) {
            Some(mr) => mr.object::<Region>().map(Arc::from),
            None => self.regions.of(mr),
        }
    }
}
