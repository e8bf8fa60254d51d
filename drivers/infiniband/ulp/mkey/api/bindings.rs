// SPDX-License-Identifier: GPL-2.0

//! Bindings of `api/uverbs_table.h`: symbols of the C half of `api/`, and functions that it calls.

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
