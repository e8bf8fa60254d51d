// SPDX-License-Identifier: GPL-2.0

//! Synchronisation.
//!
//! | file | what |
//! |---|---|
//! | `barrier.rs` | barriers between processors |
//! | `counted.rs` | a shared value whose readers are counted |
//! | `global.rs` | mutexes in static memory |
//! | `lock.rs` | a spinlock for any context, and mutexes of which a thread may hold several |
//! | `racing.rs` | fields and bytes that others write at the same time |
//! | `srcu.rs` | tables and pointers that are read under SRCU |
//! | `users.rs` | a count of users; a thread can wait until it is zero |

pub(crate) mod barrier;
pub(crate) mod counted;
pub(crate) mod global;
pub(crate) mod lock;
pub(crate) mod racing;
pub(crate) mod srcu;
pub(crate) mod users;
