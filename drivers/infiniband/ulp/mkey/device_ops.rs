// SPDX-License-Identifier: GPL-2.0

//! The operations of an extended device.

use crate::{
    access, api,
    backend::{
        pins::{NoDereg, Pin, Unpinned},
        Backend, BaseMr, ClaimedMr, Hw, LookedUp, MrRange,
    },
    bindings,
    device::MkeyDevice,
    dm::{self, Buffer},
    kernel_ext::{
        dma_buf::{DmaBuf, Import},
        error::eopnotsupp,
        rdma::{
            client::ModulePin,
            mr::{NewMr, Right},
            mr_key,
            ops::{DeviceOps, Overlay},
            scatterlist::{Elements, MappedElements},
            uapi::{uapi_definitions, Attrs, Definitions},
            Access, Ah, Dm, Mr, Mw, Pd, Qp,
        },
        user::User,
    },
    layout::{Entry, List},
    limits::{cost, owner::OwnerCharge},
    mkey_core::Core,
    parameters,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace, UnusedMemory},
        rights::supported,
        window, Kind, Region,
    },
};
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// An MR that is about to be deregistered.
pub(crate) struct Leaving {
    /// Its region, if the MR belongs to this module.
    region: Option<Arc<Region>>,
    /// Resumed if deregistration fails.
    suspended: <Hw as Backend>::Suspended,
    /// `true` for an ODP MR of the driver, for whose pages an access may wait.
    on_demand: bool,
}

impl DeviceOps for MkeyDevice {
    const DEFINITIONS: Definitions = uapi_definitions!(api::bindings::ib_mkey_uapi_defs);

    type Dm = Buffer;

    type DmClass = dm::ClassRequest;

    fn dm_class(attrs: &Attrs<'_>) -> Result<dm::ClassRequest> {
        let class = attrs.get_u64(bindings::ib_mkey_dm_alloc_attrs_IB_MKEY_ATTR_DM_ALLOC_CLASS)?;
        dm::ClassRequest::from_raw(class.unwrap_or(0))
    }

    fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    fn announced_dm_size(&self) -> u64 {
        if parameters::announce_dm() {
            self.memory.size()
        } else {
            0
        }
    }

    fn alloc_dm(
        this: ArcBorrow<'_, Self>,
        attr: &bindings::ib_dm_alloc_attr,
        class: dm::ClassRequest,
        user: Option<User>,
    ) -> Result<KBox<Dm<Buffer>>> {
        let request = dm::DmRequest {
            length: attr.length,
            log_align: attr.alignment,
            class,
            user,
        };
        Dm::new(Buffer::new(
            &this.core.hw,
            &this.core.pd,
            &this.memory,
            &request,
        )?)
    }

    fn reg_dm_mr(
        this: ArcBorrow<'_, Self>,
        mr: NewMr<'_>,
        pd: &Pd,
        dm: &Dm<Buffer>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result {
        // Only persistent memory can be flushed to persistence.
        let volatile = !dm.data.memory().is_persistent();
        if !supported(access) || (volatile && access.contains(Right::FlushPersistent)) {
            return Err(eopnotsupp());
        }
        let charge = this.core.charge(pd, cost::REGION + cost::BINDING)?;
        let mr = this.core.hw.claim_dm(mr)?;
        if length == 0 {
            // Nothing is bound, so only an access of 0 bytes is in range.
            this.core.adopt(mr, Kind::Dm, charge)?;
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
                len: dm.data.memory().len() as u64,
                access: access | Right::LocalWrite,
                place: LeafPlace::Memory {
                    base: dm.data.base.clone(),
                    delta: 0,
                    mutable: false,
                },
                _pin: None,
            },
            GFP_KERNEL,
        )?;
        let layout = KLayout::List(List::new(entries)?);
        let binding = Binding::new(
            layout,
            leaves,
            access,
            pd,
            None,
            None,
            UnusedMemory::default(),
        )?;
        let region = this.core.adopt(mr, Kind::Dm, charge)?;
        // After a failure the caller returns the MR to the driver, which does not empty the slot.
        region.bind(&this.core.pins, mr, &binding).inspect_err(|_| {
            Core::hide(mr);
            this.core.forget(mr.index(), &region);
        })
    }

