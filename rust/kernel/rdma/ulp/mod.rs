// SPDX-License-Identifier: GPL-2.0

//! RDMA for a kernel user: devices, queue pairs, device memory and keys as owned objects.
//!
//! | file | what |
//! |---|---|
//! | `devices.rs` | the devices there are, each held for as long as it is used |
//! | `pd.rs` | protection domains, and regions in them |
//! | `host.rs` | memory of the host that devices read and write |
//! | `dm.rs` | device memory and regions over it |
//! | `mkey.rs` | keys, unbound and bound |
//! | `qp.rs` | completion queues and reliable queue pairs |
//!
//! An object keeps alive all that it needs: a bound key its leaves, a region its memory and its
//! protection domain, each of them the device, which therefore cannot go. Dropping an object frees
//! it. So nothing is busy when it is freed, whichever order it happens in.
//!
//! A module includes `rust/kernel/for_ulp.rs`, which says how.
//!
//! The functions are those of [`include/rdma/ib_mkey.h`](srctree/include/rdma/ib_mkey.h), and for
//! what is not particular to ib_mkey those of
//! [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h). They sleep unless they say otherwise.

mod devices;
mod dm;
mod host;
mod mkey;
mod pd;
mod qp;

pub(crate) use crate::kernel_ext::rdma::{mr::Right, Access, Device};
pub(crate) use devices::{Devices, HeldDevice};
pub(crate) use dm::{Class, DeviceMemory, DmRegion};
pub(crate) use host::HostBuffer;
pub(crate) use mkey::{Block, Bound, Mkey, Range, Refused, Table, Unbound};
pub(crate) use pd::Pd;
pub(crate) use qp::{Cq, Local, Qp, Remote, Status, Work};

/// The name of the module, by which `rdma resource` shows who made an object.
const NAME: &kernel::str::CStr = <crate::LocalModule as kernel::ModuleMetadata>::NAME;
