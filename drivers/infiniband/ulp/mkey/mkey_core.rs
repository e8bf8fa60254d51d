// SPDX-License-Identifier: GPL-2.0

//! The core of an extended device: its regions, what refers to them, and the driver's MRs.
//!
//! All but the top of the module (`device.rs`, `api/`) works on a [`Core`]. The module is not named
//! `core`, because that is the name of a crate.

use crate::{
    backend::{Backend, Hw, Named},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{client::Adding, Device, Mr, OwnedPd, Pd},
        sync::srcu::{Guard, Table},
    },
    limits::{
        cost,
        owner::{OwnerCharge, Owners},
    },
    parameters,
    region::{binding::MAX_ENTRIES, fast_reg::FastReg, pins::Pins, window::Windows, Kind, Region},
};
use core::ops::Deref;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// The core of an extended device.
//
// Locking: `closed` nests in no lock; the spinlock of a slot (`backend/slot.rs`) nests in it.
//
// Fields drop in declaration order: the regions before the protection domain of their MRs.
#[pin_data]
pub(crate) struct Core {
    /// The regions of this module, by the indices of their MRs.
    #[pin]
    pub(crate) regions: Table<Region>,
    /// Set when the device is about to be removed: no slot of an MR is filled any more.
    #[pin]
    closed: Mutex<bool>,
    #[pin]
    pub(crate) windows: Windows,
    /// Which MRs bindings refer to.
    pub(crate) pins: Arc<Pins>,
    pub(crate) hw: Hw,
    /// The domain of the MRs that programs do not see.
    pub(crate) pd: OwnedPd,
    /// Owners of the kernel's memory that keys and other regions take.
    pub(crate) owners: Arc<Owners>,
}

/// Finds the core of a device. The client of `ib_core` is in `device.rs`, which implements this for
/// [`Core`]. A trait costs no indirect call, and the data path looks the core up for each packet.
pub(crate) trait Lookup {
    /// A core that a critical section keeps.
    type Found<'a>: Deref<Target = Core>;

    /// A core that a running device operation keeps.
    type Running<'a>: Deref<Target = Core>;

    /// Finds the core of `device`, for as long as the critical section lasts. The self-test, too,
    /// finds the core of a device that is not extended yet.
    fn find<'a>(device: &Device, guard: &'a Guard) -> Option<Self::Found<'a>>;

    /// Finds the core of `device`. The device's data stays until the result is dropped.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the client was removed meanwhile.
    fn running(device: &Device) -> Result<Self::Running<'_>>;
}

impl Core {
    /// Probes a device and makes its core, without regions.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::probe`]; `ENOMEM`.
    pub(crate) fn new(device: &Adding<'_>) -> Result<impl PinInit<Self>> {
        let pd = OwnedPd::new(device, c"ib_mkey")?;
        let hw = Hw::probe(device, &pd)?;
        let pins = Pins::new()?;
        let owners = Owners::new(
            parameters::max_key_memory(),
            parameters::max_key_memory_per_process(),
        )?;
        Ok(pin_init!(Self {
            regions <- Table::new(),
            closed <- new_mutex!(false, "ib_mkey closed"),
            windows <- Windows::new(),
            pins,
            hw,
            pd,
            owners,
        }))
    }

    /// Charges `bytes` bytes of the kernel's memory for a region, to the current process or, for a
    /// region in a protection domain of the kernel, to kernel users.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    pub(crate) fn charge(&self, pd: &Pd, bytes: i64) -> Result<OwnerCharge> {
        Owners::charge(&self.owners, !pd.is_kernels(), bytes)
    }

    /// Makes the region of a claimed MR, with nothing bound, and puts it into the table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn adopt(&self, mr: &Mr, kind: Kind, charge: OwnerCharge) -> Result<Arc<Region>> {
        let region = Region::new(mr, kind, charge)?;
        self.regions.insert(mr.index(), region.clone())?;
        self.expose(mr, &region);
        Ok(region)
    }

    /// Lets accesses to `mr` find `region`, unless the device is about to be removed. The region is in
    /// the table.
    pub(crate) fn expose(&self, mr: &Mr, region: &Arc<Region>) {
        let closed = self.closed.lock();
        if !*closed {
            region.mr_slot.fill(mr, region.clone());
        }
    }

    /// Ends accesses to all regions, whose MRs may outlive the device's operations. Sleeps.
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        let mut from = 0;
        while let Some((index, region)) = self.regions.next(from) {
            drop(region.mr_slot.empty());
            let Some(next) = index.checked_add(1) else {
                break;
            };
            from = next;
        }
    }

    /// Makes a new MR a region for fast registration, of up to `max` elements.
    ///
    /// # Errors
    ///
    /// As for [`FastReg::new`]; `EOPNOTSUPP` if the device gives kernel users no MR of all memory.
    pub(crate) fn adopt_fast_reg(&self, mr: &Mr, max: u32) -> Result<Arc<Region>> {
        // Addresses of elements are DMA addresses, whichever protection domain the MR is in.
        let lkey = self.pd.local_dma_lkey();
        let Named::Memory { base, .. } = self.hw.find(mr.device(), lkey, &self.pd)? else {
            return Err(eopnotsupp());
        };
        let bytes = cost::fast_reg(max.min(MAX_ENTRIES) as usize)?;
        let charge = Owners::charge(&self.owners, false, bytes)?;
        let fast = FastReg::new(&self.pd, base, max)?;
        self.hw.claim_fast_reg(mr);
        self.adopt(mr, Kind::FastReg(fast), charge)
    }

    /// Takes `region` out of the table. `index` is that of its MR, which may be gone. Sleeps.
    pub(crate) fn forget(&self, index: u32, region: &Region) {
        self.regions.remove(index, region);
    }

    /// Returns the region of `mr`; [`None`] for an MR of the driver's own.
    pub(crate) fn region_of(&self, mr: &Mr) -> Option<Arc<Region>> {
        let region = self.regions.get_arc(mr.index())?;
        region.is(mr).then_some(region)
    }
}
