// SPDX-License-Identifier: GPL-2.0

//! Synchronisation.
//!
//! | file | what |
//! |---|---|
//! | `counted.rs` | a shared value whose readers are counted |
//! | `global.rs` | mutexes in static memory |
//! | `lock.rs` | a spinlock for any context, and mutexes of which a thread may hold several |
//! | `racing.rs` | copies of bytes that others write at the same time |
//! | `spare.rs` | a place for an unused value |
//! | `srcu.rs` | tables and pointers that are read under SRCU |
//! | `users.rs` | a count of users; a thread can wait until it is zero |

pub(crate) mod counted;
pub(crate) mod global;
pub(crate) mod lock;
pub(crate) mod racing;
pub(crate) mod spare;
pub(crate) mod srcu;
pub(crate) mod users;

use kernel::sync::atomic::{Atomic, AtomicType};

/// Loads a value in relaxed order. The data path uses this, because a load by
/// `kernel::sync::atomic` calls a C function.
#[inline(always)]
pub(crate) fn load_relaxed<T: AtomicType>(atomic: &Atomic<T>) -> T {
    // SAFETY: The pointer is valid and aligned. A load of this size is not torn.
    unsafe { atomic.as_ptr().read_volatile() }
}
