// SPDX-License-Identifier: GPL-2.0

//! The contents of a work request that binds a key.

use crate::{
    bindings,
    kernel_ext::rdma::{Access, Pd},
};
use kernel::{ffi::c_int, prelude::*};

/// A request to bind a key.
pub(crate) struct KeyRequest<'a> {
    /// The rkey by which the request names the key.
    pub(crate) rkey: u32,
    /// The lkey and rkey of the key from then on.
    pub(crate) new_key: u32,
    /// The MR that contains the description.
    pub(crate) lkey: u32,
    /// The address of the description, which is an address of that MR.
    pub(crate) addr: u64,
    /// The length of the description in bytes; 0 if the request contains it.
    pub(crate) length: u64,
    /// The access flags.
    pub(crate) access: u32,
    /// A copy of the inline data of the request.
    pub(crate) inline: &'a [u8],
}

/// Returns the access flags of a request on a QP in `pd`.
pub(super) fn checked(pd: &Pd, access: u32) -> Result<Access> {
    if access & !bindings::ib_access_flags_IB_ACCESS_SUPPORTED != 0 {
        return Err(EINVAL);
    }
    Access::checked(pd.device(), access as c_int)
}
