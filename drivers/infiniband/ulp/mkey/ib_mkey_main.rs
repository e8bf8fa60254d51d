// SPDX-License-Identifier: GPL-2.0

//! ib_mkey: device memory and indirect memory keys for RDMA devices.

use kernel::prelude::*;

#[path = "../../../../rust/bindings/mod.rs"]
mod bindings;

module! {
    type: Module,
    name: "ib_mkey",
    authors: ["The ib_mkey authors"],
    description: "Device memory and indirect memory keys for RDMA devices",
    license: "GPL",
}

struct Module;

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        pr_info!("loaded\n");
        Ok(Module)
    }
}