    fn alloc_fast_reg(this: ArcBorrow<'_, Self>, mr: NewMr<'_>, max: u32) -> Result {
        this.core.adopt_fast_reg(mr, max)?;
        Ok(())
    }

    fn map_fast_reg(&self, mr: &Mr, elements: Elements<'_>) -> Result<MappedElements> {
        // The region's lock may sleep on a real-time kernel, so no critical section is held here.
        let region = self.core.region_of(mr).ok_or(EINVAL)?;
        match &region.kind {
            Kind::FastReg(fast_reg) => fast_reg.map(elements, mr.page_size()),
            _ => Err(EINVAL),
        }
    }

    fn page_size(&self, mr: &Mr) -> u32 {
        // As for `map_fast_reg()`.
        if let Some(region) = self.core.region_of(mr) {
            if let Kind::FastReg(fast_reg) = &region.kind {
                return fast_reg.page_size();
            }
        }
        self.core.hw.page_size(mr)
    }

    // Mapping elements may free the MR's page table, which a bound key reads. This check does not
    // exclude a concurrent bind: a ULP must not bind a key to the MR while it maps the MR.
    fn may_map(&self, mr: &Mr) -> Result {
        Ok(self.core.pins.if_unpinned(mr.index(), |_| ())?)
    }

    fn may_import(&self, access: Access) -> Result {
        // No exporter tells whether the memory of its dma-buf is persistent.
        let never = [Right::ZeroBased, Right::FlushPersistent];
        if never.iter().any(|right| access.contains(*right)) || !supported(access) {
            return Err(eopnotsupp());
        }
        Ok(())
    }

    fn check_dma_buf(buffer: &DmaBuf) -> Result {
        dm::check_dma_buf(buffer)
    }

    type Charge = OwnerCharge;

    fn charge_import(&self, pd: &Pd, pages: usize) -> Result<OwnerCharge> {
        self.core.charge(pd, cost::pages(pages)?)
    }

