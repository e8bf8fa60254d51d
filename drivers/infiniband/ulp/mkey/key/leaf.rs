// SPDX-License-Identifier: GPL-2.0

//! Leaves: the MR or key that an lkey names.

use crate::{
    backend::{rxe, BaseMr, LookedUp},
    kernel_ext::{
        error::{eloop, eopnotsupp},
        rdma::{mr_key, Access, Pd},
    },
    mkey_core::Core,
    region::{
        binding::{Leaf, LeafPlace},
        state::{PinnedFor, Pins},
        Kind, Region,
    },
};
use kernel::prelude::*;

/// Makes a leaf of `(start, len)`, the addresses of one of the driver's MRs. `len` is not zero.
fn memory(lkey: u32, base: BaseMr, (start, len): (u64, u64), access: Access) -> Leaf {
    Leaf {
        lkey,
        start,
        len,
        access,
        place: LeafPlace::Memory {
            base,
            delta: 0,
            mutable: true,
        },
        _pin: None,
    }
}

impl Core {
    /// Looks up the MR or key that `lkey` names, and pins it. A pinned MR cannot be deregistered. A
    /// pinned key cannot be bound to another layout. A key may have up to `depth` levels. The pin is
    /// for the binding `of`. [`Refused::of_leaf`](crate::errors::Refused::of_leaf) names the errors.
    pub(crate) fn pin_leaf(
        &self,
        lkey: u32,
        pd: &Pd,
        depth: usize,
        of: Option<PinnedFor>,
    ) -> Result<Leaf> {
        let index = mr_key::index(lkey);
        let (leaf, pin) = Pins::pin(&self.pins, index, of, |held| {
            // SAFETY: The leaf has the pin that this call makes, and drops it last.
            Ok(match unsafe { rxe::find(held, lkey, pd)? } {
                LookedUp::Memory { len: 0, .. } => return Err(ERANGE),
                LookedUp::Memory {
                    base,
                    start,
                    len,
                    access,
                } => memory(lkey, base, (start, len), access),
                LookedUp::Own(mr) => {
                    let region = mr.object::<Region>().ok_or(ENOENT)?;
                    own_leaf(&region, lkey, depth)?
                }
                LookedUp::Unfit => return Err(eopnotsupp()),
            })
        })?;
        Ok(Leaf {
            _pin: Some(pin),
            ..leaf
        })
    }

    /// Copies bytes of one of the driver's MRs, from address `addr` on, without a pin. Returns
    /// `false`, with nothing copied, for an MR that must be pinned first. Does not sleep, so `to`
    /// must be short.
    pub(crate) fn read_now(&self, lkey: u32, pd: &Pd, addr: u64, to: &mut [u8]) -> Result<bool> {
        self.pins
            .exclude(|held| rxe::read_now(held, lkey, pd, addr, to))
    }
}

/// Makes a leaf of one of this module's regions. The caller holds the lock of the pins, so no
/// reference to a binding is the last one.
fn own_leaf(region: &Region, lkey: u32, depth: usize) -> Result<Leaf> {
    let (start, len, access, place) = match &region.kind {
        Kind::Key { .. } => {
            let binding = region.binding.get().ok_or(ERANGE)?;
            if binding.depth() > depth {
                return Err(eloop());
            }
            let (len, access) = (binding.layout.length(), binding.access);
            (binding.start, len, access, LeafPlace::Key(binding))
        }
        // The region has one leaf. The new leaf refers directly to the memory of that leaf.
        Kind::Dm => {
            let binding = region.binding.get().ok_or(ERANGE)?;
            let run = binding.layout.resolve(0, binding.layout.length())?;
            let inner = binding.leaves.first().ok_or(ENOENT)?;
            let LeafPlace::Memory { base, delta, .. } = &inner.place else {
                return Err(eopnotsupp());
            };
            let place = LeafPlace::Memory {
                base: base.clone(),
                delta: run.addr.wrapping_add(*delta),
                mutable: false,
            };
            (0, run.len, binding.access, place)
        }
        // The registration stays while the MR is pinned. `Found::leaf` makes a binding of it.
        Kind::FastReg(_) => {
            let active = region.active().ok_or(ERANGE)?;
            let len = active.binding.layout.length();
            (
                active.binding.start,
                len,
                active.access,
                LeafPlace::Key(active.binding),
            )
        }
        // `find` returns an MR over a dma-buf as memory, because it is one of the driver's MRs.
        Kind::DmaBuf(_) => return Err(eopnotsupp()),
    };
    Ok(Leaf {
        lkey,
        start,
        len,
        access,
        place,
        _pin: None,
    })
}
