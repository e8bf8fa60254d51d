// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Layouts and numbers of the C headers, and one layout that is in no installed header.

#![allow(missing_docs)]

use core::ffi::{
    c_int,
    c_uint, //
};

mod bindings {
    #![allow(
        dead_code,
        non_camel_case_types,
        non_snake_case,
        non_upper_case_globals,
        unreachable_pub,
        unsafe_op_in_unsafe_fn,
        clippy::all,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::undocumented_unsafe_blocks
    )]

    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;

/// A memory region as libibverbs and its providers see it.
///
/// `ibv_dereg_mr()` takes a `struct ibv_mr` for the first member of this structure, and so does the
/// provider, which frees it. The structure is private to rdma-core: version 25 added `mr_type`,
/// version 32 added `access`, and later versions added nothing. `spare` is not a member of it. It
/// is zero, in case a provider or a later version reads members after these.
#[repr(C)]
pub struct verbs_mr {
    pub ibv_mr: ibv_mr,
    /// 0 is `IBV_MR_TYPE_MR`, the type that is deregistered by the kernel.
    pub mr_type: c_uint,
    pub access: c_int,
    pub spare: [u64; 16],
    /// The MRs that a key owns, or NULL. It is not a member of rdma-core's structure either.
    pub owned: *mut crate::iov::Leaves,
}

const _: () = {
    assert!(core::mem::offset_of!(verbs_mr, ibv_mr) == 0);
    assert!(core::mem::offset_of!(verbs_mr, mr_type) == core::mem::size_of::<ibv_mr>());
};