    fn reg_dmabuf_mr(
        this: ArcBorrow<'_, Self>,
        mr: NewMr<'_>,
        import: Import,
        charge: OwnerCharge,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result {
        // The import must be in the table before a program can find the MR: dereg_mr drops the
        // import with the region.
        let kind = Kind::DmaBuf { import, access };
        let index = mr.index();
        let region = this.core.adopt(&mr, kind, charge)?;
        let Kind::DmaBuf { import, .. } = &region.kind else {
            return Err(EINVAL);
        };
        // SAFETY: The region has the import, and is in the table until the MR was deregistered.
        let filled = unsafe { this.core.hw.fill(mr, import, offset, length, addr, access) };
        if filled.is_err() {
            this.core.forget(index, &region);
        }
        filled
    }

    type Leaving = Leaving;

    fn leave(&self, mr: &Mr) -> Result<Leaving> {
        let suspend = |unpinned: &Unpinned<'_>| self.core.hw.suspend(mr, unpinned);
        if mr.is_user() && mr.pd() == self.core.pd.as_raw() {
            // This is the MR over the pages of device memory. Users cannot name it, so nothing pins
            // it, and it has no region.
            let suspended = self.core.pins.if_unpinned(mr.index(), suspend)??;
            return Ok(Leaving {
                region: None,
                suspended,
                on_demand: false,
            });
        }
        let region = self.core.region_of(mr);
        let suspended = self.core.if_free_or_yielding(mr, suspend)?;
        Ok(Leaving {
            region,
            suspended,
            on_demand: self.core.hw.is_on_demand(mr),
        })
    }

    fn is_held_up(leaving: &Leaving) -> bool {
        let region = leaving.region.as_ref();
        leaving.on_demand || region.is_some_and(|region| region.may_be_slow())
    }

    // rxe waits for accesses only for a limited time, so this waits for slow accesses first.
    fn wait(mr: &Mr, leaving: &Leaving) -> Result {
        if let Some(region) = &leaving.region {
            region.wait();
        }
        if leaving.on_demand {
            Hw::wait_until_alone(mr)?;
        }
        Ok(())
    }

    type Left = Option<Arc<Region>>;

    fn dereg_mr(
        &self,
        mr: &Mr,
        leaving: Leaving,
        stock: impl FnOnce() -> Result,
    ) -> Result<Option<Arc<Region>>> {
        let Leaving {
            region, suspended, ..
        } = leaving;
        let index = mr.index();
        if let Some(region) = &region {
            Core::hide(mr);
            region.set_gone(true);
        }
        if let Err(err) = stock() {
            if let Some(region) = &region {
                region.set_gone(false);
                self.core.expose(mr, region);
            }
            Hw::resume(mr, suspended);
            return Err(err);
        }
        // rxe has freed `mr`, after the last access to it.
        if let Some(region) = &region {
            self.core.forget(index, region);
        }
        Ok(region)
    }

    // If the client was removed, the slot of the MR stays empty.
    fn stay(mr: &Mr, leaving: Leaving) {
        Hw::resume(mr, leaving.suspended);
    }

    fn close_mw(&self, mw: &Mw) {
        self.core.hw.close_window(mw);
    }

    type Forgotten = Option<window::Bindings>;

    fn forget_mw(&self, mw: &Mw) -> Option<window::Bindings> {
        self.core.windows.forget(mw.address())
    }

    fn prepare_rereg(&self, mr: &Mr, changes_pd: bool) -> Result {
        if self.core.region_of(mr).is_some() {
            return Err(eopnotsupp());
        }
        if changes_pd {
            Hw::compare_pds();
        }
        Ok(())
    }

    fn rights(&self, mr: &Mr) -> Access {
        self.core.hw.rights(mr)
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
            if self.core.hw.has_windows(mr) {
                return Err(EBUSY);
            }
            self.core.hw.suspend(mr, unpinned)
        })?;
        self.core
            .hw
            .retranslate(mr, suspended, spare, range, finish)
    }

    fn pin() -> Result<ModulePin> {
        ModulePin::new(parameters::this_module()?)
    }

    fn created_qp(&self, qp: &Qp) {
        self.core.take_binds(qp);
    }

    fn close_qp(&self, qp: &Qp) -> bool {
        self.core.hw.close(qp)
    }

    type Ended = access::window::EndedBindings;

    fn end_windows(&self, qp: &Qp, from: &mut u32) -> Option<Self::Ended> {
        access::window::end_some(&self.core, qp, from)
    }

    fn end_tasks(qp: &Qp) {
        Hw::end_tasks(qp);
    }

    fn end_ah(ah: &Ah) {
        Hw::end_ah(ah);
    }

    type Held = KVVec<Pin>;

    // Stock rxe treats every MR that advise_mr names as an ODP MR. So other MRs are refused here.
    fn hold_for_advice(&self, pd: &Pd, lkeys: impl Iterator<Item = u32>) -> Result<KVVec<Pin>> {
        let mut held = KVVec::new();
        for lkey in lkeys {
            // SAFETY: The result drops before `held`.
            let find = |held: &NoDereg<'_>| match unsafe { self.core.hw.find(held, lkey, pd)? } {
                LookedUp::Memory { base, .. } if base.is_on_demand() => Ok(()),
                _ => Err(EINVAL),
            };
            let ((), pin) = self.core.pins.pin(mr_key::index(lkey), find)?;
            held.push(pin, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(held)
    }
}
