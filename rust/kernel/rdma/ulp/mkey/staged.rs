// SPDX-License-Identifier: GPL-2.0

//! Keys with a staged layout, which a work request binds.
//!
//! C header: [`include/rdma/ib_mkey.h`](srctree/include/rdma/ib_mkey.h)

use super::{
    indexed, interleaved, list, BindRefused, Bound, LeafBlock, LeafMemory, LeafRange, LeafTable,
    Mkey, PdMr, Purpose, Unbound,
};
use crate::{bindings, kernel_ext::rdma::ulp::Access};
use kernel::prelude::*;

/// The state of a key for which a layout is staged, and to which nothing is bound. It holds the
/// leaves. The rkey of the key is the one under which the layout is staged.
pub(crate) struct Staged {
    leaves: KVec<LeafMemory>,
}

impl Mkey<Unbound> {
    fn staged(
        self,
        stage: impl FnOnce(&PdMr) -> Result<KVec<LeafMemory>>,
    ) -> Result<Mkey<Staged>, BindRefused> {
        // SAFETY: The key is valid. Nothing is bound to it, and no other thread uses it.
        unsafe {
            let raw = self.region.as_raw();
            let next = bindings::ib_inc_rkey((*raw).rkey);
            bindings::ib_update_fast_reg_key(raw, next as u8);
        }
        self.into_state(stage, |leaves| Staged { leaves })
    }

    /// Stages `ranges` under the next rkey of the key: their bytes follow one another.
    ///
    /// # Errors
    ///
    /// The errors of `ib_map_mkey_list()`; `EINVAL` for memory of another domain or device.
    pub(crate) fn stage_list(self, ranges: &[LeafRange]) -> Result<Mkey<Staged>, BindRefused> {
        self.staged(|region| list(region, Purpose::Stage, ranges))
    }

    /// Stages blocks that repeat `repeat[d]` times in dimension `d`, as [`Self::stage_list`] does.
    pub(crate) fn stage_interleaved(
        self,
        repeat: &[u64],
        blocks: &[LeafBlock],
    ) -> Result<Mkey<Staged>, BindRefused> {
        self.staged(|region| interleaved(region, Purpose::Stage, repeat, blocks))
    }

    /// Stages the blocks of `table` at `indices`, as [`Self::stage_list`] does.
    pub(crate) fn stage_indexed(
        self,
        table: &LeafTable,
        indices: &[u32],
    ) -> Result<Mkey<Staged>, BindRefused> {
        self.staged(|region| indexed(region, Purpose::Stage, table, indices))
    }
}

impl Mkey<Staged> {
    /// Returns the request that binds the key with the access flags `access`.
    pub(in super::super) fn request(&self, access: Access) -> bindings::ib_reg_wr {
        // SAFETY: All-zero is valid: null pointers and integers.
        let mut request: bindings::ib_reg_wr =
            unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
        request.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        request.mr = self.region.as_raw();
        request.key = self.region.rkey();
        request.access = access.into_raw() as kernel::ffi::c_int;
        request
    }

    /// Returns the lkey of the key after it is bound.
    pub(in super::super) fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// Returns the key in its state after the request has succeeded.
    pub(in super::super) fn into_bound(self) -> Mkey<Bound> {
        Mkey {
            region: self.region,
            state: Bound::new(self.state.leaves),
        }
    }

    /// Drops the staged layout, and unbinds the key if the request has bound it.
    ///
    /// # Errors
    ///
    /// The errors of `ib_unbind_mkey()`. The key is dropped then.
    pub(crate) fn unstage(self) -> Result<Mkey<Unbound>> {
        self.into_bound().unbind()
    }
}

impl Mkey<Bound> {
    /// Returns the key in its state after LOCAL_INV has succeeded.
    pub(in super::super) fn into_unbound(self) -> Mkey<Unbound> {
        Mkey {
            region: self.region,
            state: Unbound,
        }
    }
}
