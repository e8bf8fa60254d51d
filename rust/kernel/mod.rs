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

pub(crate) mod dma_buf;
pub(crate) mod export_c;
pub(crate) mod memory;
pub(crate) mod rdma;
pub(crate) mod sched;
pub(crate) mod sync;
pub(crate) mod uaccess;
pub(crate) mod user;

pub(crate) mod alloc {
    //! Allocation flags that the kernel crate has no names for.
    //!
    //! C header: [`include/linux/gfp_types.h`](srctree/include/linux/gfp_types.h)

    use crate::bindings;
    use core::mem::transmute;
    use kernel::{alloc::Flags, prelude::*};

    // `Flags` is a structure whose only field is the bit mask of C. Check that against a constant
    // of the crate.
    const _: () = {
        // SAFETY: Both types are a number of the same size.
        let raw = unsafe { transmute::<Flags, bindings::gfp_t>(GFP_KERNEL_ACCOUNT) };
        assert!(raw == bindings::GFP_KERNEL_ACCOUNT);
    };

    /// Flags for large allocations on behalf of a process, which may fail. They are charged to the
    /// control group of the process. If the group or the machine has no memory, the allocation
    /// fails without a message and without the OOM killer.
    pub(crate) const GFP_MAYFAIL: Flags = {
        let raw = bindings::GFP_KERNEL_ACCOUNT
            | bindings::__GFP_NOWARN
            | 1 << bindings::___GFP_RETRY_MAYFAIL_BIT;
        // SAFETY: Both types are a number of the same size, and any number is a set of flags.
        unsafe { transmute::<bindings::gfp_t, Flags>(raw) }
    };
}

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
