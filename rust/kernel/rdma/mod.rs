// SPDX-License-Identifier: GPL-2.0

//! RDMA abstractions.
//!
//! | file | what |
//! |---|---|
//! | `callbacks.rs` | functions that `ib_core` calls as operations of a device, except for MRs |
//! | `client.rs` | a client of `ib_core`, its callbacks and its data for each device |
//! | `device.rs` | an RDMA device |
//! | `dm.rs` | device memory objects |
//! | `driver_mr.rs` | MRs that a driver made |
//! | `export.rs` | RDMA objects that functions exported to C take and return |
//! | `fast_reg.rs` | fast registration by kernel users |
//! | `mr.rs` | MRs, their access flags, and memory windows |
//! | `mr_callbacks.rs` | functions that `ib_core` calls as operations for MRs |
//! | `mr_key.rs` | the form of an lkey and of an rkey |
//! | `ops.rs` | operations of a device that a module gives it, in addition to those of its driver |
//! | `pd.rs` | protection domains |
//! | `scatterlist.rs` | scatterlists that are mapped for a device |
//! | `uapi.rs` | additions to the uverbs interface |
//! | `ulp/` | objects for users of RDMA in the kernel; only `for_ulp.rs` includes it |
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

mod callbacks;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod dm;
mod driver_mr;
pub(crate) mod export;
mod fast_reg;
pub(crate) mod mr;
mod mr_callbacks;
pub(crate) mod mr_key;
pub(crate) mod ops;
pub(crate) mod pd;
pub(crate) mod scatterlist;
pub(crate) mod table;
pub(crate) mod uapi;

pub(crate) use client::Registration;
pub(crate) use device::Device;
pub(crate) use dm::{Dm, DriverDm};
pub(crate) use mr::{Access, Mr, Mw, OwnedMr};
pub(crate) use pd::{OwnedPd, Pd};
