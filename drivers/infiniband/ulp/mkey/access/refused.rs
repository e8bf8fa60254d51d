// SPDX-License-Identifier: GPL-2.0

//! Refused accesses. A region keeps the last one, so that its owner can ask why a request failed: the
//! completion of the request does not say it.
//!
//! Nothing here runs unless an access is refused. It allocates nothing, and takes only the spinlock
//! of the record.

use crate::{
    backend::{rxe, Claimed},
    bindings::ib_uverbs_mkey_refused_access as RefusedAccess,
    counters,
    errors::Refused,
    kernel_ext::{
        rdma::{mr::Right, Access},
        sched::{self, Process},
        user::User,
    },
    mkey_core::Core,
    region::{rights::Peer, Region},
};
use kernel::prelude::*;

/// An access that a request asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The first address in the MR.
    pub(crate) addr: u64,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The access flags that the access needs.
    pub(crate) needed: Access,
    /// `true` if a peer asks.
    pub(crate) remote: bool,
    /// The QP and the key to compare; [`None`] if rxe has compared them just now.
    pub(crate) peer: Option<&'a Peer>,
}

impl<'a> Asked<'a> {
    /// An access for a peer.
    pub(super) fn by(peer: &'a Peer, addr: u64, len: u64, needed: Right) -> Self {
        Self {
            addr,
            len,
            needed: needed.into(),
            remote: true,
            peer: Some(peer),
        }
    }
}

/// Records that an access to `region`, the region of `mr`, has failed with `error`.
pub(super) fn record(region: &Region, mr: &Claimed, asked: Asked<'_>, error: Error) {
    let mut why = Refused::of_access(error);
    let binding = region.binding.get();
    // Another layout may have been bound since.
    let value = match (why, binding.as_deref()) {
        (Refused::ACCESS_RANGE, Some(binding)) if binding.start != 0 => {
            why = Refused::ACCESS_BASE;
            binding.start
        }
        (Refused::ACCESS_RANGE, Some(binding)) => binding.layout.length(),
        (Refused::ACCESS_FLAGS, Some(binding)) => {
            let window = asked.peer.and_then(|peer| peer.window);
            window.unwrap_or(binding.access).into_raw().into()
        }
        (Refused::ACCESS_KEY, _) => mr.key().into(),
        _ => 0,
    };
    let refused = RefusedAccess {
        number: counters::refused(why),
        addr: asked.addr,
        length: asked.len,
        value,
        key: asked.peer.map_or(mr.key(), |peer| peer.rkey),
        reason: why.reason(),
        access: asked.needed.into_raw(),
        remote: asked.remote.into(),
        ..Zeroable::zeroed()
    };
    rxe::trace_refused(&refused);
    region.refuse_access(refused);
}

/// Returns the last refused access to a region that the current process made, as `user`. Sleeps. A
/// process that is killed gets one of those that were looked at.
pub(crate) fn last_of(core: &Core, user: User) -> RefusedAccess {
    let process = Process::current();
    let is_own = |region: &Region| {
        region.charge.user() == Some(user)
            && region
                .maker
                .as_ref()
                .is_some_and(|maker| maker.is(&process))
    };
    let regions = core.regions.iter();
    regions
        .take_while(|_| sched::check_killed().is_ok())
        .filter(|region| is_own(region))
        .map(|region| region.refused_access())
        .max_by_key(|refused| refused.number)
        .unwrap_or_else(Zeroable::zeroed)
}
