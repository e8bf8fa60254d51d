// SPDX-License-Identifier: GPL-2.0

//! ib_mkey: device memory and indirect memory keys for RDMA devices.
//!
//! | file | what |
//! |---|---|
//! | `device.rs` | an extended device |
//! | `access.rs` | the only way from an MR to what is bound to it |
//! | `eval.rs` | the evaluator: accesses become rows of bytes |
//! | `errors.rs` | the table of errors |
//! | `api.rs`, `api/` | the kernel API and the uverbs methods |
//! | `key.rs`, `key/` | keys: from a description to a binding |
//! | `region.rs`, `region/` | regions, what is bound to them, and how that is replaced |
//! | `dm.rs`, `dm/` | device memory |
//! | `limits.rs`, `limits/` | accounts and limits of memory |
//! | `backend.rs`, `backend/` | what a driver must give, and what knows rxe |

use api::uverbs;
use core::borrow::Borrow;
use kernel::{prelude::*, sync::SetOnce};
use kernel_ext::rdma;

mod access;
mod api;
mod backend;
#[path = "../../../../rust/bindings/mod.rs"]
mod bindings;
mod device;
mod dm;
mod errors;
mod eval;
#[path = "../../../../rust/kernel/mod.rs"]
mod kernel_ext;
mod key;
#[path = "../../../../rust/layout/src/lib.rs"]
mod layout;
mod limits;
mod region;

module! {
    type: IbMkey,
    name: "ib_mkey",
    authors: ["The ib_mkey authors"],
    description: "Device memory and indirect memory keys for RDMA devices",
    license: "GPL",
    imports_ns: ["DMA_BUF"],
    params: {
        max_dm_size: u64 {
            default: 67108864,
            description: "Bytes of RAM that each device gives as device memory (default 64 MiB)",
        },
        max_dm_size_per_process: u64 {
            default: 0,
            description: "Bytes of device memory of each process and device (default 0: as the device)",
        },
        max_key_memory: u64 {
            default: 0,
            description: "Bytes of the kernel's memory for keys and regions over dma-bufs of each device (default 0: an eighth of RAM, at most 8 GiB)",
        },
        max_key_memory_per_process: u64 {
            default: 0,
            description: "Bytes of that for each process and device (default 0: a quarter)",
        },
        announce_dm: u8 {
            default: 0,
            description: "1: tell programs of device memory by the standard query (default 0)",
        },
    },
}

/// This module, from its initialisation on.
static THIS: SetOnce<&'static ThisModule> = SetOnce::new();

/// Returns this module.
///
/// # Errors
///
/// `ENODEV` before it is initialised.
fn this_module() -> Result<&'static ThisModule> {
    THIS.as_ref().copied().ok_or(ENODEV)
}

/// Returns a parameter's value. Linux 7.2 gives a reference, 7.3 the value.
fn value<T: Copy>(parameter: impl Borrow<T>) -> T {
    *parameter.borrow()
}

/// Bytes of RAM of a device.
fn max_dm_size() -> u64 {
    value(module_parameters::max_dm_size.value())
}

/// Bytes of a process.
fn max_dm_size_per_process() -> u64 {
    match value(module_parameters::max_dm_size_per_process.value()) {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// Bytes of the kernel's memory that keys and regions over dma-bufs of a device may take.
fn max_key_memory() -> u64 {
    match value(module_parameters::max_key_memory.value()) {
        0 => (kernel_ext::memory::ram::total() / 8).min(8 << 30),
        bytes => bytes,
    }
}

/// Bytes of that for a process.
fn max_key_memory_per_process() -> u64 {
    match value(module_parameters::max_key_memory_per_process.value()) {
        0 => max_key_memory() / 4,
        bytes => bytes,
    }
}

/// Returns `true` if the standard query tells programs of device memory.
fn announce_dm() -> bool {
    value::<u8>(module_parameters::announce_dm.value()) != 0
}

/// Classes of memory that devices offer.
fn dm_classes() -> Result<dm::Offer<'static>> {
    dm::Offer::new(uverbs::dm_class().to_str()?)
}

// Fields are dropped in order: all devices before the redirection and what they show themselves in.
struct IbMkey {
    _uverbs: Pin<KBox<rdma::uverbs::Follower>>,
    _client: rdma::Registration<device::MkeyDevice>,
    _shown: dm::show::Shown,
    _redirection: backend::rxe::Redirection,
}

impl kernel::Module for IbMkey {
    fn init(module: &'static ThisModule) -> Result<Self> {
        THIS.populate(module);
        dm_classes()?;
        let shown = dm::show::Shown::new()?;
        let redirection = backend::rxe::Redirection::new()?;
        let client = rdma::Registration::new()?;
        let uverbs = rdma::uverbs::Follower::new()?;
        if rdma::uverbs::is_older() {
            pr_warn!(
                "ib_uverbs was loaded first: programs get no device memory or keys until it, and \
                 rdma_ucm before it, are unloaded and loaded again\n"
            );
        }
        Ok(Self {
            _uverbs: uverbs,
            _client: client,
            _shown: shown,
            _redirection: redirection,
        })
    }
}
