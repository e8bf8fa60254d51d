// SPDX-License-Identifier: GPL-2.0

//! Bindings over the memory of the model, and copies of their bytes.

use super::{Binding, KLayout, Leaf, LeafPin, LeafPlace, PinnedFor, RcuUnique};
use crate::{
    backend::{pins::NoDereg, BaseMr, Memory, Payload},
    kernel_ext::rdma::{mr::Right, Access},
    layout::{Entry, List},
    limits::owner::OwnerCharge,
    region::{state::Pins, Region},
};
use kernel::{prelude::*, sync::Arc};

impl Binding {
    /// Describes a binding of `region` over all of `memory`. Fails with `ENOENT` for an MR that was
    /// deregistered.
    pub(crate) fn over(
        region: &Arc<Region>,
        pins: &Arc<Pins>,
        memory: &[&Arc<Memory>],
    ) -> Result<RcuUnique<Self>> {
        let number = region.state.next_number();
        let mut binding = match region.take_room() {
            Some(kept) => kept,
            None => Binding::empty(OwnerCharge::new())?,
        };
        let mut entries = binding.entries(memory.len())?;
        for (at, memory) in memory.iter().enumerate() {
            let of = PinnedFor {
                holder: region.state.clone(),
                number,
            };
            let find = |_: &NoDereg<'_>| {
                if memory.is_suspended() {
                    Err(ENOENT)
                } else {
                    Ok(())
                }
            };
            let ((), pin) = Pins::pin(pins, memory.index(), Some(of), find)?;
            entries.push(Entry::new(at as u32, 0, 1), GFP_KERNEL)?;
            binding.leaves.push(
                Leaf {
                    lkey: 0,
                    start: 0,
                    len: 1,
                    access: Access::from(Right::LocalWrite),
                    place: LeafPlace::Memory {
                        base: BaseMr((*memory).clone()),
                        delta: 0,
                        mutable: false,
                    },
                    _pin: Some(pin),
                },
                GFP_KERNEL,
            )?;
        }
        if let Some(charge) = &mut binding.charge {
            charge.write(number);
        }
        binding.layout = KLayout::List(List::new(entries)?);
        binding.access = Right::LocalWrite | Right::RemoteRead;
        binding.pd = 8;
        binding.number = number;
        Ok(binding)
    }

    /// Reads all leaves, which must be some that the requester may read.
    pub(crate) fn copy(&self, _: u64, payload: &Payload<'_>) -> Result {
        let is_whole = || {
            self.charge
                .as_ref()
                .is_none_or(|charge| charge.read() == self.number)
        };
        assert!(is_whole(), "a binding of which another one was made");
        for leaf in self.leaves.iter() {
            let LeafPlace::Memory { base, .. } = &leaf.place else {
                return Err(EFAULT);
            };
            assert!(payload.expected.contains(&base.0.index()), "another layout");
            base.0.read();
            payload.seen.set(base.0.index());
        }
        assert!(is_whole(), "a binding of which another one was made");
        Ok(())
    }

    pub(crate) fn check_range(&self, _: u64, _: u64) -> Result {
        Ok(())
    }

    pub(crate) fn flush(&self, _: u64, _: u64) -> Result {
        Ok(())
    }
}
