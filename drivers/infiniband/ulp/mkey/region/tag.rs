// SPDX-License-Identifier: GPL-2.0

//! The tags of keys: the low 8 bits of an lkey and of an rkey (`rust/kernel/rdma/mr_key.rs`).
//!
//! After a change of the tag, requests with the old lkey or rkey fail. A peer's request with the
//! old rkey fails even if it is in progress: rxe compares the whole rkey when a request arrives,
//! and copies bytes later. A binding therefore has a tag, which is compared when bytes are copied
//! (`Binding::admits`). The lkey of a request of this node is not compared again, because rxe does
//! not pass it on.
//!
//! # The choice of a kernel user
//!
//! A kernel user chooses the tag of the next bind by `ib_update_fast_reg_key()`, which writes the
//! fields of `ib_mr`. A request that invalidates the key changes the tag, but not these fields,
//! which the kernel user may write at the same time. So the fields can differ from the tag although
//! the kernel user has not chosen one. A region therefore records the last key that this module
//! wrote to the fields, or that a request took from them (`Edit::last_written`). If the fields have
//! another value, the kernel user has chosen it since.
//!
//! # Locking
//!
//! A region's `edit` serialises the changes of its tag.

use crate::kernel_ext::rdma::mr_key;

/// Returns the lkey and rkey that a bind gives an MR, unless the call itself names a tag. `now` is
/// the rkey of the MR, `field` is the rkey in `ib_mr`, and `last_written` is the last rkey there
/// that a kernel user did not choose.
pub(super) fn of_bind(now: u32, field: u32, last_written: u32) -> u32 {
    if field != last_written && mr_key::is_same_index(now, field) {
        field
    } else {
        now
    }
}
