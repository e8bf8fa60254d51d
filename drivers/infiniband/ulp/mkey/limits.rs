// SPDX-License-Identifier: GPL-2.0

//! Limits of the memory and the workers that processes make the module take.
//!
//! | file | what |
//! |---|---|
//! | `limits/account.rs` | bytes in use, limits, high-water marks |
//! | `limits/owner.rs` | processes that have memory |
//! | `limits/cost.rs` | what regions and bindings take of the kernel's memory |
//! | `limits/sizes.rs` | checks of that against the sizes of the structures |
//! | `limits/worker.rs` | what invalidations take of the driver's workers |

pub(crate) mod account;
pub(crate) mod cost;
pub(crate) mod owner;
mod sizes;
pub(crate) mod worker;
