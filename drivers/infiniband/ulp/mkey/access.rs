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
pub(crate) mod window;

use crate::{
    backend::{Claimed, ClaimedMr, Direction, Payload},
    counters::{self, refused, Count},
    kernel_ext::rdma::{mr::Right, Access, Pd},
    limits::worker::Worker,
    region::{
        binding::Binding,
        rights::{Origin, Peer},
        Kind, Region,
    },
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::{Arc, ArcBorrow},
};

/// Returns the access flags that a copy needs.
#[inline]
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

/// Runs `access` on the binding of `mr`, at the offset of address `iova` in that binding, if the
/// binding allows what is `needed` to this node or to `peer`. Compares again what rxe compared when
/// a request arrived.
///
/// # Errors
///
/// `EINVAL` if nothing is bound, `EACCES` if the peer may not use the binding or an access flag is
/// missing; the errors of `access`.
#[inline]
fn with_binding<T>(
    mr: &Claimed,
    iova: u64,
    peer: Option<Peer>,
    needed: Access,
    access: impl FnOnce(&Binding, u64) -> Result<T>,
) -> Result<T> {
    counters::add(Count::Access, 1);
    let run = || {
        let binding = region_of(mr)?.binding.get().ok_or(EINVAL)?;
        if !binding.allows(mr, peer.as_ref(), needed) {
            return Err(EACCES);
        }
        access(&binding, iova.wrapping_sub(binding.start()))
    };
    run().inspect_err(refused)
}

/// Copies all of `payload` to or from `mr`, from address `iova` on. Without a `peer` the access is
/// local.
///
/// # Errors
///
/// The errors of [`Binding::copy`] and of [`with_binding`].
pub(crate) fn copy(mr: &Claimed, iova: u64, payload: Payload<'_>, peer: Option<Peer>) -> Result {
    let needed = needed(peer.is_some(), payload.direction());
    with_binding(mr, iova, peer, needed, |binding, at| {
        binding.copy(at, &payload)
    })
}

/// Does a peer's atomic operation, or atomic write, on the eight bytes at address `iova` of `mr`,
/// which needs the access flag `needed`. Returns the result of the driver's code.
///
/// # Errors
///
/// The errors of `operation` and of [`with_binding`].
pub(crate) fn atomic_op(
    mr: &Claimed,
    iova: u64,
    peer: Peer,
    needed: Right,
    operation: impl FnOnce(&Binding, u64) -> Result<c_int>,
) -> Result<c_int> {
    with_binding(mr, iova, Some(peer), needed.into(), operation)
}

/// Makes `length` bytes from address `iova` on persistent, for a peer. Sleeps.
///
/// # Errors
///
/// The errors of [`Binding::flush`] and of [`with_binding`].
pub(crate) fn flush(mr: &Claimed, iova: u64, length: u64, peer: Peer) -> Result {
    // Without the access flag, the leaves may not be persistent memory.
    let needed = Right::FlushPersistent.into();
    with_binding(mr, iova, Some(peer), needed, |binding, at| {
        binding.flush(at, length)
    })
}

/// Returns `true` if `mr` is an MR for fast registration in which `length` bytes from address
/// `iova` on are registered.
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
