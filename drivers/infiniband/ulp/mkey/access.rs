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
mod reuse;
pub(crate) mod window;

use self::find::region_of;
use crate::{
    backend::{
        pins::{when_unpinned, IsPinned, Pins},
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
use kernel::{ffi::c_int, prelude::*, sync::Arc};

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
#[inline(always)]
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
/// Returns the result of the driver's code. [`atomic_op_registered`] does this for an MR for fast
/// registration.
///
/// # Errors
///
/// Those of `operation`; `EINVAL` if nothing is bound, `EACCES` if the peer may not use the
/// binding.
#[inline(always)]
pub(crate) fn atomic_op(
    mr: &Claimed,
    iova: u64,
    peer: Peer,
    operation: impl Operation<c_int>,
) -> Result<c_int> {
    counted(with_binding(mr, iova, Some(peer), operation))
}

/// Does what [`atomic_op`] does, for an MR for fast registration.
#[inline(always)]
pub(crate) fn atomic_op_registered(
    mr: &Claimed,
    iova: u64,
    peer: Peer,
    operation: impl Operation<c_int>,
) -> Result<c_int> {
    counted(with_registered(mr, iova, Some(peer), operation))
}

/// Makes `length` bytes from address `iova` on persistent, for a peer. Sleeps.
///
/// In a request to flush a whole MR, `length` has only the lower 32 bits of the MR's length. If
/// `iova` is the first address and `length` has these bits, the whole MR is flushed.
///
/// # Errors
///
/// Those of [`Binding::flush`]; `EINVAL` if nothing is bound, `EACCES` if the peer may not use the
/// binding.
pub(crate) fn flush(mr: &Claimed, iova: u64, length: u32, peer: Peer) -> Result {
    let flush = |binding: &Binding, at| {
        let whole = binding.layout.length();
        if at == 0 && length == whole as u32 {
            binding.flush(at, whole)
        } else if length == 0 {
            Ok(())
        } else {
            binding.flush(at, length.into())
        }
    };
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

fn fast_reg_of(region: &Region) -> Option<&FastReg> {
    match &region.kind {
        Kind::FastReg(fast_reg) => Some(fast_reg),
        _ => None,
    }
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

/// If `mr` is an MR for fast registration to which no binding refers, ends the registration,
/// without a look-up of the device's data. Otherwise returns the region of `mr` as
/// [`Region::exposed`] does, but [`None`] for a fast registration to which a binding may refer.
///
/// # Errors
///
/// The result of the end of the registration, if `mr` is an MR for fast registration to which no
/// binding refers.
fn exposed_or_ended(
    mr: &Claimed,
    pd: &Pd,
    key: u32,
    origin: Origin,
) -> core::result::Result<Option<Arc<Region>>, Result> {
    // The removal of the device waits for this critical section. `end()` waits for accesses in
    // other critical sections, and these wait for nothing.
    let guard = srcu::read();
    let Ok(region) = region_of(mr, &guard) else {
        return Ok(None);
    };
    match fast_reg_of(&region).map(|fast_reg| fast_reg.end(mr, pd, key, origin)) {
        None => Ok(Some(region.into())),
        Some(Err(IsPinned)) => Ok(None),
        Some(Ok(ended)) => Err(ended),
    }
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
    let exposed = match exposed_or_ended(mr, pd, key, origin) {
        Ok(exposed) => exposed,
        Err(ended) => return ended,
    };
    if let Some(region) = exposed {
        if let Kind::Key { pins, .. } = &region.kind {
            return invalidate_key(&region, pins, (mr, pd, key), origin);
        }
    }
    let core = Core::running(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    if let Some(fast_reg) = fast_reg_of(&region) {
        return end_registration(&core, mr, (&region, fast_reg), pd, key, origin);
    }
    let Kind::Key { pins, .. } = &region.kind else {
        return Err(EINVAL);
    };
    // The wait below must not keep the device's data, see `Region::exposed()`.
    drop(core);
    invalidate_key(&region, pins, (mr, pd, key), origin)
}

/// Unbinds the key `region`. The errors are those of [`invalidate`].
fn invalidate_key(
    region: &Region,
    pins: &Pins,
    (mr, pd, key): (&Claimed, &Pd, u32),
    origin: Origin,
) -> Result {
    if mr.key() != key || mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let worker = Worker::of(region.charge.waits());
    region.unbind(pins, mr, origin, Some(key), worker.timeout)?;
    counters::add(Count::Unbind, 1);
    Ok(())
}

/// Makes the elements of `fast_reg` active and records `key` as the lkey. The errors are those of
/// [`FastReg::register`].
fn register_elements(
    region: &Region,
    fast_reg: &FastReg,
    mr: &Claimed,
    pd: &Pd,
    key: u32,
    access: Access,
) -> Result {
    fast_reg.register(mr, pd, key, access)?;
    region.registered_as(key);
    Ok(())
}

/// Registers elements without a look-up of the device's data. Returns [`None`] if `mr` is no MR for
/// fast registration.
fn register_exposed(mr: &Claimed, pd: &Pd, key: u32, access: Access) -> Option<Result> {
    // The removal of the device waits for this critical section.
    let guard = srcu::read();
    let region = region_of(mr, &guard).ok()?;
    let fast_reg = fast_reg_of(&region)?;
    Some(register_elements(&region, fast_reg, mr, pd, key, access))
}

/// Registers the elements that are mapped to `mr`, or binds the unbound key `mr` to a staged
/// layout, for a kernel QP in `pd`: REG_MR. Sleeps.
///
/// # Errors
///
/// `EINVAL` for an MR of another kind; those of [`FastReg::register`] and of [`bind_staged`].
///
/// [`bind_staged`]: bind::bind_staged
pub(crate) fn register(mr: &Claimed, pd: &Pd, key: u32, access: Access) -> Result {
    if let Some(registered) = register_exposed(mr, pd, key, access) {
        return registered;
    }
    let core = Core::running(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    match fast_reg_of(&region) {
        Some(fast_reg) => register_elements(&region, fast_reg, mr, pd, key, access),
        // The driver executes this request itself, because the QP is older than the device's
        // extension. Earlier requests of the QP may not have completed, so no binding is replaced.
        None => bind::bind_staged(mr, pd, key, access.into_raw(), bind::Attempt::Only),
    }
}
