// SPDX-License-Identifier: GPL-2.0

//! Accesses: the only way from an MR to what is bound to it.
//!
//! rxe checks access flags when a request arrives. By the time at which it copies bytes, the key
//! may be bound to something else, with other flags; a request that is sent again is copied again
//! at any later time. The flags are therefore checked here, in the critical section that reads the
//! binding. What rxe checked before is never relied on.
//!
//! # Locking
//!
//! The data path reads under SRCU (`rust/kernel/sync/srcu.rs`) and takes no lock, unless the
//! binding is slow (`region/binding.rs`) or of a fast registration (`region/fast_reg.rs`).

pub(crate) mod window;

use crate::{
    backend::{Backend, Direction, Hw, Payload},
    kernel_ext::{
        rdma::{mr::Right, Access, Mr, Pd},
        sched,
        sync::srcu::{self, Guard},
    },
    key::Key,
    limits::worker::Worker,
    mkey_core::{Core, Lookup},
    region::{
        binding::{Binding, Held},
        fast_reg::FastReg,
        rights::{Origin, Peer},
        Kind, Region,
    },
};
use kernel::{ffi::c_int, prelude::*, sync::ArcBorrow};

/// Returns the access flags that a copy needs.
#[inline]
fn needed(remote: bool, direction: Direction) -> Access {
    match (remote, direction) {
        // Every MR may be read by its own node.
        (false, Direction::FromMemory) => Access::empty(),
        (false, Direction::ToMemory) => Right::LocalWrite.into(),
        (true, Direction::FromMemory) => Right::RemoteRead.into(),
        (true, Direction::ToMemory) => Right::RemoteWrite.into(),
    }
}

/// Finds the region of `mr`, for as long as the critical section lasts.
#[inline]
fn region_of<'a>(mr: &'a Mr, guard: &'a Guard) -> Result<ArcBorrow<'a, Region>> {
    let slot = Hw::slot::<Region>(mr).ok_or(EINVAL)?;
    slot.get(guard).ok_or(EINVAL)
}

/// Runs `access` with what is bound to `mr`, at an offset: where in it address `iova` is. rxe looks
/// at protection domain and QP when a request arrives; for a `peer` both are compared again.
///
/// # Errors
///
/// `EINVAL` if nothing is bound, `EACCES` if it is not for the peer; those of `access`.
#[inline]
fn with_bound<T>(
    mr: &Mr,
    iova: u64,
    peer: Option<&Peer>,
    access: impl FnOnce(&Binding, u64) -> Result<T>,
) -> Result<T> {
    let guard = srcu::read();
    let region = region_of(mr, &guard)?;
    if let Kind::FastReg(fast_reg) = &region.kind {
        if peer.is_some_and(|peer| peer.pd != mr.pd() as usize) {
            return Err(EACCES);
        }
        return fast_reg.with(iova, access);
    }
    let bound = region.bound.get(&guard).ok_or(EINVAL)?;
    if peer.is_some_and(|peer| !bound.admits(mr, peer)) {
        return Err(EACCES);
    }
    let offset = iova.wrapping_sub(bound.start());
    match Held::new(bound) {
        None => access(&bound, offset),
        Some(held) => {
            // Deregistration ends this state, and waits for the accesses that found it.
            let hw = Core::find(mr.device(), &guard).ok_or(EINVAL)?.hw;
            if !hw.is_open(mr) {
                return Err(EINVAL);
            }
            // A slow access can take arbitrarily long. It leaves SRCU first, so that only a rebind
            // of this MR waits for it.
            drop(guard);
            sched::cond_resched();
            access(&held, offset)
        }
    }
}

