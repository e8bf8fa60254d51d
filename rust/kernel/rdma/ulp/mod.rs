// SPDX-License-Identifier: GPL-2.0

//! RDMA for kernel users: devices, queue pairs, device memory and keys as owned objects.
//!
//! | file | what |
//! |---|---|
//! | `devices.rs` | the registered devices; a device that is used is held |
//! | `pd.rs` | protection domains, MRs in them, and memory of the host that devices access |
//! | `dm.rs` | device memory and MRs over it |
//! | `mkey.rs` | keys: unbound, bound, and with a staged layout |
//! | `id.rs`, `cm.rs` | ids of `rdma_cm`; the sides of a connection before it is made |
//! | `wr.rs` | requests, their completions, and the queue pairs to which they are posted |
//! | `link.rs` | connections: from a queue pair that is made to its end |
//! | `srq.rs` | receives that several connections share |
//! | `bdev.rs` | block devices that read and write the memory of requests |
//! | `fast.rs` | fast registration of pages |
//!
//! An object holds all objects that it needs: a bound key holds its leaves, an MR its memory and
//! its protection domain, and each of them the device, which stays registered. Dropping an object
//! frees it. So an object is never busy when it is freed, in whatever order objects are dropped.
//!
//! A module includes `rust/kernel/for_ulp.rs`, whose first lines say how.
//!
//! The functions are those of [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h) and
//! [`include/rdma/ib_mkey.h`](srctree/include/rdma/ib_mkey.h). They sleep unless they say
//! otherwise.

mod bdev;
mod cm;
mod devices;
mod dm;
mod fast;
mod id;
mod link;
mod mkey;
mod pd;
mod srq;
mod wr;

pub(crate) use crate::kernel_ext::rdma::{mr::Right, Access, Device};
pub(crate) use bdev::{BlockDevice, Transfer};
pub(crate) use cm::{Active, Connected, Endpoint, Listener, Passive, Requested};
pub(crate) use devices::{Devices, HeldDevice};
pub(crate) use dm::{DeviceMemory, DmRegion};
pub(crate) use fast::{FastMr, NoPages, Pages, ScatterList};
pub(crate) use id::{random, Net, PRIVATE_MAX};
pub(crate) use link::{Depth, Link, NotMade, Poll};
pub(crate) use mkey::{
    BindRefused, Bound, Layout, LeafBlock, LeafMemory, Mkey, Posted, Staged, Unbound,
};
pub(crate) use pd::{DevicePd, HostBuffer, Remote};
pub(crate) use srq::Srq;
pub(crate) use wr::{Done, Invalidated, Op, Queue, Refused, Request, Status, Wr};

/// The largest number of segments of a request.
pub(crate) const MAX_SEGMENTS: usize = 8;

/// The module's name. `rdma resource` shows it as the owner of an object.
const NAME: &kernel::str::CStr = <crate::LocalModule as kernel::ModuleMetadata>::NAME;
