// SPDX-License-Identifier: GPL-2.0

//! The top of the module: an extended device.
//!
//! rxe asks this module before it registers a device, and tells it when the device has no users any
//! more. The data of a device exist in between (`backend/rxe/device.rs`).
//! `device_ops.rs` has the operations of the device.
//!
//! The module is also a client of `ib_core`, which tells it when a device gets its name and when
//! users leave it. A link that was added before ib_mkey was loaded, or by an rdma_rxe without
//! providers, stays as it is. The client says so in the log.

use crate::{
    backend::rxe_keeps,
    bindings,
    dm::{self, OfferedMemory},
    kernel_ext::rdma::{
        client::{Client, ClientOps},
        device::{DeviceName, NewDevice},
        Device,
    },
    mkey_core::{Core, HasCore, Lookup},
    parameters,
    region::binding::{MAX_DEPTH, MAX_ENTRIES, MAX_INDICES},
};
use kernel::{prelude::*, str::CStr, sync::Arc};

/// The client of `ib_core`.
static CLIENT: Client<MkeyDevice> = Client::new(c"ib_mkey");

/// The data that ib_mkey keeps with a device.
#[pin_data]
pub(crate) struct MkeyDevice {
    #[pin]
    pub(crate) core: Core,
    pub(crate) memory: Arc<OfferedMemory>,
}

impl MkeyDevice {
    fn new(device: NewDevice<'_>, name: &CStr) -> Result<Arc<Self>> {
        let memory = OfferedMemory::new(
            (DeviceName::new(&device), name),
            parameters::dm_classes()?,
            device.node(),
            parameters::max_dm_size(),
            parameters::max_dm_size_per_user(),
        )?;
        let core = Core::new(device)?;
        Arc::pin_init(
            try_pin_init!(Self {
                core <- core,
                memory,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Returns the limits and features of the device.
    pub(crate) fn caps(&self) -> bindings::ib_uverbs_mkey_caps {
        bindings::ib_uverbs_mkey_caps {
            max_dm_size: self.memory.size(),
            flags: u64::from(
                bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_DM
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_LIST
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INTERLEAVED
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_ATOMIC
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_INDEXED
                    | bindings::ib_uverbs_mkey_cap_flags_IB_UVERBS_MKEY_CAP_REQUEST,
            ) | u64::from(self.memory.coherent_classes())
                << bindings::IB_MKEY_CAP_COHERENT_SHIFT,
            max_entries: MAX_ENTRIES,
            max_dims: crate::layout::MAX_DIMS as u32,
            max_depth: MAX_DEPTH as u32,
            dm_classes: self.memory.classes(),
            max_indices: MAX_INDICES,
            comp_mask: 0,
        }
    }
}

impl HasCore for MkeyDevice {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl Lookup for Core {
    #[inline]
    fn of(device: &Device) -> Result<&Self> {
        Ok(&MkeyDevice::data(device)?.core)
    }
}

rxe_keeps!(MkeyDevice, MkeyDevice::new);

impl ClientOps for MkeyDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Device) -> Option<Arc<Self>> {
        let Some(this) = Self::shared(device) else {
            if device.driver_id() == bindings::rdma_driver_id_RDMA_DRIVER_RXE {
                pr_notice!(
                    "{}: not extended: its link was added before ib_mkey was loaded, or by an \
                     unmodified rdma_rxe; mkeyctl doctor tells what to do\n",
                    device.name()
                );
            }
            return None;
        };
        if let Err(err) = dm::show::add(&this.memory, this.clone()) {
            pr_err!("{}: not shown in debugfs: {:?}\n", device.name(), err);
            return None;
        }
        pr_info!(
            "{}: extended, {} bytes of device memory\n",
            device.name(),
            this.memory.size()
        );
        Some(this)
    }

    fn remove(self: Arc<Self>, _device: &Device) {
        dm::show::remove(&self.memory);
    }
}
