// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind a key to the layout of an earlier binding, at another address.
//!
//! A key keeps an unused binding, whose memory the next bind uses. The unused binding still has its
//! layout (`region/binding/unused.rs`). If a request describes that layout again, over one of the
//! driver's MRs, the unused binding gets the new leaf and address, and the key is bound to it. Its
//! range and its access flags are checked as those of any other binding.
//!
//! Such a bind has the result that a bind of `access/bind.rs` would have. If it cannot succeed, it
//! changes nothing, and `access/bind.rs` executes the request.
//!
//! # Locking
//!
//! The description is read and the key is bound in one critical section of the lock of the pins, so
//! no MR is deregistered in between. A thread that would have to wait for `edit` leaves the request
//! to `access/bind.rs`.

use super::request::{checked, KeyRequest, Short};
use crate::{
    backend::{
        pins::{NoDereg, Pins},
        Backend, Claimed, Hw,
    },
    counters::{self, Count},
    kernel_ext::{
        rdma::{mr_key, Access, Pd},
        sync::{lock::LockMany, srcu::Retired, users::Timeout},
    },
    key::{leaf::find_memory, same_layout::SameLayout},
    region::{
        binding::Binding,
        old::OldBindings,
        rebind::QueuedBind,
        rights::supported,
        Edit,
        Kind,
        Region, //
    },
};
use kernel::{
    prelude::*,
    sync::{Arc, UniqueArc},
};

/// A request to bind a key that may have an unused binding.
struct Reuse<'a> {
    mr: &'a Claimed,
    pd: &'a Pd,
    request: &'a KeyRequest<'a>,
    access: Access,
    region: &'a Region,
    old: &'a OldBindings,
    pins: &'a Arc<Pins>,
    hw: &'a Hw,
}

impl Reuse<'_> {
    /// Copies the description to `buffer`, unless the request contains it. Returns its bytes.
    fn text<'t>(&'t self, held: &NoDereg<'_>, buffer: &'t mut Short<'_>) -> Option<&'t [u8]> {
        let request = self.request;
        if request.length == 0 {
            return Some(request.inline);
        }
        let read = |to: &mut [u8]| {
            self.hw
                .read_now(held, request.lkey, self.pd, request.addr, to)
        };
        buffer.fill(request.length, read).ok()?
    }

    /// Gives the unused binding in `place` the leaf and the address of the description, and
    /// binds the key to it. Returns the binding that was replaced.
    fn exchange(
        &self,
        edit: &mut Edit,
        place: &mut Option<UniqueArc<Binding>>,
        buffer: &mut Short<'_>,
    ) -> Option<Retired<Binding>> {
        let Self {
            mr,
            pd,
            request,
            access,
            region,
            old,
            pins,
            hw,
        } = *self;
        let mut locked = pins.lock();
        let binding = place.as_mut()?;
        let same = SameLayout::of(self.text(&locked.held(), buffer)?, &binding.layout)?;
        let queued = QueuedBind {
            old,
            key: Some(request.rkey),
            any_tag: same.any_tag,
            new_key: request.new_key,
            timeout: Timeout::After(0),
        };
        if !locked.is_unpinned(mr.index()) || region.check_queued(edit, &queued, mr).is_err() {
            return None;
        }
        // SAFETY: The binding gets a pin of the MR below, or drops the leaf, while `locked` exists.
        let found = unsafe { find_memory(hw, &locked.held(), same.lkey, pd) };
        let Ok(Some(leaf)) = found else {
            return None;
        };
        binding.retarget(same.addr, leaf, access, pd).ok()?;
        let Some(pin) = locked.pin(mr_key::index(same.lkey)) else {
            binding.give_up();
            return None;
        };
        binding.hold(pin);
        if same.remote_inv {
            binding.allow_remote_inv();
        }
        let new = place.take()?;
        Some(region.bind_queued(edit, &queued, mr, new.into()))
    }

    /// Binds the key.
    fn bind(&self, edit: &mut Edit, buffer: &mut Short<'_>) -> Option<()> {
        let mut place = Some(self.region.unused.take()?);
        let bound = if self.region.binding.is_empty() {
            // The key stays unbound under `edit`, so no binding is replaced.
            self.exchange(edit, &mut place, buffer).map(drop)
        } else {
            let replace = || Ok(self.exchange(edit, &mut place, buffer).ok_or(EAGAIN));
            let kept = self.old.replace_and_keep(self.region.address(), replace);
            kept.is_ok_and(|kept| kept.is_ok()).then_some(())
        };
        if let Some(unused) = place {
            drop(self.region.unused.put(unused));
        }
        bound
    }
}

/// Binds the key `mr` as [`super::bind::bind`] does, if the layout is that of its unused
/// binding. Returns [`None`], with nothing changed, otherwise.
pub(super) fn bind(
    mr: &Claimed,
    pd: &Pd,
    request: &KeyRequest<'_>,
    buffer: &mut Short<'_>,
) -> Option<()> {
    let region = Region::exposed(mr)?;
    let Kind::Key { old, pins, hw, .. } = &region.kind else {
        return None;
    };
    let is_named = mr.pd() == pd.as_raw()
        && mr_key::is_same_index(mr.rkey(), request.rkey)
        && mr_key::is_same_index(request.new_key, request.rkey);
    let access = checked(pd, request.access).ok()?;
    if !is_named || !supported(access) {
        return None;
    }
    let many = LockMany::new();
    let mut edit = many.try_lock(&region.edit)?;
    let reuse = Reuse {
        mr,
        pd,
        request,
        access,
        region: &region,
        old,
        pins,
        hw,
    };
    let bound = reuse.bind(&mut edit, buffer);
    drop(edit);
    drop(many);
    bound?;
    region.drop_idle(old);
    counters::add(Count::Bind, 1);
    counters::add(Count::Reuse, 1);
    Some(())
}
