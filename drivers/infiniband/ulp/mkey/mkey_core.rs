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
        process::Process,
        rdma::{
            client::{Adding, SoleData},
            mr::NewMr,
            Device, Mr, OwnedPd, Pd, Qp,
        },
        sync::{
            srcu::{self, Guard, Table},
            users::Timeout,
        },
        user::User,
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
use core::ops::Deref;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex},
};

/// The core of an extended device.
//
// Locking: `closed` nests in `WindowEntry::bindings` (`region/window.rs`), and no lock nests in it.
//
// Fields drop in declaration order: the regions drop before the protection domain of their MRs.
#[pin_data]
pub(crate) struct Core {
    /// The regions of this module, by the indices of their MRs.
    #[pin]
    pub(crate) regions: Table<Region>,
    /// `true` if the device is about to be removed. The module then fills no slot of an MR and
    /// takes over no QP's requests.
    #[pin]
    closed: Mutex<bool>,
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

/// Finds the core of a device. `device.rs`, which has the client of `ib_core`, implements this
/// trait for [`Core`]. The data path does not need the core.
pub(crate) trait Lookup {
    /// A core that is valid during a device operation.
    type Running<'a>: Deref<Target = Core>;

    /// A core with a reference to the device's data.
    type Kept: Deref<Target = Core>;

    /// Finds the core of `device`. The device's data stays until the result is dropped. The device
    /// may not be extended yet.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the client was removed meanwhile.
    fn running(device: &Device) -> Result<Self::Running<'_>>;

    /// Finds the core of an extended device.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that is not extended.
    fn kept(device: &Device) -> Result<Self::Kept>;
}

/// A type that has a core. Code that must not know the client of `ib_core` uses this trait.
pub(crate) trait HasCore: Send + Sync {
    /// Returns the core.
    fn core(&self) -> &Core;
}

impl Core {
    /// Probes a device and makes its core, without regions.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::probe`]; `ENOMEM`.
    pub(crate) fn new(device: &Adding<'_>, sole: SoleData<'_>) -> Result<impl PinInit<Self>> {
        let pd = OwnedPd::new(device, c"ib_mkey")?;
        let hw = Hw::probe(device, &pd)?;
        let pins = Pins::new(sole)?;
        let old = OldBindings::new()?;
        let owners = Owners::new(
            parameters::max_key_memory(),
            parameters::max_key_memory_per_user(),
        )?;
        Ok(pin_init!(Self {
            regions <- Table::new(),
            closed <- new_mutex!(false, "ib_mkey closed"),
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
        Owners::charge(&self.owners, User::of(pd), bytes)
    }

    /// Makes the unbound region of an MR, and puts it into the table. The current process is shown
    /// as its maker, if a user is charged.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn adopt(&self, mr: &Mr, kind: Kind, charge: OwnerCharge) -> Result<Arc<Region>> {
        let user = charge.user();
        let maker = user.map(|_| Process::current()).transpose()?;
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

    /// Lets accesses to `mr` find `region`, unless the device is about to be removed. The region is
    /// in the table.
    pub(crate) fn expose(&self, mr: &Mr, region: &Arc<Region>) {
        let closed = self.closed.lock();
        // Only a claimed MR has a slot.
        match Hw::claimed(mr) {
            // The slot was empty.
            Some(mr) if !*closed => drop(mr.slot().swap(Some(region.clone()))),
            _ => (),
        }
    }

    /// Undoes [`Self::expose`]: no access finds the region of `mr` any more. Waits for accesses in
    /// progress. Sleeps.
    pub(crate) fn hide(mr: &Mr) {
        if let Some(mr) = Hw::claimed(mr) {
            drop(mr.slot::<Region>().swap(None));
        }
    }

    /// Executes requests of the new QP `qp` that bind keys, unless the device is about to be
    /// removed.
    pub(crate) fn take_binds(&self, qp: &Qp) {
        let closed = self.closed.lock();
        if !*closed {
            self.hw.take_binds(qp);
        }
    }

    /// Ends accesses to all regions, whose MRs may outlive the device's operations. Sleeps.
    pub(crate) fn close(&self, device: &Device) {
        *self.closed.lock() = true;
        // A kernel user that was registered before this module destroys its QPs later.
        self.hw.give_binds_back(device);
        for index in self.regions.indices() {
            // The slot of an MR that is being destroyed is empty already.
            if let Some(held) = self.hw.hold_claimed(device, index) {
                let emptied = held.slot::<Region>().swap(None);
                // rxe's `dereg_mr` waits for the reference.
                drop(held);
                // This waits for accesses in progress.
                drop(emptied);
            }
        }
        // The old bindings refer to MRs of the driver.
        let _ = self.old.wait_and_drop(Which::All, Timeout::Never);
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
        // The time is limited, because the removal of another device waits for the caller.
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
        // The slot is empty before the region is exposed, and while the device is being
        // removed. The table still has the region then.
        let claimed = Hw::claimed(mr);
        if let Some(region) = claimed.and_then(|mr| mr.slot::<Region>().get(guard)) {
            return Some(region);
        }
        let region = self.regions.get(mr.index(), guard)?;
        region.is(mr).then_some(region)
    }
}
