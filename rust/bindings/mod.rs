// SPDX-License-Identifier: GPL-2.0

//! The bindings of the `kernel` crate, and bindings of the RDMA headers, which that crate lacks.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unreachable_pub,
    clippy::all,
    clippy::as_ptr_cast_mut,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn,
    improper_ctypes,
    reason = "generated code"
)]

pub(crate) use kernel::bindings::*;

mod raw {
    use super::*;
    use kernel::ffi;
    use pin_init::{MaybeZeroable, Zeroable};
    use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

    // Bindgen does not derive these.
    // SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
    unsafe impl<Storage: Zeroable> Zeroable for __BindgenBitfieldUnit<Storage> {}
    // SAFETY: The type has no bytes.
    unsafe impl<T> Zeroable for __BindgenUnionField<T> {}

    include!(concat!(env!("IB_MKEY_OBJ"), "/bindings_generated.rs"));
}
pub(crate) use raw::*;
// The kernel crate has this as an opaque type only.
pub(crate) use raw::ib_device;

mod helpers {
    use super::*;
    use kernel::ffi;

    include!(concat!(
        env!("IB_MKEY_OBJ"),
        "/bindings_helpers_generated.rs"
    ));
}
pub(crate) use helpers::*;
