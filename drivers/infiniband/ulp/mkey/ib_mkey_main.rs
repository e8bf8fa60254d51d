// SPDX-License-Identifier: GPL-2.0

//! ib_mkey: device memory and indirect memory keys for RDMA devices.
//!
//! | file | what |
//! |---|---|
//! | `device.rs` | an extended device |
//! | `dm.rs` | device memory |
//! | `key.rs` | keys: from a description to something bound |
//! | `object.rs` | regions of ours, and what is bound to them |
//! | `pins.rs` | which regions are referred to |
//! | `eval.rs` | the evaluator: accesses become runs of bytes |
//! | `errors.rs` | the table of errors |
//! | `backend.rs`, `backend/` | what a driver must give, and what knows rxe |
//! | `uapi.rs`, `uapi/` | the uverbs methods |
//! | `kapi.rs`, `exports.c` | the kernel API |

use core::borrow::Borrow;
use kernel::{prelude::*, sync::SetOnce};

mod backend;
#[path = "../../../../rust/bindings/mod.rs"]
mod bindings;
mod device;
mod dm;
mod errors;
mod eval;
mod kapi;
mod key;
#[path = "../../../../rust/layout/src/lib.rs"]
mod layout;
mod object;
mod pins;
#[path = "../../../../rust/kernel/rdma/mod.rs"]
mod rdma;
mod uapi;

module! {
    type: IbMkey,
    name: "ib_mkey",
    authors: ["The ib_mkey authors"],
    description: "Device memory and indirect memory keys for RDMA devices",
    license: "GPL",
    params: {
        max_dm_size: u64 {
            default: 67108864,
            description: "Bytes of device memory of each device (default 64 MiB)",
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

/// Returns the parameter. Linux 7.2 gives it as a reference, 7.3 as a value.
fn max_dm_size() -> u64 {
    fn value(parameter: impl Borrow<u64>) -> u64 {
        *parameter.borrow()
    }
    value(module_parameters::max_dm_size.value())
}

// Fields are dropped in order: all devices before the redirection.
struct IbMkey {
    _client: rdma::Registration<device::MkeyDevice>,
    _redirection: backend::rxe::Redirection,
}

impl kernel::Module for IbMkey {
    fn init(module: &'static ThisModule) -> Result<Self> {
        THIS.populate(module);
        if rdma::uverbs_is_loaded() {
            pr_warn!(
                "ib_uverbs was loaded first: programs get no device memory or keys until it, and \
                 rdma_ucm before it, are unloaded and loaded again\n"
            );
        }
        let redirection = backend::rxe::Redirection::new()?;
        Ok(Self {
            _client: rdma::Registration::new()?,
            _redirection: redirection,
        })
    }
}
