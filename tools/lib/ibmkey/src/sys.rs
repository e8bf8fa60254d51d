// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Structures and numbers of the C headers, and one structure that is in no installed header.

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

// Programs pass arrays of these to libibmkey.so.2, so later versions cannot add fields.
const _: () = assert!(
    size_of::<ib_uverbs_mkey_sge>() == 24
        && size_of::<ib_uverbs_mkey_block>() == 88
        && size_of::<ibmkey_bind>() == 56
);

/// An MR as libibverbs and its providers use it.
///
/// `ibv_dereg_mr()` and the provider take a `struct ibv_mr` for the first member of this structure,
/// and the provider frees the structure. The structure is private to rdma-core: version 25 added
/// `mr_type`, version 32 added `access`, and later versions added nothing. rdma-core's structure
/// has no member `spare`. Here `spare` is zero, in case a provider or a later version reads members
/// after `access`.
#[repr(C)]
pub struct verbs_mr {
    pub ibv_mr: ibv_mr,
    /// Always 0, `IBV_MR_TYPE_MR`: the type of MRs that the kernel deregisters.
    pub mr_type: c_uint,
    pub access: c_int,
    pub spare: [u64; 16],
    /// The MRs that a key owns, or NULL. rdma-core's structure has no such member either.
    pub owned: *mut crate::iov::Leaves,
}

const _: () = {
    assert!(core::mem::offset_of!(verbs_mr, ibv_mr) == 0);
    assert!(core::mem::offset_of!(verbs_mr, mr_type) == core::mem::size_of::<ibv_mr>());
};
