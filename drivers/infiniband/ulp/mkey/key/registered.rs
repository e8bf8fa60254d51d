// SPDX-License-Identifier: GPL-2.0

//! MRs for fast registration as leaves of keys.
//!
//! The pin of such a leaf keeps the MR registered: LOCAL_INV and deregistration of the MR fail. The
//! leaf is a copy of the list of elements, in a binding that is never replaced. A mapping of other
//! elements to the MR changes nothing for the key.

use crate::{
    errors::{Refused, Result},
    kernel_ext::{alloc::GFP_MAYFAIL, rdma::Access, sync::rcu_arc::RcuArc},
    key::Key,
    layout::List,
    limits::cost,
    region::{
        binding::{Binding, KLayout, Leaf, LeafPlace},
        flat::MAX_PIECES,
    },
};
use kernel::prelude::*;

impl Key<'_> {
    /// If `leaf` is a fast registration, gives it a separate binding. Does nothing for other
    /// leaves.
    pub(super) fn count_registered(&self, leaf: &mut Leaf) -> Result {
        match &leaf.place {
            LeafPlace::Key(active) if active.registered().is_some() => {
                leaf.place = LeafPlace::Key(self.copy_registered(active)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn copy_registered(&self, active: &Binding) -> Result<RcuArc<Binding>> {
        let KLayout::List(list) = &active.layout else {
            return Err(EINVAL.into());
        };
        let count = list.entries().len();
        let bytes = cost::entries(count)?.checked_add(cost::BINDING);
        let charge = self.region.charge.beside(bytes.ok_or(Refused::MEMORY)?)?;
        let mut entries = KVVec::with_capacity(count, GFP_MAYFAIL)?;
        entries.extend_from_slice(list.entries(), GFP_MAYFAIL)?;
        let mut leaves = KVVec::with_capacity(active.leaves.len(), GFP_MAYFAIL)?;
        for leaf in active.leaves.iter() {
            let LeafPlace::Memory { base, delta, .. } = &leaf.place else {
                return Err(EINVAL.into());
            };
            let place = LeafPlace::Memory {
                base: base.clone(),
                delta: *delta,
                mutable: false,
            };
            leaves.push(
                Leaf {
                    lkey: leaf.lkey,
                    start: leaf.start,
                    len: leaf.len,
                    access: leaf.access,
                    place,
                    _pin: None,
                },
                GFP_MAYFAIL,
            )?;
        }
        let layout = KLayout::List(List::new(entries)?);
        // The key checks the access flags of the leaf, which are those of the registration.
        let mut binding = Binding::new(layout, leaves, Some(charge))?;
        binding.complete(Access::empty(), self.pd, MAX_PIECES)?;
        Ok(binding.share())
    }
}
