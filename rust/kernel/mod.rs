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
//! | `rdma` | RDMA clients, devices, their operations and their objects |
//! | `sched` | processes, and rescheduling in long loops |
//! | `sync` | values that are found under RCU, a spinlock for any context, nested mutexes |
//! | `uaccess` | arrays of structures in user memory |
//! | `user` | users, as owners of memory |
//!
//! A module includes this file as `kernel_ext` and the bindings as `bindings`, both in its root.

pub(crate) mod alloc;
pub(crate) mod dma_buf;
pub(crate) mod export_c;
pub(crate) mod memory;
pub(crate) mod rdma;
pub(crate) mod sched;
pub(crate) mod sync;
pub(crate) mod uaccess;
pub(crate) mod user;

pub(crate) mod error {
    //! Error codes that the `kernel` crate has no constants for.

    use crate::bindings;
    use kernel::error::Error;

    /// `EOPNOTSUPP`.
    pub(crate) fn eopnotsupp() -> Error {
        Error::from_errno(-(bindings::EOPNOTSUPP as i32))
    }

    /// `ELOOP`.
    pub(crate) fn eloop() -> Error {
        Error::from_errno(-(bindings::ELOOP as i32))
    }
}
