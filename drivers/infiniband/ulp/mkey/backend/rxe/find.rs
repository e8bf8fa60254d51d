// SPDX-License-Identifier: GPL-2.0

//! The MR that an lkey names.

use super::{
    base::BaseMr,
    bindings::{
        self, rxe_mr_state_RXE_MR_STATE_INVALID as INVALID,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    claimed::{Claimed, MrRange, RxeMr},
};
use crate::{
    backend::{copy::Payload, pins::NoDereg},
    bindings::{
        ib_mr_type_IB_MR_TYPE_DM as TYPE_DM, ib_mr_type_IB_MR_TYPE_DMA as TYPE_DMA,
        ib_mr_type_IB_MR_TYPE_MEM_REG as TYPE_MEM_REG,
        ib_mr_type_IB_MR_TYPE_SG_GAPS as TYPE_SG_GAPS, ib_mr_type_IB_MR_TYPE_USER as TYPE_USER,
    },
    kernel_ext::rdma::{mr_key, Access, Pd},
    layout::{Row, Segment},
};
use kernel::{prelude::*, sync::aref::ARef};

/// The MR that an lkey names.
pub(crate) enum LookedUp<'a> {
    /// One of the driver's MRs.
    Memory {
        /// The MR.
        base: BaseMr,
        /// Its first address.
        start: u64,
        /// Its length in bytes; 0 if it is not registered now.
        len: u64,
        /// Its current access flags.
        access: Access,
    },
    /// An MR of this module.
    Own(&'a Claimed),
    /// An MR that cannot be a leaf.
    Unfit,
}

/// The MR that an lkey names, with the state and the access flags that it had.
struct Valid {
    mr: ARef<RxeMr>,
    state: bindings::rxe_mr_state,
    access: Access,
}

/// Finds the MR that `lkey` names.
///
/// # Errors
///
/// `ENOENT`.
fn valid(held: &NoDereg<'_>, lkey: u32, pd: &Pd) -> Result<Valid> {
    if !held.is_of(pd.device()) {
        return Err(ENOENT);
    }
    let mr = RxeMr::at(pd.device(), mr_key::index(lkey)).ok_or(ENOENT)?;
    // The state tells whether the MR was suspended, and `held` excludes that it is now.
    let state = mr.state();
    let (key, access) = (mr.own_lkey(), mr.access());
    // All cases have the same error, so that a process cannot find out the lkeys of other
    // processes.
    if key != lkey || state == INVALID || mr.pd() != pd.as_raw() {
        return Err(ENOENT);
    }
    // An MR that is not committed is refused: the call that creates it may still fail, and must
    // then be able to destroy it.
    // SAFETY: A process made all MRs in a process's domain. rxe's `dereg_mr` waits for the
    // reference that is held here.
    if !pd.is_kernels() && !unsafe { mr.is_committed() } {
        return Err(ENOENT);
    }
    Ok(Valid { mr, state, access })
}

/// Copies bytes of one of the driver's MRs over memory of a process, from address `addr` on.
/// Returns `false`, with nothing copied, for other memory and for an ODP MR. `held` keeps
/// the MR from being freed meanwhile.
///
/// # Errors
///
/// The errors of [`find`]; `ERANGE` for bytes outside of the MR; the errors of
/// [`BaseMr::allows`] and [`BaseMr::copy`].
pub(crate) fn read_now(
    held: &NoDereg<'_>,
    lkey: u32,
    pd: &Pd,
    addr: u64,
    to: &mut [u8],
) -> Result<bool> {
    let Valid { mr, .. } = valid(held, lkey, pd)?;
    let range = mr.range();
    if mr.kind() != TYPE_USER {
        return Ok(false);
    }
    // SAFETY: The MR is over user memory. `held` keeps it from being deregistered.
    let base = unsafe { BaseMr::new(mr) };
    if base.is_on_demand() {
        return Ok(false);
    }
    let length = to.len() as u64;
    if !range.contains(addr, length) {
        return Err(ERANGE);
    }
    base.allows(pd.as_raw() as usize, lkey, range.start, false)?;
    let segment = Segment::Row(Row::of(0, addr, length));
    base.copy(segment, 0, &Payload::reading(to)?)?;
    Ok(true)
}

/// Finds the MR that `lkey` names. `held` excludes [`suspend`](super::suspend), so the driver does not
/// free the MR while `held` exists.
///
/// # Errors
///
/// `ENOENT` if `lkey` names no MR in `pd`, and if `held` is a proof for another device.
///
/// # Safety
///
/// The driver must not deregister the MR while the [`BaseMr`] or a clone of it exists. `held`
/// excludes that, and so does a pin that is made before `held` drops.
pub(crate) unsafe fn find<'a>(held: &'a NoDereg<'_>, lkey: u32, pd: &Pd) -> Result<LookedUp<'a>> {
    let Valid { mr, state, access } = valid(held, lkey, pd)?;
    let MrRange { start, len } = mr.range();
    let (start, len) = match mr.kind() {
        TYPE_USER => (start, len),
        // A kernel user's MR. It has no bytes while it is not registered.
        TYPE_MEM_REG if pd.is_kernels() => (start, if state == VALID { len } else { 0 }),
        // The MR of all memory, whose addresses are kernel addresses. Only protection domains
        // of kernel users contain it.
        TYPE_DMA => (0, u64::MAX),
        TYPE_SG_GAPS | TYPE_DM => {
            // SAFETY: The types show that the MR is claimed. `held` keeps it from being suspended,
            // and rxe from deregistering it.
            return Ok(LookedUp::Own(unsafe { Claimed::from_raw(mr.private()) }));
        }
        _ => return Ok(LookedUp::Unfit),
    };
    // SAFETY: The MR is over user memory, over pages that a kernel user mapped, or over all memory.
    // By the safety requirement it stays. A kernel user maps no other pages while the MR is pinned:
    // see `MkeyDevice::may_map()`.
    let base = unsafe { BaseMr::new(mr) };
    Ok(LookedUp::Memory {
        base,
        start,
        len,
        access,
    })
}
