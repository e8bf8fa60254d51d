// SPDX-License-Identifier: GPL-2.0

//! An extended device.
//!
//! `ib_core` adds a device to its clients in the order in which they were registered. ib_mkey
//! comes before `ib_uverbs`, so what it changes here is what `ib_uverbs` finds.

use crate::{
    backend::{
        rxe::{selftest, State},
        Backend, Hw, Named, Range,
    },
    bindings,
    dm::{self, Buffer, DeviceMemory},
    kernel_ext::{
        dma_buf::{DmaBuf, Import},
        error::eopnotsupp,
        rdma::{
            client::{Adding, Client, ClientOps, ModulePin, Removing},
            device::DeviceName,
            fast_reg::{Elements, Mapped},
            mr::Right,
            ops::{DeviceOps, Overlay},
            Access, Device, Dm, Mr, Mw, OwnedPd, Pd,
        },
        sync::srcu::{self, Table},
    },
    key::{self, indexed},
    layout::{Entry, List},
    limits::{
        cost,
        owner::{OwnerCharge, Owners},
    },
    region::{
        binding::{Binding, KLayout, Leaf, Place, MAX_DEPTH},
        fast_reg,
        pins::{Pin, Pins},
        window::{self, Windows},
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, ArcBorrow,
    },
};

/// The client of `ib_core`.
pub(crate) static CLIENT: Client<MkeyDevice> = Client::new(c"ib_mkey");

/// What ib_mkey keeps with a device.
// Fields are dropped in order: objects before the protection domain of their regions.
#[pin_data]
pub(crate) struct MkeyDevice {
    #[pin]
    pub(crate) objects: Table<Region>,
    #[pin]
    pub(crate) windows: Windows,
    pub(crate) pins: Arc<Pins>,
    pub(crate) hw: Hw,
    pub(crate) pd: OwnedPd,
    /// Who has the kernel's memory that keys and other regions take.
    pub(crate) owners: Arc<Owners>,
    memory: Arc<DeviceMemory>,
    overlay: Overlay,
    /// Set once the self-test has passed and the operations are ours.
    extended: Atomic<bool>,
    _module: ModulePin,
}

/// A region that is about to be deregistered, with whom to wait for.
pub(crate) struct Leaving {
    object: Option<Arc<Region>>,
    state: State,
}

