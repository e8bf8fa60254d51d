// SPDX-License-Identifier: GPL-2.0

//! All entries into the module except the device operations.
//!
//! | file | what |
//! |---|---|
//! | `api/bindings.rs` | bindings of the C half |
//! | `api/kapi.rs`, `api/exports.c` | the kernel API |
//! | `api/uverbs.rs`, `api/uverbs_table.c` | the uverbs methods |
//! | `api/query.rs` | the uverbs method that queries a key |
//! | `api/bind_many.rs` | several keys bound in one call |
//! | `api/key_pool.rs` | pools of keys for kernel users |

mod bind_many;
pub(crate) mod bindings;
mod kapi;
mod key_pool;
mod query;
mod uverbs;
