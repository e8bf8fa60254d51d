// SPDX-License-Identifier: GPL-2.0

//! All entries into the module except the device operations.
//!
//! | file | what |
//! |---|---|
//! | `api/kapi.rs`, `api/exports.c` | the kernel API |
//! | `api/uverbs.rs`, `api/uverbs_table.c` | the uverbs methods |
//! | `api/query.rs` | the uverbs method that queries a key |
//! | `api/bind_many.rs` | several keys bound in one call |
//! | `api/key_pool.rs` | pools of keys for kernel users |

mod bind_many;
mod kapi;
mod key_pool;
mod query;
mod uverbs;

pub(crate) mod bindings {
    //! Bindings of `api/uverbs_table.h`: symbols of the C half, and functions that it calls.

    #![allow(
        missing_docs,
        non_upper_case_globals,
        dead_code,
        improper_ctypes,
        unreachable_pub,
        clippy::all,
        reason = "generated code"
    )]

    use crate::bindings::*;
    use kernel::ffi;

    include!(concat!(env!("IB_MKEY_OBJ"), "/api_bindings_generated.rs"));
}
