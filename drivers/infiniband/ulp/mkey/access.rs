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
//! The data path reads under SRCU (`rust/kernel/sync/srcu.rs`) and takes no lock of this module. An
//! access through a slow binding leaves SRCU and counts as a user of that binding
//! (`region/binding/held.rs`). Readers of a fast registration are counted (`region/fast_reg.rs`).

pub(crate) mod bind;
mod find;
pub(crate) mod request;
pub(crate) mod window;

use self::find::region_of;
use crate::{
    backend::{
        pins::{when_unpinned, Pins},
        Claimed, ClaimedMr, Direction, Payload,
    },
    counters::{self, refused, Count},
    kernel_ext::{
        rdma::{mr::Right, Access, Pd},
        sched,
        sync::srcu::{self, Guard},
    },
    limits::worker::Worker,
    mkey_core::{Core, Lookup},
    region::{
        binding::{Binding, Held},
        fast_reg::FastReg,
        old::Which,
        rights::{Origin, Peer},
        Kind, Region,
    },
};
use kernel::{ffi::c_int, prelude::*};

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

/// An operation on a binding. The methods of a type can be inlined into several callers. The compiler
/// does not do that with a closure, and passes what the closure has in memory.
pub(crate) trait Operation<T> {
    /// Runs the operation at an offset of `binding`.
    fn run(self, binding: &Binding, at: u64) -> Result<T>;
}

impl<T, F: FnOnce(&Binding, u64) -> Result<T>> Operation<T> for F {
    #[inline]
    fn run(self, binding: &Binding, at: u64) -> Result<T> {
        self(binding, at)
    }
}

/// The copy of a packet.
struct CopyPacket<'a> {
    payload: Payload<'a>,
    needed: Access,
}

impl Operation<()> for CopyPacket<'_> {
    #[inline(always)]
    fn run(self, binding: &Binding, at: u64) -> Result {
        binding.copy(at, self.payload, self.needed)
    }
}

/// The copy of a packet by an MR for fast registration.
struct CopyRegistered<'a>(CopyPacket<'a>);

impl Operation<()> for CopyRegistered<'_> {
    #[inline(always)]
    fn run(self, binding: &Binding, at: u64) -> Result {
        binding.copy_entry(at, self.0.payload, self.0.needed)
    }
}

/// Runs `access` on the binding of `mr`, at the offset of address `iova` in that binding. For a
/// `peer`, compares protection domain and QP again: rxe compares them only when a request arrives.
///
/// # Errors
///
/// `EINVAL` if nothing is bound and for an MR for fast registration, `EACCES` if the peer may not
/// use the binding; those of `access`.
#[inline(always)]
fn with_binding<T>(
    mr: &Claimed,
    iova: u64,
    peer: Option<Peer>,
    access: impl Operation<T>,
) -> Result<T> {
    let guard = srcu::read();
    let region = mr.slot::<Region>().get(&guard).ok_or(EINVAL)?;
    let binding = region.binding.get(&guard).ok_or(EINVAL)?;
    if peer.is_some_and(|peer| !binding.admits(mr, &peer)) {
        return Err(EACCES);
    }
    if binding.is_slow() {
        let held = Held::new(binding).ok_or(EINVAL)?;
        return with_held(held, mr, iova, guard, access);
    }
    access.run(&binding, iova.wrapping_sub(binding.start()))
}

/// Runs `access` on the active layout of `mr`, an MR for fast registration. As for
/// [`with_binding`].
///
/// # Errors
///
/// `EINVAL` for another MR, `EACCES` if the peer is in another protection domain; those of
/// [`FastReg::begin`].
#[inline(always)]
fn with_registered<T>(
    mr: &Claimed,
    iova: u64,
    peer: Option<Peer>,
    access: impl Operation<T>,
) -> Result<T> {
    let guard = srcu::read();
    let region = mr.slot::<Region>().get(&guard).ok_or(EINVAL)?;
    let Kind::FastReg(fast_reg) = &region.kind else {
        return Err(EINVAL);
    };
    if peer.is_some_and(|peer| peer.pd != mr.pd() as usize) {
        return Err(EACCES);
    }
    let (active, at) = fast_reg.begin(iova, peer.map(|peer| peer.rkey))?;
    access.run(&active, at)
}

/// Runs `access` outside of SRCU. The errors are those of [`with_binding`].
#[inline(never)]
fn with_held<T>(
    held: Held,
    mr: &Claimed,
    iova: u64,
    guard: Guard,
    access: impl Operation<T>,
) -> Result<T> {
    // Deregistration closes the MR first, and then waits for the accesses that found it open.
    if !mr.is_open() {
        return Err(EINVAL);
    }
    // A slow access can take arbitrarily long. It leaves SRCU first, so that only a rebind of this
    // MR waits for it.
    drop(guard);
    sched::cond_resched();
    access.run(&held, iova.wrapping_sub(held.start()))
}

