// SPDX-License-Identifier: GPL-2.0

//! The top of the module: an extended device.
//!
//! rxe asks this module before it registers a device (`ib_mkey_rxe_add()`), and tells it when the
//! device has no users any more (`ib_mkey_rxe_remove()`). The data of a device exist in between.
//! `device_ops.rs` has the operations of the device.
//!
//! The module is also a client of `ib_core`, which tells it when a device gets its name and when users
//! leave it. A link that was added before ib_mkey was loaded, or by an rdma_rxe without providers,
//! stays as it is. The client says so in the log.

use crate::{
    backend::{Backend, Hw},
    bindings,
    dm::{self, OfferedMemory},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{
            client::{Adding, Client, ClientOps, Removing},
            device::{DeviceName, NewDevice},
            Device,
        },
    },
    mkey_core::{Core, HasCore, Lookup},
    parameters,
    region::{
        binding::{MAX_DEPTH, MAX_ENTRIES},
        indices::MAX_INDICES,
    },
};
use kernel::{
    error::from_result,
    ffi::{c_char, c_int, c_void},
    prelude::*,
    str::CStr,
    sync::{Arc, ArcBorrow},
};

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

    /// Finds the data of an extended device. They stay as long as the device.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device that is not extended.
    #[inline]
    pub(crate) fn data(device: &Device) -> Result<&Self> {
        let data = Hw::data(device).ok_or_else(eopnotsupp)?;
        // SAFETY: `ib_mkey_rxe_add()` made the data. `ib_mkey_rxe_remove()` takes them back, when the
        // device has no users.
        Ok(unsafe { &*data.cast::<Self>().as_ptr() })
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

impl Lookup for Core {
    #[inline]
    fn of(device: &Device) -> Result<&Self> {
        Ok(&MkeyDevice::data(device)?.core)
    }
}

/// Puts the data of `device` into `data`, before rxe registers the device as `name`.
///
/// # Safety
///
/// Only `backend/rxe/provider.c` may call this, once for each device, with its operations set.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_add(
    device: *mut bindings::ib_device,
    name: *const c_char,
    data: *mut *mut c_void,
) -> c_int {
    from_result(|| {
        // SAFETY: rxe calls this once for each device, which no other code uses yet, with the name that
        // the device gets.
        let (device, name) = unsafe { (NewDevice::from_raw(device), CStr::from_char_ptr(name)) };
        let this = MkeyDevice::new(device, name)?;
        // SAFETY: `data` is a field of the device, in which rxe keeps the data.
        unsafe { *data = Arc::into_raw(this).cast_mut().cast() };
        Ok(0)
    })
}

/// Drops the data of a device that has no users and no objects any more.
///
/// # Safety
///
/// Only `backend/rxe/provider.c` may call this, once, with what `ib_mkey_rxe_add()` made.
#[no_mangle]
unsafe extern "C" fn ib_mkey_rxe_remove(data: *mut c_void) {
    // SAFETY: The data came from `Arc::into_raw()`, and nothing borrows them any more.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<MkeyDevice>()) });
}

impl ClientOps for MkeyDevice {
    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    fn add(device: &Adding<'_>) -> Option<Arc<Self>> {
        let Some(data) = Hw::data(device) else {
            if device.driver_id() == bindings::rdma_driver_id_RDMA_DRIVER_RXE {
                pr_notice!(
                    "{}: not extended: its link was added before ib_mkey was loaded, or by an \
                     unmodified rdma_rxe; mkeyctl doctor tells what to do\n",
                    device.name()
                );
            }
            return None;
        };
        // SAFETY: The data came from `Arc::into_raw()`, and stay as long as the device.
        let data = unsafe { ArcBorrow::from_raw(data.cast::<Self>().as_ptr()) };
        let this: Arc<Self> = data.into();
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

    fn remove(self: ArcBorrow<'_, Self>, _device: &Removing<'_>) {
        dm::show::remove(&self.memory);
    }
}
