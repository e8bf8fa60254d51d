// SPDX-License-Identifier: GPL-2.0

//! Layouts that kernel users stage for a key.
//!
//! A bind by REG_MR has two steps, like a fast registration (`region/fast_reg.rs`).
//! `ib_map_mkey_list()` and its siblings, in any context, *stage* a layout: they copy its
//! description, in the format of the requests of processes (`key/request.rs`), under the rkey that
//! the MR has then. REG_MR with that rkey looks the leaves up, in the order of the queue, and makes
//! the layout *active*: the binding of the key.
//!
//! # Locking
//!
//! `StagedLayouts::slots` protects the places of the descriptions. Any context may take this
//! spinlock. No description is read, written or freed under it. The lock is innermost.

use crate::{
    bindings::IB_MKEY_MAX_STAGED,
    errors::{self, Refused},
    kernel_ext::sync::lock::{new_irq_lock, IrqLock},
    limits::{
        cost::{self, PART},
        owner::OwnerCharge,
    },
};
use core::array;
use kernel::prelude::*;

/// The most layouts that are staged for a key at a time.
const MAX_STAGED: usize = IB_MKEY_MAX_STAGED as usize;

/// A description, and the memory that it takes.
pub(crate) struct Staged {
    /// The bytes, in parts. All used parts but the last one are full. Unused parts are kept for the
    /// next description.
    parts: KVec<KVec<u8>>,
    len: u32,
    charge: OwnerCharge,
    /// The number of the last request that took the description out.
    turn: u32,
}