/// Counts an access that failed.
#[inline(always)]
fn counted<T>(result: Result<T>) -> Result<T> {
    result.inspect_err(|error| {
        // The error is copied, so that the result itself stays in registers.
        refused(&{ *error });
    })
}

/// Copies all of `payload` to or from `mr`, from address `iova` on. Without a `peer` the access is
/// local. [`copy_registered`] does this for an MR for fast registration.
///
/// # Errors
///
/// Those of [`Binding::copy`]; `EINVAL` if nothing is bound, `EACCES` if the peer may not use the
/// binding.
#[inline(always)]
pub(crate) fn copy(mr: &Claimed, iova: u64, payload: Payload<'_>, peer: Option<Peer>) -> Result {
    let needed = needed(peer.is_some(), payload.direction());
    counted(with_binding(mr, iova, peer, CopyPacket { payload, needed }))
}

/// Does what [`copy`] does, for an MR for fast registration.
pub(crate) fn copy_registered(
    mr: &Claimed,
    iova: u64,
    payload: Payload<'_>,
    peer: Option<Peer>,
) -> Result {
    let needed = needed(peer.is_some(), payload.direction());
    counted(with_registered(
        mr,
        iova,
        peer,
        CopyRegistered(CopyPacket { payload, needed }),
    ))
}

/// Does a peer's atomic operation, or atomic write, on the eight bytes at address `iova` of `mr`.
/// Returns the result of the driver's code.
///
/// # Errors
///
/// Those of `operation`; `EINVAL` if nothing is bound, `EACCES` if the peer may not use the
/// binding.
pub(crate) fn atomic_op(
    mr: &Claimed,
    iova: u64,
    peer: Peer,
    operation: impl Operation<c_int>,
) -> Result<c_int> {
    counted(if mr.is_fast_reg() {
        with_registered(mr, iova, Some(peer), operation)
    } else {
        with_binding(mr, iova, Some(peer), operation)
    })
}

/// Makes `length` bytes from address `iova` on persistent, for a peer. Sleeps.
///
/// # Errors
///
/// Those of [`Binding::flush`]; `EINVAL` if nothing is bound, `EACCES` if the peer may not use the
/// binding.
pub(crate) fn flush(mr: &Claimed, iova: u64, length: u64, peer: Peer) -> Result {
    let flush = |binding: &Binding, at| binding.flush(at, length);
    counted(if mr.is_fast_reg() {
        with_registered(mr, iova, Some(peer), flush)
    } else {
        with_binding(mr, iova, Some(peer), flush)
    })
}

/// Returns `true` if `mr` is an MR for fast registration in which `length` bytes from address
/// `iova` on are registered.
pub(crate) fn is_registered(mr: &Claimed, iova: u64, length: u64) -> bool {
    let guard = srcu::read();
    region_of(mr, &guard).is_ok_and(|region| match &region.kind {
        Kind::FastReg(fast_reg) => fast_reg.contains(iova, length),
        _ => false,
    })
}

/// Ends a fast registration, unless a bound key refers to its elements. The errors are those of
/// [`FastReg::end`].
fn end_registration(
    core: &Core,
    mr: &Claimed,
    (region, fast_reg): (&Region, &FastReg),
    pd: &Pd,
    key: u32,
    origin: Origin,
) -> Result {
    let end = || fast_reg.end(mr, pd, key, origin);
    when_unpinned(end, || {
        let which = Which::Pinning(mr.index());
        let worker = Worker::of(region.charge.waits());
        core.old.wait_and_drop(which, worker.timeout)
    })?
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
    let core = Core::of(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    // A request that names another MR must wait for nothing.
    if mr.key() != key || mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    match &region.kind {
        Kind::FastReg(fast_reg) => end_registration(core, mr, (&region, fast_reg), pd, key, origin),
        Kind::Key { pins, .. } => invalidate_key(&region, pins, (mr, key), origin),
        _ => Err(EINVAL),
    }
}

/// Unbinds the key `region`. The errors are those of [`invalidate`].
fn invalidate_key(
    region: &Region,
    pins: &Pins,
    (mr, key): (&Claimed, u32),
    origin: Origin,
) -> Result {
    let worker = Worker::of(region.charge.waits());
    region.unbind(pins, mr, origin, Some(key), worker.timeout)?;
    counters::add(Count::Unbind, 1);
    Ok(())
}

/// Registers the elements that are mapped to `mr`, for a kernel QP in `pd`: REG_MR.
///
/// # Errors
///
/// `EINVAL` for an MR of another kind; those of [`FastReg::register`].
pub(crate) fn register(mr: &Claimed, pd: &Pd, key: u32, access: Access) -> Result {
    let core = Core::of(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    let Kind::FastReg(fast_reg) = &region.kind else {
        return Err(EINVAL);
    };
    fast_reg.register(mr, pd, key, access)?;
    region.registered_as(key);
    Ok(())
}
