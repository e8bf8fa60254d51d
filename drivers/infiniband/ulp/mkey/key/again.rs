// SPDX-License-Identifier: GPL-2.0

//! Calls that describe the layout of an earlier binding, at another address.
//!
//! `access/again.rs` does the same for work requests. Instead of making a new binding, a call
//! changes the leaf and the address of the unused binding of the key. The key is then bound as
//! with any other binding.

use super::{alike::Alike, leaf::find_memory, Described, Key, Parts};
use crate::{
    kernel_ext::rdma::{mr_key, Access},
    region::{
        binding::{Binding, KLayout},
        rights::supported,
    },
};

impl Key<'_> {
    /// Describes the layout of the key's unused binding at another address. `alike` compares
    /// that layout with the description. Returns [`None`], with nothing changed, if they differ
    /// or if the description might be refused.
    #[inline]
    pub(crate) fn describe_again(
        &self,
        access: Access,
        alike: impl FnOnce(&KLayout) -> Option<Alike>,
    ) -> Option<Described<'_>> {
        if !supported(access) {
            return None;
        }
        let mut old = self.region.unused.take()?;
        if alike(&old.layout)
            .and_then(|alike| self.move_old(&mut old, access, &alike))
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
            is_again: true,
        })
    }

    /// Gives the unused binding `old` the leaf and the address of `alike`, and pins the leaf.
    /// Returns [`None`] if that fails. `old` is then still unused, and its layout has the same
    /// shape.
    fn move_old(&self, old: &mut Binding, access: Access, alike: &Alike) -> Option<()> {
        let Parts { pins, hw, .. } = self.parts().ok()?;
        let mut locked = pins.lock();
        let Ok(Some(leaf)) = find_memory(hw, &locked.held(), alike.lkey, self.pd) else {
            return None;
        };
        old.renew(alike.addr, leaf, access, self.pd).ok()?;
        match locked.pin(mr_key::index(alike.lkey)) {
            Some(pin) => old.hold(pin),
            None => {
                old.give_up();
                return None;
            }
        }
        Some(())
    }
}
