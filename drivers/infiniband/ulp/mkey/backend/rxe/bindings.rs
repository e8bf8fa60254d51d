// SPDX-License-Identifier: GPL-2.0

//! Bindings of rxe's private structures and of the C half of this backend,
//! `backend/rxe/rxe_hook.h`.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    improper_ctypes,
    unreachable_pub,
    clippy::all,
    clippy::as_ptr_cast_mut,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::undocumented_unsafe_blocks,
    reason = "generated code"
)]

use crate::bindings::*;
use kernel::ffi;

include!(concat!(env!("IB_MKEY_OBJ"), "/rxe_bindings_generated.rs"));