impl MkeyDevice {
    fn new(device: &Adding<'_>) -> Result<Arc<Self>> {
        let module = ModulePin::new(crate::this_module()?)?;
        let pd = OwnedPd::new(device, c"ib_mkey")?;
        let hw = Hw::probe(device, &pd)?;
        let pins = Pins::new()?;
        let memory = DeviceMemory::new(
            DeviceName::new(device),
            crate::dm_classes()?,
            device.node(),
            crate::max_dm_size(),
            crate::max_dm_size_per_process(),
        )?;
        let owners = Owners::new(crate::max_key_memory(), crate::max_key_memory_per_process())?;
        Arc::pin_init(
            try_pin_init!(Self {
                objects <- Table::new(),
                windows <- Windows::new(),
                pins,
                hw,
                pd,
                owners,
                memory,
                overlay: Overlay::new(device),
                extended: Atomic::new(false),
                _module: module,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Finds the extended device that `device` is.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if it is none.
    pub(crate) fn of(device: &Device) -> Result<Arc<Self>> {
        let guard = srcu::read();
        CLIENT
            .data(device, &guard)
            .filter(|this| this.extended.load(ordering::Acquire))
            .map(Arc::from)
            .ok_or_else(eopnotsupp)
    }

    /// Is the device's memory ours?
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver has device memory of its own.
    pub(crate) fn owns_dm(&self) -> Result {
        if self.overlay.fills_dm() {
            Ok(())
        } else {
            Err(eopnotsupp())
        }
    }

    /// Charges `bytes` bytes of the kernel's memory for a region, to the process that runs this or,
    /// for a region in a protection domain of the kernel, to kernel users.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond a limit.
    pub(crate) fn charge(&self, pd: &Pd, bytes: i64) -> Result<OwnerCharge> {
        Owners::charge(&self.owners, !pd.is_kernels(), bytes)
    }

    /// Returns the object of a region of ours.
    pub(crate) fn object_of(&self, mr: &Mr) -> Option<Arc<Region>> {
        let object = self.objects.get_arc(mr.index())?;
        object.is(mr).then_some(object)
    }
}

impl ClientOps for MkeyDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Adding<'_>) -> Option<Arc<Self>> {
        match Self::new(device) {
            Ok(this) => Some(this),
            // Of another driver.
            Err(err) if err == ENODEV => None,
            Err(err) => {
                pr_err!("{}: not extended: {:?}\n", device.name(), err);
                None
            }
        }
    }

    fn added(self: ArcBorrow<'_, Self>, device: &Adding<'_>) -> bool {
        if let Err(err) = selftest::run(&self, device) {
            pr_err!(
                "{}: not extended, self-test failed: {:?}\n",
                device.name(),
                err
            );
            return false;
        }
        let install = || {
            dm::show::add(&self.memory, &self.owners)?;
            self.overlay
                .install::<Self>(device, self.memory.size())
                .inspect_err(|_| dm::show::remove(&self.memory))
        };
        if let Err(err) = install() {
            pr_err!("{}: not extended: {:?}\n", device.name(), err);
            return false;
        }
        self.extended.store(true, ordering::Release);
        pr_info!(
            "{}: extended, {} bytes of device memory\n",
            device.name(),
            self.memory.size()
        );
        true
    }

    fn remove(self: ArcBorrow<'_, Self>, device: &Removing<'_>) {
        self.extended.store(false, ordering::Release);
        dm::show::remove(&self.memory);
        self.overlay.uninstall(device);
    }

    fn removed(self: ArcBorrow<'_, Self>) {
        Overlay::drain();
    }
}

impl DeviceOps for MkeyDevice {
    type Dm = Buffer;

    fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    fn announced_dm_size(&self) -> u64 {
        if crate::announce_dm() {
            self.memory.size()
        } else {
            0
        }
    }

    fn alloc_dm(
        this: ArcBorrow<'_, Self>,
        attr: &bindings::ib_dm_alloc_attr,
        for_process: bool,
    ) -> Result<KBox<Dm<Buffer>>> {
        let request = dm::Request {
            length: attr.length,
            log_align: attr.alignment,
            class: dm::Wanted::from_raw(attr.flags)?,
            for_process,
        };
        Dm::new(Buffer::new(&this.hw, &this.pd, &this.memory, &request)?)
    }

    fn reg_dm_mr(
        this: ArcBorrow<'_, Self>,
        mr: &Mr,
        pd: &Pd,
        dm: &Dm<Buffer>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result {
        // Persistence takes memory that has it.
        let volatile = !dm.data.memory().is_persistent();
        if !key::supported(access) || (volatile && access.contains(Right::FlushPersistent)) {
            return Err(eopnotsupp());
        }
        let charge = this.charge(pd, cost::REGION + cost::BINDING)?;
        this.hw.claim(mr);
        if length == 0 {
            // Nothing is bound: only an access of no bytes is within it.
            let object = Region::new(mr, Kind::Dm, charge)?;
            this.objects.insert(mr.index(), object)?;
            this.hw.publish(mr, Range { start: 0, len: 0 }, access);
            return Ok(());
        }
        let mut entries = KVVec::with_capacity(1, GFP_KERNEL)?;
        entries.push(Entry::new(0, offset, length), GFP_KERNEL)?;
        let mut leaves = KVVec::with_capacity(1, GFP_KERNEL)?;
        leaves.push(
            Leaf {
                lkey: 0,
                start: 0,
                len: dm.data.memory().len() as u64,
                access: access | Right::LocalWrite,
                place: Place::Memory {
                    base: dm.data.base.clone(),
                    delta: 0,
                    mutable: false,
                },
                _pin: None,
            },
            GFP_KERNEL,
        )?;
        let layout = KLayout::List(List::new(entries)?);
        let bound = Binding::new(layout, leaves, access, pd, None, None)?;
        let object = Region::new(mr, Kind::Dm, charge)?;
        this.objects.insert(mr.index(), object.clone())?;
        object.bind(&this.pins, &this.hw, mr, bound)
    }

    fn alloc_fast(this: ArcBorrow<'_, Self>, mr: &Mr, max: u32) -> Result {
        fast_reg::create(&this, mr, max)?;
        Ok(())
    }

    fn map_fast(&self, mr: &Mr, elements: Elements<'_>) -> Result<Mapped> {
        let guard = srcu::read();
        let object = self.objects.get(mr.index(), &guard);
        let object = object.filter(|object| object.is(mr)).ok_or(EINVAL)?;
        match &object.kind {
            Kind::Fast(fast) => fast.map(elements, mr.page_size()),
            _ => Err(EINVAL),
        }
    }

    fn page_size(&self, mr: &Mr) -> u32 {
        let guard = srcu::read();
        let object = self.objects.get(mr.index(), &guard);
        if let Some(object) = object.filter(|object| object.is(mr)) {
            if let Kind::Fast(fast) = &object.kind {
                return fast.page_size();
            }
        }
        self.hw.page_size(mr)
    }

    // The driver may free the table of the region's pages, which a bound key reads. Who binds a key
    // to a region that is being mapped at the same time has both in hand.
    fn may_map(&self, mr: &Mr) -> Result {
        self.pins.if_free(mr.index(), || Ok(()))
    }

    fn may_import(&self, access: Access) -> Result {
        // Nobody says of a dma-buf that it is persistent.
        let never = [Right::ZeroBased, Right::FlushPersistent];
        if never.iter().any(|right| access.contains(*right)) || !key::supported(access) {
            return Err(eopnotsupp());
        }
        Ok(())
    }

    fn check_dma_buf(buffer: &DmaBuf) -> Result {
        dm::check_dma_buf(buffer)
    }

    type Charge = OwnerCharge;

    fn charge_import(&self, pd: &Pd, pages: usize) -> Result<OwnerCharge> {
        self.charge(pd, cost::pages(pages)?)
    }

    fn reg_dmabuf_mr(
        this: ArcBorrow<'_, Self>,
        mr: &Mr,
        import: Import,
        charge: OwnerCharge,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result {
        // Before anybody can find the region: what it is over goes with the object.
        let object = Region::new(mr, Kind::DmaBuf { import, access }, charge)?;
        this.objects.insert(mr.index(), object.clone())?;
        let Kind::DmaBuf { import, .. } = &object.kind else {
            return Err(EINVAL);
        };
        let filled = import
            .pages(offset, length)
            .and_then(|pages| this.hw.fill(mr, pages, addr, length, access));
        if filled.is_err() {
            this.objects.remove(mr.index(), &object);
        }
        filled
    }

    type Leaving = Leaving;

    fn leave(&self, mr: &Mr) -> Result<Leaving> {
        let object = self.object_of(mr);
        let state = self.pins.if_free(mr.index(), || self.hw.suspend(mr))?;
        Ok(Leaving { object, state })
    }

    fn is_held_up(leaving: &Leaving) -> bool {
        let object = leaving.object.as_ref();
        object.is_some_and(|object| object.may_be_slow())
    }

    // rxe waits for them too, but not for as long as it takes.
    fn wait(leaving: &Leaving) {
        if let Some(object) = &leaving.object {
            object.wait();
        }
    }

    fn dereg_mr(&self, mr: &Mr, leaving: &Leaving, stock: impl FnOnce() -> Result) -> Result {
        let index = mr.index();
        if let Err(err) = stock() {
            self.hw.resume(mr, leaving.state);
            return Err(err);
        }
        // `mr` is gone, and rxe waited for the last access to it.
        if let Some(object) = &leaving.object {
            self.objects.remove(index, object);
        }
        Ok(())
    }

    fn mw_index(&self, mw: &Mw) -> Result<u32> {
        self.hw.window_index(mw)
    }

    type Forgotten = Option<window::Bindings>;

    fn forget_mw(&self, index: u32, mw: &Mw) -> Option<window::Bindings> {
        self.windows.forget(index, mw.address())
    }

    fn may_rereg(&self, mr: &Mr) -> Result {
        match self.object_of(mr) {
            Some(_) => Err(eopnotsupp()),
            None => Ok(()),
        }
    }

    fn rights(&self, mr: &Mr) -> Access {
        self.hw.rights(mr)
    }

    fn retranslate(
        &self,
        mr: &Mr,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result {
        // What a key or a window refers to stays where it is.
        let state = self.pins.if_free(mr.index(), || {
            if self.hw.has_windows(mr) {
                return Err(EBUSY);
            }
            self.hw.suspend(mr)
        })?;
        self.hw.retranslate(mr, state, spare, range, finish)
    }

    fn pin(&self) -> Result<ModulePin> {
        ModulePin::new(crate::this_module()?)
    }

    type Held = KVVec<Pin>;

    // Stock rxe takes every region that it finds here for one on demand.
    fn hold_for_advice(&self, pd: &Pd, lkeys: impl Iterator<Item = u32>) -> Result<KVVec<Pin>> {
        let mut held = KVVec::new();
        for lkey in lkeys {
            let find = || match self.hw.find(pd.device(), lkey, pd)? {
                Named::Memory { base, .. } if base.is_on_demand() => Ok(()),
                _ => Err(EINVAL),
            };
            let ((), pin) = self.pins.pin(lkey >> 8, find)?;
            held.push(pin, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(held)
    }
}

/// Limits and features of a device.
pub(crate) fn caps(device: &MkeyDevice) -> bindings::ib_mkey_caps {
    bindings::ib_mkey_caps {
        max_dm_size: device.memory.size(),
        flags: u64::from(
            bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_DM
                | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_LIST
                | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INTERLEAVED
                | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_ATOMIC
                | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INDEXED,
        ),
        max_entries: key::MAX_ENTRIES,
        max_dims: crate::layout::MAX_DIMS as u32,
        max_depth: MAX_DEPTH as u32,
        dm_classes: device.memory.classes(),
        max_indices: indexed::MAX_INDICES,
    }
}
