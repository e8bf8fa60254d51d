// SPDX-License-Identifier: GPL-2.0

//! The MR that an lkey names.

use super::{
    base::Base,
    bindings::{
        self, rxe_mr, rxe_mr_state_RXE_MR_STATE_INVALID as INVALID,
        rxe_mr_state_RXE_MR_STATE_VALID as VALID,
    },
    claimed::{ClaimedRxeMr, RxeMr},
    device::is_ours,
};
use crate::{
    backend::{
        copy::Payload,
        interface::{BaseMr, LookedUp, MrRange},
        pins::NoDereg,
    },
    bindings::{
        ib_mr_type_IB_MR_TYPE_DM as TYPE_DM, ib_mr_type_IB_MR_TYPE_DMA as TYPE_DMA,
        ib_mr_type_IB_MR_TYPE_MEM_REG as TYPE_MEM_REG,
        ib_mr_type_IB_MR_TYPE_SG_GAPS as TYPE_SG_GAPS, ib_mr_type_IB_MR_TYPE_USER as TYPE_USER,
    },
    kernel_ext::rdma::{mr_key, Access, Device, Pd},
    layout::Row,
};
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::prelude::*;

/// A reference to an MR that was found by its index.
///
/// # Invariants
///
/// The pointer is an `rxe_mr` to which this holds a reference.
struct FoundMr(NonNull<rxe_mr>);

impl FoundMr {
    fn at(device: &Device, index: u32) -> Option<Self> {
        if !is_ours(device) {
            return None;
        }
        // SAFETY: The device belongs to rxe.
        let raw = unsafe { bindings::ib_mkey_rxe_get_mr(device.as_raw(), index) };
        // INVARIANT: The reference was taken above.
        NonNull::new(raw).map(Self)
    }

    /// Returns the MR with the reference, which the caller must drop.
    fn into_raw(self) -> NonNull<rxe_mr> {
        ManuallyDrop::new(self).0
    }
}

impl Drop for FoundMr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_mkey_rxe_put_mr(self.0.as_ptr()) };
    }
}

/// The MR that an lkey names, with the state and the access flags that it had.
struct Valid {
    found: FoundMr,
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
    let found = FoundMr::at(pd.device(), mr_key::index(lkey)).ok_or(ENOENT)?;
    let mr = found.mr();
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
    // reference of `found`.
    if !pd.is_kernels() && !unsafe { mr.is_committed() } {
        return Err(ENOENT);
    }
    Ok(Valid {
        found,
        state,
        access,
    })
}

impl FoundMr {
    fn mr(&self) -> &RxeMr {
        // SAFETY: By the type invariant.
        unsafe { RxeMr::from_raw(self.0.as_ptr()) }
    }
}

/// Implements [`Backend::read_now`](crate::backend::interface::Backend::read_now).
pub(super) fn read_now(
    held: &NoDereg<'_>,
    lkey: u32,
    pd: &Pd,
    addr: u64,
    to: &mut [u8],
) -> Result<bool> {
    let Valid { found, .. } = valid(held, lkey, pd)?;
    let range = found.mr().range();
    if found.mr().kind() != TYPE_USER {
        return Ok(false);
    }
    // SAFETY: The MR is over user memory. `held` keeps it from being deregistered.
    let base = unsafe { Base::with_reference(found.into_raw()) };
    if base.is_on_demand() {
        return Ok(false);
    }
    let length = to.len() as u64;
    if !range.contains(addr, length) {
        return Err(ERANGE);
    }
    base.allows(pd.as_raw() as usize, lkey, range.start, false)?;
    base.copy_row(Row::of(0, addr, length), Payload::reading(to)?)?;
    Ok(true)
}

/// Implements [`Backend::find`](crate::backend::interface::Backend::find).
///
/// # Safety
///
/// The errors of that function.
pub(super) unsafe fn find<'a>(
    held: &'a NoDereg<'_>,
    lkey: u32,
    pd: &Pd,
) -> Result<LookedUp<'a, Base, ClaimedRxeMr>> {
    let Valid {
        found,
        state,
        access,
    } = valid(held, lkey, pd)?;
    let MrRange { start, len } = found.mr().range();
    Ok(match found.mr().kind() {
        TYPE_USER => LookedUp::Memory {
            // SAFETY: The MR is over user memory. By the safety requirement it stays.
            base: unsafe { Base::with_reference(found.into_raw()) },
            start,
            len,
            access,
        },
        // A kernel user's MR. It has no bytes while it is not registered.
        TYPE_MEM_REG if pd.is_kernels() => LookedUp::Memory {
            // SAFETY: A kernel user mapped the pages, and maps no others while the MR is
            // pinned: see `MkeyDevice::may_map()`.
            base: unsafe { Base::with_reference(found.into_raw()) },
            start,
            len: if state == VALID { len } else { 0 },
            access,
        },
        // The MR of all memory, whose addresses are kernel addresses. Only protection domains
        // of kernel users contain it.
        TYPE_DMA => LookedUp::Memory {
            // SAFETY: The MR is over all memory. By the safety requirement it stays.
            base: unsafe { Base::with_reference(found.into_raw()) },
            start: 0,
            len: u64::MAX,
            access,
        },
        TYPE_SG_GAPS | TYPE_DM => {
            // SAFETY: The types show that the MR is claimed. `held` keeps it from being suspended,
            // and rxe from deregistering it.
            LookedUp::Own(unsafe { ClaimedRxeMr::from_raw(found.mr().private()) })
        }
        _ => LookedUp::Unfit,
    })
}
