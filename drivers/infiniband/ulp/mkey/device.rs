// SPDX-License-Identifier: GPL-2.0

//! The top of the module: an extended device, and the client of `ib_core` that extends it.
//!
//! `ib_core` adds a device to its clients in the order in which they were registered. ib_mkey
//! precedes `ib_uverbs`, so `ib_uverbs` finds the operations that ib_mkey installed.
//! `device_ops.rs` has these operations.

use crate::{
    bindings,
    dm::{self, OfferedMemory},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{
            client::{Adding, Client, ClientOps, ModulePin, Removing, SoleData},
            device::DeviceName,
            ops::{Overlay, Running},
            Device,
        },
        sync::srcu,
    },
    mkey_core::{Core, HasCore, Lookup},
    parameters,
    region::{
        binding::{MAX_DEPTH, MAX_ENTRIES},
        indices::MAX_INDICES,
    },
    selftest,
};
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, ArcBorrow,
    },
};

/// The client of `ib_core`.
static CLIENT: Client<MkeyDevice> = Client::new(c"ib_mkey");

/// The data that ib_mkey keeps with a device.
#[pin_data]
pub(crate) struct MkeyDevice {
    #[pin]
    pub(crate) core: Core,
    pub(crate) memory: Arc<OfferedMemory>,
    pub(crate) overlay: Overlay,
    /// `true` if the self-test has passed and the operations are installed.
    extended: Atomic<bool>,
    _module: ModulePin,
}

impl MkeyDevice {
    fn new(device: &Adding<'_>, sole: SoleData<'_>) -> Result<Arc<Self>> {
        let module = ModulePin::new(parameters::this_module()?)?;
        let core = Core::new(device, sole)?;
        let memory = OfferedMemory::new(
            DeviceName::new(device),
            parameters::dm_classes()?,
            device.node(),
            parameters::max_dm_size(),
            parameters::max_dm_size_per_user(),
        )?;
        Arc::pin_init(
            try_pin_init!(Self {
                core <- core,
                memory,
                overlay: Overlay::new(device),
                extended: Atomic::new(false),
                _module: module,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Finds the data of an extended device.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that is not extended.
    pub(crate) fn of(device: &Device) -> Result<Arc<Self>> {
        let guard = srcu::read_brief();
        CLIENT
            .data(device, &guard)
            .filter(|this| this.extended.load(ordering::Acquire))
            .map(Arc::from)
            .ok_or_else(eopnotsupp)
    }

    /// Checks that this module provides the device's memory.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver provides it.
    pub(crate) fn owns_dm(&self) -> Result {
        if self.overlay.fills_dm() {
            Ok(())
        } else {
            Err(eopnotsupp())
        }
    }

    /// Returns the limits and features of the device.
    pub(crate) fn caps(&self) -> bindings::ib_mkey_caps {
        bindings::ib_mkey_caps {
            max_dm_size: self.memory.size(),
            flags: u64::from(
                bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_DM
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_LIST
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INTERLEAVED
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_ATOMIC
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INDEXED
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_REQUEST,
            ),
            max_entries: MAX_ENTRIES,
            max_dims: crate::layout::MAX_DIMS as u32,
            max_depth: MAX_DEPTH as u32,
            dm_classes: self.memory.classes(),
            max_indices: MAX_INDICES,
        }
    }
}

impl HasCore for MkeyDevice {
    fn core(&self) -> &Core {
        &self.core
    }
}

/// The core in the data of a device.
pub(crate) struct CoreOf<T>(T);

impl<T: Deref<Target = MkeyDevice>> Deref for CoreOf<T> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0.core
    }
}

impl Lookup for Core {
    type Running<'a> = CoreOf<Running<'a, MkeyDevice>>;
    type Kept = CoreOf<Arc<MkeyDevice>>;

    fn running(device: &Device) -> Result<Self::Running<'_>> {
        Ok(CoreOf(Running::on(device)?))
    }

    fn kept(device: &Device) -> Result<Self::Kept> {
        MkeyDevice::of(device).map(CoreOf)
    }
}

impl ClientOps for MkeyDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Adding<'_>, sole: SoleData<'_>) -> Option<Arc<Self>> {
        match Self::new(device, sole) {
            Ok(this) => Some(this),
            // The device belongs to another driver.
            Err(err) if err == ENODEV => None,
            Err(err) => {
                pr_err!("{}: not extended: {:?}\n", device.name(), err);
                None
            }
        }
    }

    fn added(self: ArcBorrow<'_, Self>, device: &Adding<'_>) -> bool {
        if let Err(err) = selftest::run(&self.core, device) {
            pr_err!(
                "{}: not extended, self-test failed: {:?}\n",
                device.name(),
                err
            );
            return false;
        }
        let install = || {
            dm::show::add(&self.memory, Arc::<Self>::from(self))?;
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
        // Slots are emptied first, because the driver's own `dereg_mr` empties none.
        self.core.close(device);
        self.overlay.uninstall(device);
    }

    fn removed(self: ArcBorrow<'_, Self>) {
        Overlay::drain();
    }
}
