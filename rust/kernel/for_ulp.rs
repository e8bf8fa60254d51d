// SPDX-License-Identifier: GPL-2.0

//! The part of `rust/kernel` that a ULP needs, under the same names.
//!
//! A module includes this file as `kernel_ext`, includes the bindings as `bindings` and calls
//! `module!`, all in its root. `mod.rs` would make a ULP depend on dma-buf and DAX.

pub(crate) mod block;
pub(crate) mod sched;
pub(crate) mod thread;

pub(crate) mod sync {
    //! Synchronisation for ULPs.

    pub(crate) mod global;
    pub(crate) mod lock;
    pub(crate) mod racing;
}

pub(crate) mod rdma {
    //! RDMA for ULPs.

    pub(crate) mod client;
    pub(crate) mod device;
    pub(crate) mod mr;
    pub(crate) mod mr_key;
    pub(crate) mod pd;
    pub(crate) mod ulp;

    pub(crate) use device::Device;
    pub(crate) use mr::{Access, Mr, OwnedMr};
    pub(crate) use pd::{OwnedPd, Pd};
}
