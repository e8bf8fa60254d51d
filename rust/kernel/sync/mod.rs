// SPDX-License-Identifier: GPL-2.0

//! Synchronisation.
//!
//! | file | what |
//! |---|---|
//! | `global.rs` | mutexes in static memory |
//! | `lock.rs` | a spinlock for any context, and mutexes of which a thread may hold several |
//! | `pending.rs` | a count of what has not ended; a thread can wait until it is zero |
//! | `racing.rs` | fields and bytes that others write at the same time |
//! | `rcu_arc.rs` | shared values that readers find under RCU, and keep by a count |

pub(crate) mod global;
pub(crate) mod lock;
pub(crate) mod pending;
pub(crate) mod racing;
pub(crate) mod rcu_arc;

/// A full barrier between processors. That of `kernel::sync::barrier` has another name in Linux 7.2
/// than in 7.3.
pub(crate) fn smp_mb() {
    // SAFETY: A barrier has no preconditions.
    unsafe { crate::bindings::rdma_smp_mb() };
}
