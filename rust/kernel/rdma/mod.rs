// SPDX-License-Identifier: GPL-2.0

//! RDMA abstractions.
//!
//! | file | what |
//! |---|---|
//! | `client.rs` | a client of `ib_core`, its callbacks and its data for each device |
//! | `device.rs` | an RDMA device |
//! | `dm.rs` | device memory objects |
//! | `driver.rs` | the operations of a driver, and MRs that it made |
//! | `export.rs` | RDMA objects that functions exported to C take and return |
//! | `mr.rs` | MRs, their access flags, and memory windows |
//! | `mr_key.rs` | the form of an lkey and of an rkey |
//! | `ops.rs` | operations of a device that a module gives it, in addition to those of its driver |
//! | `pd.rs` | protection domains |
//! | `scatterlist.rs` | scatterlists that are mapped for a device |
//! | `table.rs` | the table of these operations, and the functions that `ib_core` calls |
//! | `ulp/` | objects for users of RDMA in the kernel; only `for_ulp.rs` includes it |
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod driver;
pub(crate) mod export;
pub(crate) mod mr;
pub(crate) mod mr_key;
pub(crate) mod ops;
pub(crate) mod pd;
pub(crate) mod scatterlist;
pub(crate) mod table;

pub(crate) use client::Registration;
pub(crate) use device::Device;
pub(crate) use dm::{Dm, DriverDm};
pub(crate) use mr::{Access, Mr, OwnedMr};
pub(crate) use pd::{OwnedPd, Pd};
