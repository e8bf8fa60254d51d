// SPDX-License-Identifier: GPL-2.0

//! RDMA abstractions.
//!
//! | file | what |
//! |---|---|
//! | `alloc.rs` | allocation flags |
//! | `client.rs` | a client of `ib_core`, its callbacks and its data for each device |
//! | `device.rs` | an RDMA device; regions that its driver made |
//! | `dm.rs` | device memory objects |
//! | `entry.rs` | what `ib_core` calls in place of a driver's operations |
//! | `fast_reg.rs` | fast registration by kernel users |
//! | `lock.rs` | a spinlock for any context, a mutex to have several of |
//! | `memory/` | memory that remote peers and devices write to |
//! | `mr.rs` | protection domains and memory regions |
//! | `ops.rs` | operations of a device, filled in or wrapped by a client |
//! | `process.rs` | processes, as owners of things |
//! | `table.rs` | tables and pointers read under SRCU |
//! | `uapi.rs` | arrays of uAPI structures in user memory |
//! | `users.rs` | a number of users, to be waited for |
//! | `uverbs.rs` | whether `ib_uverbs` came before the client |
//! | `ulp/` | for users of RDMA in the kernel; not of this module, they include it |
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

pub(crate) mod alloc;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod dm;
mod entry;
pub(crate) mod fast_reg;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod ops;
pub(crate) mod process;
pub(crate) mod table;
pub(crate) mod uapi;
pub(crate) mod users;
pub(crate) mod uverbs;

pub(crate) use alloc::GFP_MAYFAIL;
pub(crate) use client::Registration;
pub(crate) use device::Device;
pub(crate) use dm::Dm;
pub(crate) use memory::SharedMemory;
pub(crate) use mr::{Access, Mr, Mw, OwnedMr, OwnedPd, Pd};

/// Checks that functions called from C have the types that their headers give them.
macro_rules! same_types {
    ($($function:ident),+ $(,)?) => {
        $(const _: () = {
            let _ = if true { $crate::bindings::$function } else { $function };
        };)+
    };
}
pub(crate) use same_types;

/// `EOPNOTSUPP`, which the `kernel` crate has no constant for.
pub(crate) fn eopnotsupp() -> kernel::error::Error {
    kernel::error::Error::from_errno(-(crate::bindings::EOPNOTSUPP as i32))
}

/// `ELOOP`, which the `kernel` crate has no constant for.
pub(crate) fn eloop() -> kernel::error::Error {
    kernel::error::Error::from_errno(-(crate::bindings::ELOOP as i32))
}

/// Lets others run, and tells whether the process that runs this was killed.
///
/// # Errors
///
/// `EINTR` if it was.
pub(crate) fn check_killed() -> kernel::error::Result {
    cond_resched();
    // SAFETY: No preconditions.
    if unsafe { crate::bindings::current_is_killed() } {
        return Err(kernel::error::code::EINTR);
    }
    Ok(())
}

/// Lets others run, where the scheduler would not see to that.
pub(crate) fn cond_resched() {
    // SAFETY: Called where sleeping is allowed.
    unsafe { crate::bindings::rdma_cond_resched() };
}
