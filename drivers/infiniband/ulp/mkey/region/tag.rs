// SPDX-License-Identifier: GPL-2.0

//! The tags of keys: the low 8 bits of an lkey and of an rkey. The other bits are the index of the
//! MR.
//!
//! A change of the tag makes the lkey and the rkey from before useless, and for peers also those of
//! requests in progress. rxe compares the whole rkey when a request arrives, and copies bytes later.
//! A binding therefore has the tag for which it was made, and compares it when bytes are copied
//! (`Binding::admits`). A request of this node is not compared again: rxe does not tell its lkey.
//!
//! # Locking
//!
//! A region's `edit` serialises the changes of its tag.

use crate::{
    backend::{Backend, Hw},
    kernel_ext::rdma::Mr,
};

/// The bits of an lkey and an rkey that can change.
const TAG: u32 = 0xff;

/// Returns `true` if two lkeys or rkeys name the same MR. Their tags may differ.
pub(crate) fn same_mr(one: u32, two: u32) -> bool {
    (one ^ two) & !TAG == 0
}

/// Returns the tag of an lkey or rkey.
#[inline]
pub(crate) fn of(key: u32) -> i8 {
    (key & TAG) as i8
}

/// Returns `key` with the next tag, as `ib_inc_rkey()` does.
pub(crate) fn next(key: u32) -> u32 {
    (key & !TAG) | (key.wrapping_add(1) & TAG)
}

/// Returns the lkey and rkey that a bind gives `mr`, unless its caller chooses a tag.
///
/// A kernel user chooses a tag by `ib_update_fast_reg_key()` before the bind. A request that
/// invalidated the key has changed the tag, but not the fields of `ib_mr`, which kernel users write
/// at any time. That change stays.
pub(super) fn of_bind(hw: &Hw, mr: &Mr) -> u32 {
    let (now, chosen) = (hw.key(mr), mr.rkey());
    if same_mr(now, chosen) && next(chosen) != now {
        chosen
    } else {
        now
    }
}
