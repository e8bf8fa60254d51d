// SPDX-License-Identifier: GPL-2.0

//! ib_mkey: device memory and indirect memory keys for RDMA devices.
//!
//! | file | what |
//! |---|---|
//! | `device.rs`, `device_ops.rs` | the top: an extended device, and its operations |
//! | `mkey_core.rs` | the core of a device: its regions, pins, limits and driver |
//! | `access.rs` | the only way from an MR to its binding |
//! | `eval.rs` | the evaluator: accesses become rows of bytes |
//! | `errors.rs` | the table of errors |
//! | `counters.rs` | counts of binds and of refused accesses |
//! | `parameters.rs` | the module's parameters |
//! | `api.rs`, `api/` | the kernel API and the uverbs methods |
//! | `key.rs`, `key/` | keys: from a description to a binding |
//! | `region.rs`, `region/` | regions, their bindings, and rebinds |
//! | `dm.rs`, `dm/` | device memory |
//! | `limits.rs`, `limits/` | accounts and limits of memory |
//! | `backend.rs`, `backend/` | the interface to a driver, and the backend of rxe |

use backend::rxe;
use kernel::prelude::*;
use kernel_ext::rdma;

mod access;
mod api;
mod backend;
#[path = "../../../../rust/bindings/mod.rs"]
mod bindings;
mod counters;
mod device;
mod device_ops;
mod dm;
mod errors;
mod eval;
#[path = "../../../../rust/kernel/mod.rs"]
mod kernel_ext;
mod key;
#[path = "../../../../rust/layout/src/lib.rs"]
mod layout;
mod limits;
mod mkey_core;
mod parameters;
mod region;

module! {
    type: IbMkey,
    name: "ib_mkey",
    authors: ["The ib_mkey authors"],
    description: "Device memory and indirect memory keys for RDMA devices",
    license: "GPL",
    alias: ["rdma-rxe-provider"],
    imports_ns: ["DMA_BUF"],
    params: {
        max_dm_size: u64 {
            default: 67108864,
            description: "Bytes of RAM that each device gives as device memory (default 64 MiB)",
        },
        max_dm_size_per_user: u64 {
            default: 0,
            description: "Bytes of device memory of each user and device (default 0: half of each memory)",
        },
        max_key_memory: u64 {
            default: 0,
            description: "Bytes of the kernel's memory for keys and regions over dma-bufs of each device (default 0: an eighth of RAM, at most 8 GiB)",
        },
        max_key_memory_per_user: u64 {
            default: 0,
            description: "Bytes of that for each user and device (default 0: half)",
        },
        announce_dm: u8 {
            default: 0,
            description: "1: tell programs of device memory by the standard query (default 0)",
        },
    },
}

// Fields drop in declaration order, when there is no device.
struct IbMkey {
    _registered: rxe::Registered,
    _client: rdma::Registration<device::MkeyDevice>,
    _shown: dm::show::Shown,
}

impl kernel::Module for IbMkey {
    fn init(module: &'static ThisModule) -> Result<Self> {
        parameters::set_module(module);
        parameters::dm_classes()?;
        let shown = dm::show::Shown::new()?;
        let client = rdma::Registration::new()?;
        // From here on there can be devices.
        let registered = rxe::register(&device_ops::OPERATIONS)?;
        Ok(Self {
            _registered: registered,
            _client: client,
            _shown: shown,
        })
    }
}
