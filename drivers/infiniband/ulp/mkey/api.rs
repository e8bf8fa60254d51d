// SPDX-License-Identifier: GPL-2.0

//! Every way into the module but the device operations.
//!
//! | file | what |
//! |---|---|
//! | `api/bindings.rs` | bindings of what is in C |
//! | `api/kapi.rs`, `api/exports.c` | the kernel API |
//! | `api/uverbs.rs`, `api/uverbs_table.c` | the uverbs methods |
//! | `api/bind_many.rs` | several keys bound in one call |
//! | `api/key_pool.rs` | keys that are used again, for kernel users |

mod bind_many;
pub(crate) mod bindings;
mod kapi;
mod key_pool;
mod uverbs;
