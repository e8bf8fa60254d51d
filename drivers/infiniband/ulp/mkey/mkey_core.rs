// SPDX-License-Identifier: GPL-2.0

//! The core of an extended device: its regions, their pins, and the backend.
//!
//! Everything except the top of the module (`device.rs`, `api/`) works on a [`Core`]. The module is
//! not named `core`, because that is the name of a crate.

use crate::{
    backend::{
        pins::{when_unpinned, NoDereg, Pins, Unpinned},
        Backend, ClaimedMr, Hw, LookedUp,
    },
    kernel_ext::{
        error::eopnotsupp,
        rdma::{device::NewDevice, mr::NewMr, Device, Mr, OwnedPd, Pd},
        sched::Process,
        sync::{
            srcu::{self, Guard, Table},
            users::Timeout,
        },
    },
    limits::{
        cost,
        owner::{OwnerCharge, Owners},
        worker::call_timeout,
    },
    parameters,
    region::{
        binding::MAX_ENTRIES,
        fast_reg::FastReg,
        old::{OldBindings, Which},
        window::Windows,
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// The core of an extended device.
//
// Fields drop in declaration order: the regions drop before the protection domain of their MRs.
#[pin_data]
pub(crate) struct Core {
    /// The regions of this module, by the indices of their MRs.
    #[pin]
    pub(crate) regions: Table<Region>,
    #[pin]
    pub(crate) windows: Windows,
    /// The pins of the MRs to which bindings refer.
    pub(crate) pins: Arc<Pins>,
    /// The bindings that work requests replaced.
    pub(crate) old: Arc<OldBindings>,
    pub(crate) hw: Hw,
    /// The protection domain of this module's own MRs, which processes cannot name.
    pub(crate) pd: OwnedPd,
    /// Owners of the kernel's memory that keys and other regions take.
    pub(crate) owners: Arc<Owners>,
}

/// Finds the core of a device. `device.rs`, which has the data of devices, implements this trait for
/// [`Core`].
pub(crate) trait Lookup {
    /// Returns the core of an extended device. It stays as long as the device.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that is not extended.
    fn of(device: &Device) -> Result<&Self>;
}

/// A type that has a core. Code that must not know the data of a device uses this trait.
pub(crate) trait HasCore: Send + Sync {
    /// Returns the core.
    fn core(&self) -> &Core;
}

impl Core {
    /// Makes the core of a device, without regions.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: NewDevice<'_>) -> Result<impl PinInit<Self>> {
        let pd = OwnedPd::new(&device, c"ib_mkey")?;
        let hw = Hw::new(&device);
        let pins = Pins::new(device)?;
        let old = OldBindings::new()?;
        let owners = Owners::new(
            parameters::max_key_memory(),
            parameters::max_key_memory_per_user(),
        )?;
        Ok(pin_init!(Self {
            regions <- Table::new(),
            windows <- Windows::new(),
            pins,
            old,
            hw,
            pd,
            owners,
        }))
    }

    /// Charges `bytes` bytes of the kernel's memory for a region to the user of `pd`, or to kernel
    /// users.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    pub(crate) fn charge(&self, pd: &Pd, bytes: i64) -> Result<OwnerCharge> {
        Owners::charge(&self.owners, pd.context().map(Hw::user), bytes)
    }

    /// Makes the unbound region of an MR, and puts it into the table. The current process is shown
    /// as its maker, if a user is charged.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn adopt(&self, mr: &Mr, kind: Kind, charge: OwnerCharge) -> Result<Arc<Region>> {
        let user = charge.user();
        let maker = user.map(|_| Process::current());
        self.adopt_of(mr, kind, maker, charge)
    }

    /// The same for a region that `maker` made, or a kernel user.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn adopt_of(
        &self,
        mr: &Mr,
        kind: Kind,
        maker: Option<Process>,
        charge: OwnerCharge,
    ) -> Result<Arc<Region>> {
        let region = Region::new(mr, kind, maker, charge)?;
        self.regions.insert(mr.index(), region.clone())?;
        self.expose(mr, &region);
        Ok(region)
    }

    /// Lets accesses to `mr` find `region`, which is in the table.
    pub(crate) fn expose(&self, mr: &Mr, region: &Arc<Region>) {
        // Only a claimed MR has a slot. The slot was empty.
        if let Some(mr) = Hw::claimed(mr) {
            drop(mr.slot().swap(Some(region.clone())));
        }
    }

    /// Undoes [`Self::expose`]: no access finds the region of `mr` any more. Waits for accesses in
    /// progress. Sleeps.
    pub(crate) fn hide(mr: &Mr) {
        if let Some(mr) = Hw::claimed(mr) {
            drop(mr.slot::<Region>().swap(None));
        }
    }

    /// Makes the region of a new MR for fast registration of up to `max` elements.
    ///
    /// # Errors
    ///
    /// Those of [`FastReg::new`]; `EOPNOTSUPP` if the device gives kernel users no MR of all
    /// memory.
    pub(crate) fn adopt_fast_reg(&self, mr: NewMr<'_>, max: u32) -> Result<Arc<Region>> {
        // The elements have DMA addresses, which are the same in each protection domain. So
        // the MR of the module's own domain can be their leaf.
        let lkey = self.pd.local_dma_lkey();
        // SAFETY: The MR is a part of the domain, and the regions drop before the domain.
        let find = |held: &NoDereg<'_>| unsafe { self.hw.find(held, lkey, &self.pd) };
        let LookedUp::Memory { base, .. } = self.pins.exclude(find)? else {
            return Err(eopnotsupp());
        };
        let bytes = cost::fast_reg(max.min(MAX_ENTRIES) as usize)?;
        let charge = Owners::charge(&self.owners, None, bytes)?;
        let fast = FastReg::new(&self.pd, base, max, self.pins.clone())?;
        let mr = self.hw.claim_fast_reg(mr)?;
        self.adopt(mr, Kind::FastReg(fast), charge)
    }

    /// Takes `region`, which is in no slot, out of the table. `index` is the index of its MR, which
    /// may be freed. Sleeps.
    pub(crate) fn forget(&self, index: u32, region: &Region) {
        self.regions.remove(index, region);
        // Another thread may keep the region a little longer. Its leaves must be unpinned now. If
        // the other thread has taken the binding out first, the binding is among the old ones.
        drop(region.binding.swap(None));
        // An endless wait has no error.
        let _ = region.wait_for_replaced(Timeout::Never);
    }

    /// Runs `change`, which must not sleep, if the MR at `index` is not pinned. An old binding that
    /// a work request replaced does not count. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR is pinned; those of `change`.
    pub(crate) fn if_unpinned<T>(
        &self,
        index: u32,
        change: impl Fn(&Unpinned<'_>) -> Result<T>,
    ) -> Result<T> {
        let attempt = || self.pins.if_unpinned(index, &change);
        when_unpinned(attempt, || {
            self.old
                .wait_and_drop(Which::Pinning(index), call_timeout())
        })?
    }

    /// Returns the region of `mr`; [`None`] for one of the driver's MRs.
    pub(crate) fn region_of(&self, mr: &Mr) -> Option<Arc<Region>> {
        let guard = srcu::read_brief();
        self.find_region(mr, &guard).map(Arc::from)
    }

    /// Returns the region of `mr`, for as long as the critical section lasts; [`None`] for one of
    /// the driver's MRs.
    pub(crate) fn find_region<'a>(
        &self,
        mr: &'a Mr,
        guard: &'a Guard,
    ) -> Option<ArcBorrow<'a, Region>> {
        // The slot is empty before the region is exposed, and during the deregistration. The table
        // has the region then.
        let claimed = Hw::claimed(mr);
        if let Some(region) = claimed.and_then(|mr| mr.slot::<Region>().get(guard)) {
            return Some(region);
        }
        let region = self.regions.get(mr.index(), guard)?;
        region.is(mr).then_some(region)
    }
}