impl Staged {
    /// Appends `bytes`. Does not sleep.
    /// Fails with `ENOMEM` without memory and beyond a limit.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result {
        while !bytes.is_empty() {
            let at = self.len() / PART;
            if at == self.parts.len() {
                self.parts.reserve(1, GFP_NOWAIT)?;
                let part = KVec::with_capacity(PART, GFP_NOWAIT)?;
                self.charge.grow(cost::STAGED_PART)?;
                self.parts.push_within_capacity(part)?;
            }
            let part = self.parts.get_mut(at).ok_or(EFAULT)?;
            let fits = bytes.len().min(PART.saturating_sub(part.len()));
            let (now, rest) = bytes.split_at_checked(fits).ok_or(EFAULT)?;
            // The part has the capacity.
            part.extend_from_slice(now, GFP_NOWAIT)?;
            self.len = self.len.checked_add(u32::try_from(fits)?).ok_or(ENOMEM)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Copies the bytes from `from` on.
    /// Fails with `EINVAL` beyond the end.
    pub(crate) fn read(&self, mut from: usize, mut to: &mut [u8]) -> Result {
        while !to.is_empty() {
            let part = self.parts.get(from / PART).ok_or(EINVAL)?;
            let left = part.get(from % PART..).ok_or(EINVAL)?;
            let (now, rest) = to.split_at_mut(to.len().min(left.len()));
            if now.is_empty() {
                return Err(EINVAL);
            }
            now.copy_from_slice(left.get(..now.len()).ok_or(EINVAL)?);
            from = from.saturating_add(now.len());
            to = rest;
        }
        Ok(())
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    fn clear(&mut self) {
        for part in self.parts.iter_mut() {
            part.clear();
        }
        self.len = 0;
    }
}

/// The layouts that are staged for a key.
#[pin_data]
pub(crate) struct StagedLayouts {
    #[pin]
    slots: IrqLock<Slots>,
}

/// The staged layout of an rkey.
struct Ready {
    rkey: u32,
    /// [`None`] while a request reads the layout. The place stays reserved meanwhile, so that the
    /// layout can be put back.
    staged: Option<Staged>,
    /// The number of that request.
    turn: u32,
}

/// The places of the descriptions. A description that is being written or read is in none.
struct Slots {
    /// The staged layouts, each with its rkey.
    ready: [Option<Ready>; MAX_STAGED],
    /// Unused memory.
    spare: [Option<Staged>; MAX_STAGED],
    /// The number of layouts that requests have taken out.
    turns: u32,
}

impl Slots {
    /// Returns the place of the layout with `rkey`.
    fn of(&self, rkey: u32) -> Option<usize> {
        let is_it = |place: &Option<Ready>| matches!(place, Some(ready) if ready.rkey == rkey);
        self.ready.iter().position(is_it)
    }

    /// Returns the place from which `staged` was taken out. Returns [`None`] if another layout was
    /// staged under its rkey meanwhile, or all were dropped.
    fn place_of(&mut self, staged: &Staged) -> Option<&mut Option<Ready>> {
        let is_it = |ready: &Ready| ready.staged.is_none() && ready.turn == staged.turn;
        let mut places = self.ready.iter_mut();
        places.find(|place| place.as_ref().is_some_and(is_it))
    }

    /// Returns the place for a layout with `rkey`: that of the layout with the same rkey, or else a
    /// free one.
    fn place(&mut self, rkey: u32) -> Option<&mut Option<Ready>> {
        let at = self.of(rkey);
        let at = at.or_else(|| self.ready.iter().position(Option::is_none))?;
        self.ready.get_mut(at)
    }

    /// Keeps the memory of a description. Returns it if there is no place.
    fn keep(&mut self, unused: Staged) -> Option<Staged> {
        match self.spare.iter_mut().find(|place| place.is_none()) {
            Some(place) => place.replace(unused),
            None => Some(unused),
        }
    }
}

impl StagedLayouts {
    /// Makes a set without layouts.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        let slots = Slots {
            ready: array::from_fn(|_| None),
            spare: array::from_fn(|_| None),
            turns: 0,
        };
        KBox::pin_init(
            pin_init!(Self {
                slots <- new_irq_lock!(slots, "ib_mkey staged"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Stages the description that `write` writes, under `rkey`. The new description replaces one
    /// that is staged under `rkey`. Charges memory to the owner of `charge`. Does not sleep. Fails
    /// if [`MAX_STAGED`] other layouts are staged. Nothing has changed after an error.
    pub(crate) fn stage(
        &self,
        rkey: u32,
        charge: &OwnerCharge,
        write: impl FnOnce(&mut Staged) -> errors::Result,
    ) -> errors::Result {
        let spare = {
            let mut slots = self.slots.lock();
            slots.place(rkey).ok_or(Refused::ALL_MAPPED)?;
            slots.spare.iter_mut().find_map(Option::take)
        };
        let mut staged = match spare {
            Some(spare) => spare,
            None => Staged {
                parts: KVec::new(),
                len: 0,
                charge: charge.beside(0)?,
                turn: 0,
            },
        };
        staged.clear();
        let mut result = write(&mut staged);
        let mut slots = self.slots.lock();
        let mut unused = Some(staged);
        if result.is_ok() {
            match slots.place(rkey) {
                Some(place) => {
                    let new = Some(Ready {
                        rkey,
                        staged: unused.take(),
                        turn: 0,
                    });
                    unused = core::mem::replace(place, new).and_then(|before| before.staged);
                }
                // Another thread took the last place meanwhile.
                None => result = Err(Refused::ALL_MAPPED),
            }
        }
        let surplus = unused.and_then(|unused| slots.keep(unused));
        drop(slots);
        drop(surplus);
        result
    }

    /// Takes out the description that is staged under `rkey`. The caller returns it by
    /// [`Self::use_up`] or [`Self::put_back`].
    pub(crate) fn take(&self, rkey: u32) -> Option<Staged> {
        let mut slots = self.slots.lock();
        let at = slots.of(rkey)?;
        let turn = slots.turns.wrapping_add(1);
        let ready = slots.ready.get_mut(at)?.as_mut()?;
        let mut staged = ready.staged.take()?;
        ready.turn = turn;
        staged.turn = turn;
        slots.turns = turn;
        Some(staged)
    }

    /// Keeps the memory of a description for the next one.
    pub(crate) fn use_up(&self, staged: Staged) {
        let mut slots = self.slots.lock();
        if let Some(place) = slots.place_of(&staged) {
            *place = None;
        }
        let surplus = slots.keep(staged);
        drop(slots);
        drop(surplus);
    }

    /// Stages a description again, for another attempt of the same request, unless another one was
    /// staged under its rkey meanwhile or all were dropped.
    pub(crate) fn put_back(&self, staged: Staged) {
        let mut slots = self.slots.lock();
        let surplus = match slots.place_of(&staged) {
            Some(Some(ready)) => {
                ready.staged = Some(staged);
                None
            }
            _ => slots.keep(staged),
        };
        drop(slots);
        drop(surplus);
    }

    /// Drops all layouts and their memory.
    pub(crate) fn clear(&self) {
        loop {
            let one = {
                let mut slots = self.slots.lock();
                let ready = slots.ready.iter_mut().find_map(Option::take);
                let ready = ready.map(|ready| ready.staged);
                ready.or_else(|| slots.spare.iter_mut().find_map(Option::take).map(Some))
            };
            if one.is_none() {
                break;
            }
        }
    }
}
