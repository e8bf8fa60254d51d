// SPDX-License-Identifier: GPL-2.0

//! Descriptions, by calls, of a layout that the key had before, at another address.
//!
//! `access/again.rs` does the same for work requests. Only the making of the binding differs from that
//! of another description: everything after it is the same.

use super::{alike::Alike, leaf::find_memory, Described, Key};
use crate::{
    kernel_ext::rdma::Access,
    region::{
        binding::{Binding, KLayout},
        rights::supported,
    },
};

impl Key<'_> {
    /// Describes the layout of the key's old binding at another place, if `alike` says that a
    /// description is like that. Returns [`None`], with nothing changed, otherwise, and if anything
    /// else than success is possible.
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

    /// Moves an old binding to where `alike` says, and pins its leaf. Returns [`None`] if that fails. The
    /// binding is an old one then, with a layout of the same shape.
    fn move_old(&self, old: &mut Binding, access: Access, alike: &Alike) -> Option<()> {
        let core = self.core;
        let mut locked = core.pins.lock();
        let Ok(Some(leaf)) = find_memory(&core.hw, self.ibdev, alike.lkey, self.pd) else {
            return None;
        };
        old.renew(alike.addr, leaf, access, self.pd).ok()?;
        match locked.pin(alike.lkey >> 8) {
            Some(pin) => old.hold(pin),
            None => {
                old.give_up();
                return None;
            }
        }
        Some(())
    }
}
