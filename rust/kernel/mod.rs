// SPDX-License-Identifier: GPL-2.0

//! Abstractions that the `kernel` crate lacks, each under the name that it would have there.
//!
//! | module | what |
//! |---|---|
//! | `alloc` | allocation flags |
//! | `dma_buf` | memory as a dma-buf, and dma-bufs of other exporters |
//! | `error` | error codes |
//! | `export_c` | functions that a module exports to C |
//! | `memory` | memory that peers and devices write to: RAM, PCI peer-to-peer memory, persistent memory |
//! | `process` | processes, as makers of objects |
//! | `rdma` | RDMA clients, devices, their operations and their objects |
//! | `sched` | rescheduling in long loops |
//! | `sync` | SRCU, a spinlock for any context, nested mutexes, counted users |
//! | `uaccess` | arrays of structures in user memory |
//! | `user` | users, as owners of memory |
//!
//! A module includes this file as `kernel_ext` and the bindings as `bindings`, both in its root.

/// The items, which a ULP leaves out: `for_ulp.rs` has another macro of this name.
macro_rules! not_for_ulps {
    ($($item:item)*) => {
        $($item)*
    };
}

pub(crate) mod alloc;
pub(crate) mod dma_buf;
pub(crate) mod error;
pub(crate) mod export_c;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod rdma;
pub(crate) mod sched;
pub(crate) mod sync;
pub(crate) mod uaccess;
pub(crate) mod user;