/// Copies between `mr`, from address `iova` on, and all of `payload`: for a peer, or without one for
/// this node.
///
/// # Errors
///
/// Those of [`Binding::copy`]; `EINVAL` if nothing is bound, `EACCES` if it is not for the peer.
pub(crate) fn copy(mr: &Mr, iova: u64, payload: Payload<'_>, peer: Option<&Peer>) -> Result {
    let needed = needed(peer.is_some(), payload.direction());
    with_bound(mr, iova, peer, |bound, at| bound.copy(at, payload, needed))
}

// The rest is done in the step in which rxe looks the key up, for each packet: who asks was compared
// then.

/// Does a peer's atomic operation on the eight bytes at address `iova`. Returns what the driver's
/// code says.
///
/// # Errors
///
/// Those of [`Binding::atomic_op`]; `EINVAL` if nothing is bound.
pub(crate) fn atomic_op(
    mr: &Mr,
    iova: u64,
    opcode: c_int,
    compare: u64,
    swap_add: u64,
    original: &mut u64,
) -> Result<c_int> {
    with_bound(mr, iova, None, |bound, at| {
        bound.atomic_op(at, opcode, compare, swap_add, original)
    })
}

/// Writes a peer's eight bytes at address `iova` at once. As for [`atomic_op`].
pub(crate) fn atomic_write(mr: &Mr, iova: u64, value: u64) -> Result<c_int> {
    with_bound(mr, iova, None, |bound, at| bound.atomic_write(at, value))
}

/// Makes `length` bytes from address `iova` on persistent, for a peer. Sleeps.
///
/// A request to flush a whole MR comes with the lower half of its length. A range that looks like
/// that is flushed with all that follows.
///
/// # Errors
///
/// Those of [`Binding::flush`]; `EINVAL` if nothing is bound.
pub(crate) fn flush(mr: &Mr, iova: u64, length: u32) -> Result {
    with_bound(mr, iova, None, |bound, at| {
        let whole = bound.layout.length();
        if at == 0 && length == whole as u32 {
            bound.flush(at, whole)
        } else if length == 0 {
            Ok(())
        } else {
            bound.flush(at, length.into())
        }
    })
}

/// Returns `true` if `length` bytes from address `iova` on are registered in the MR for fast
/// registration that `mr` is.
pub(crate) fn is_registered(mr: &Mr, iova: u64, length: u64) -> bool {
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

/// Unbinds a key, or ends a fast registration, for a QP in `pd` that names it by `key`: LOCAL_INV,
/// or for a peer SEND with invalidate. No access is left when this returns without an error. Sleeps,
/// for some seconds at most.
///
/// # Errors
///
/// `EINVAL` for another key or protection domain, for an MR that cannot be invalidated, and for a
/// peer if the MR gives no peer any right; `EBUSY` while a memory window or a key refers to it,
/// or if accesses are left to what was bound; none begins any more then.
pub(crate) fn invalidate(mr: &Mr, pd: &Pd, key: u32, origin: Origin) -> Result {
    let core = Core::running(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    if let Some(fast_reg) = fast_reg_of(&region) {
        return fast_reg.invalidate(&core.hw, mr, pd, key, origin);
    }
    if mr.rkey() != key || mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    Key::of(&core, mr, pd)?;
    let (pins, hw) = (core.pins.clone(), core.hw);
    // An access in progress may take as long as a process likes. Removal of another device must not
    // wait for that. This device is not removed while a key exists.
    drop(core);
    let worker = Worker::new();
    region.unbind(&pins, &hw, mr, origin, worker.patience)
}

/// Registers what is mapped to `mr`, for a kernel QP in `pd`: REG_MR.
///
/// # Errors
///
/// `EINVAL` for an MR that is not for fast registration; those of [`FastReg::register`].
pub(crate) fn register(mr: &Mr, pd: &Pd, key: u32, access: Access) -> Result {
    let core = Core::running(mr.device())?;
    let region = core.region_of(mr).ok_or(EINVAL)?;
    let fast_reg = fast_reg_of(&region).ok_or(EINVAL)?;
    fast_reg.register(&core.hw, mr, pd, key, access)
}
