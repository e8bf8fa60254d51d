// SPDX-License-Identifier: GPL-2.0

//! Accesses: the only way from an MR to its binding.
//!
//! rxe checks access flags when a request arrives, and copies bytes later. By then the key may have
//! another binding with other flags. The bytes of a retransmitted request are copied again, at any
//! later time. The flags are therefore checked here, in the critical section that reads the
//! binding. This module does not rely on rxe's check.
//!
//! # Locking
//!
//! The data path takes no lock of this module. An access takes a reference to the binding
//! (`rust/kernel/sync/rcu_arc.rs`), and drops it at the end. It may sleep in between.

pub(crate) mod bind;
pub(crate) mod prefetch;
pub(crate) mod refused;
pub(crate) mod window;

use crate::{
    backend::{Claimed, Direction, Payload},
    counters::{self, Count},
    errors::Refused,
    kernel_ext::rdma::{mr::Right, Access, Pd},
    limits::worker::Worker,
    region::{
        binding::Binding,
        rights::{Origin, Peer},
        Kind, Region,
    },
};
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
};
use refused::Asked;

/// Returns the access flags that a copy needs.
fn needed(remote: bool, direction: Direction) -> Access {
    match (remote, direction) {
        // Every MR allows local reads.
        (false, Direction::FromMemory) => Access::empty(),
        (false, Direction::ToMemory) => Right::LocalWrite.into(),
        (true, Direction::FromMemory) => Right::RemoteRead.into(),
        (true, Direction::ToMemory) => Right::RemoteWrite.into(),
    }
}

/// Returns the region of `mr`.
/// Fails with `EINVAL` for an MR that is not complete yet.
fn region_of(mr: &Claimed) -> Result<ArcBorrow<'_, Region>> {
    mr.object::<Region>().ok_or(EINVAL)
}

/// Runs `access` on the binding of `mr`, at the offset of the address of `asked` in that binding, if
/// the binding allows the access. Compares again what rxe compared when a request arrived. Records why
/// the access is refused.
///
/// # Errors
///
/// `ACCESS_UNBOUND`; the errors of [`Binding::allows`] and of `access`; `EINVAL` as of [`region_of`].
#[inline]
fn with_binding(
    mr: &Claimed,
    asked: Asked<'_>,
    access: impl FnOnce(&Binding, u64) -> Result,
) -> Result {
    let region = region_of(mr)?;
    let run = || {
        let binding = region.binding.get().ok_or(Refused::ACCESS_UNBOUND)?;
        binding.allows(mr, asked.peer, asked.needed)?;
        access(&binding, asked.addr.wrapping_sub(binding.start))
    };
    // A copy of each field leaves the fields in registers until then.
    run().inspect_err(|error| refused::record(&region, mr, Asked { ..asked }, *error))
}

/// Finds out why rxe has refused an access without a call of the functions below, and records it.
/// Records nothing if the access would be allowed now.
pub(crate) fn refused_by_driver(mr: &Claimed, asked: Asked<'_>) {
    let _ = with_binding(mr, asked, |binding, at| binding.check_range(at, asked.len));
}

/// Copies all of `payload` to or from `mr`, from address `iova` on. Without a `peer` the access is
/// local.
///
/// # Errors
///
/// The errors of [`with_binding`] and of [`Binding::copy`].
pub(crate) fn copy(mr: &Claimed, iova: u64, payload: Payload<'_>, peer: Option<&Peer>) -> Result {
    let needed = needed(peer.is_some(), payload.direction());
    let asked = Asked {
        addr: iova,
        len: payload.len(),
        needed,
        remote: peer.is_some(),
        peer,
    };
    counters::add(Count::Access, 1);
    with_binding(mr, asked, |binding, at| binding.copy(at, &payload))
}

/// Does a peer's atomic operation, or atomic write, on the eight bytes at address `iova` of `mr`.
/// `operation` needs the access flag `needed`.
///
/// # Errors
///
/// The errors of [`with_binding`] and of `operation`.
pub(crate) fn atomic_op(
    mr: &Claimed,
    iova: u64,
    peer: &Peer,
    needed: Right,
    operation: impl FnOnce(&Binding, u64) -> Result,
) -> Result {
    counters::add(Count::Access, 1);
    with_binding(mr, Asked::by(peer, iova, 8, needed), operation)
}

/// Makes `length` bytes from address `iova` on persistent, for a peer. Sleeps.
///
/// # Errors
///
/// The errors of [`with_binding`] and of [`Binding::flush`].
pub(crate) fn flush(mr: &Claimed, iova: u64, length: u64, peer: &Peer) -> Result {
    // Without the access flag, the leaves may not be persistent memory.
    let asked = Asked::by(peer, iova, length, Right::FlushPersistent);
    counters::add(Count::Access, 1);
    with_binding(mr, asked, |binding, at| binding.flush(at, length))
}

/// Returns `true` if `mr` is an MR for fast registration in which `length` bytes from address
/// `iova` on are registered.
#[inline(never)]
pub(crate) fn is_registered(mr: &Claimed, iova: u64, length: u64) -> bool {
    region_of(mr).is_ok_and(|region| region.is_registered(iova, length))
}

/// Unbinds a key or ends a fast registration, by LOCAL_INV or a peer's SEND with invalidate. The QP
/// is in `pd` and names the MR by `key`. No access is left when this returns without an error.
/// Sleeps for some seconds at most.
///
/// # Errors
///
/// `EINVAL` if `key` or `pd` is not that of the MR, for an MR that cannot be invalidated, and for a
/// peer if the MR has no remote access flag. `EBUSY` while a memory window or a key refers to the
/// MR. `EBUSY` too if accesses through the old binding are left; the MR is unbound then.
pub(crate) fn invalidate(mr: &Claimed, pd: &Pd, key: u32, origin: Origin) -> Result {
    let region: Arc<Region> = region_of(mr)?.into();
    // A request that names another MR must wait for nothing.
    if mr.key() != key || mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let worker = Worker::of(region.charge.waits());
    match &region.kind {
        Kind::FastReg(_) => region.invalidate_registration(mr, pd, key, origin, worker.timeout),
        Kind::Key { pins, .. } => {
            region.unbind(pins, mr, origin, Some(key), worker.timeout)?;
            counters::add(Count::Unbind, 1);
            Ok(())
        }
        _ => Err(EINVAL),
    }
}

/// Registers the elements that are mapped to `mr`, for a kernel QP in `pd`: REG_MR.
pub(crate) fn register(mr: &Claimed, pd: &Pd, key: u32, access: Access) -> Result {
    let region: Arc<Region> = region_of(mr)?.into();
    region.register(mr, pd, key, access)
}
