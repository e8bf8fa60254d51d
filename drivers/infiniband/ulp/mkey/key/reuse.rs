// SPDX-License-Identifier: GPL-2.0

//! Calls that describe the layout of an earlier binding, at another address.
//!
//! `access/reuse.rs` does the same for work requests. Instead of making a new binding, a call
//! changes the leaf and the address of the unused binding of the key. The key is then bound as
//! with any other binding.

use super::{leaf::find_memory, same_layout::SameLayout, Described, Key, Parts};
use crate::{
    kernel_ext::rdma::{mr_key, Access},
    region::{
        binding::{Binding, KLayout},
        rights::supported,
    },
};

impl Key<'_> {
    /// Describes the layout of the key's unused binding at another address. `same` compares
    /// that layout with the description. Returns [`None`], with nothing changed, if they differ
    /// or if the description might be refused.
    #[inline]
    pub(crate) fn describe_reused(
        &self,
        access: Access,
        same: impl FnOnce(&KLayout) -> Option<SameLayout>,
    ) -> Option<Described<'_>> {
        if !supported(access) {
            return None;
        }
        let mut old = self.region.unused.take()?;
        if same(&old.layout)
            .and_then(|same| self.retarget_unused(&mut old, access, &same))
            .is_none()
        {
            drop(self.region.unused.put(old));
            return None;
        }
        Some(Described {
            key: self,
            binding: old.into(),
            rkey: None,
            any_tag: false,
            is_reused: true,
        })
    }

    /// Gives the unused binding `old` the leaf and the address of `same`, and pins the leaf.
    /// Returns [`None`] if that fails. `old` is then still unused, and its layout has the same
    /// shape.
    fn retarget_unused(&self, old: &mut Binding, access: Access, same: &SameLayout) -> Option<()> {
        let Parts { pins, hw, .. } = self.parts().ok()?;
        let mut locked = pins.lock();
        // SAFETY: The binding gets a pin of the MR below, or drops the leaf, while `locked` exists.
        let found = unsafe { find_memory(hw, &locked.held(), same.lkey, self.pd) };
        let Ok(Some(leaf)) = found else {
            return None;
        };
        old.retarget(same.addr, leaf, access, self.pd).ok()?;
        match locked.pin(mr_key::index(same.lkey)) {
            Some(pin) => old.hold(pin),
            None => {
                old.give_up();
                return None;
            }
        }
        Some(())
    }
}
