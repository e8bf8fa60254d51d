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

use kernel::prelude::*;

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

// Fields are dropped in order: all devices before the redirection.
struct IbMkey {
    _client: rdma::Registration<device::MkeyDevice>,
    _redirection: backend::rxe::Redirection,
}

impl kernel::Module for IbMkey {
    fn init(_module: &'static ThisModule) -> Result<Self> {
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
