// SPDX-License-Identifier: GPL-2.0

//! Limits of the memory and the workers that processes can occupy.
//!
//! | file | what |
//! |---|---|
//! | `limits/account.rs` | bytes in use, limits, high-water marks |
//! | `limits/owner.rs` | the owners of memory |
//! | `limits/cost.rs` | the kernel's memory that regions and bindings take |
//! | `limits/worker.rs` | waits of threads that others depend on |

pub(crate) mod account;
pub(crate) mod cost;
pub(crate) mod owner;
pub(crate) mod worker;
