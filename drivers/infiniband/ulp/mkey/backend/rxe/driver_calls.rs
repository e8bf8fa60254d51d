// SPDX-License-Identifier: GPL-2.0

//! Calls of stock rxe as its own workers make them. The self-test uses them.
//!
//! rxe's requester and completer call `copy_data()`. The functions that take a QP read three of its
//! fields; the test gives them a QP that has only these fields.

use super::{
    bindings::{
        self, ib_mkey_rxe_part, ib_mkey_rxe_peer, resp_states_RESPST_NONE, rxe_mr_copy_dir,
        rxe_mr_copy_dir_RXE_FROM_MR_OBJ, rxe_mr_copy_dir_RXE_TO_MR_OBJ, rxe_qp,
    },
    device::is_rxe,
    replacements::{ib_mkey_rxe_atomic_op, ib_mkey_rxe_atomic_write, ib_mkey_rxe_flush},
    replacements_copy::ib_mkey_rxe_copy_peer,
    Base, ClaimedRxeMr, Rxe,
};
use crate::{
    backend::interface::{ClaimedMr, DriverCalls},
    bindings::ib_qp,
    kernel_ext::rdma::{mr::Right, Access, Pd},
};
use core::{mem::size_of, ptr};
use kernel::{error::to_result, ffi::c_int, prelude::*};

/// The fetch-and-add of rxe's responder, `IB_OPCODE_RC_FETCH_ADD`.
const FETCH_ADD: c_int = crate::bindings::IB_OPCODE_RC_FETCH_ADD as c_int;

/// Checks that a protection domain is of an rxe device.
fn check(pd: &Pd) -> Result {
    if is_rxe(pd.device()) {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

fn direction(write: bool) -> rxe_mr_copy_dir {
    if write {
        rxe_mr_copy_dir_RXE_TO_MR_OBJ
    } else {
        rxe_mr_copy_dir_RXE_FROM_MR_OBJ
    }
}

/// Returns the error in a state of the responder.
fn state_result(state: c_int) -> Result {
    if state == resp_states_RESPST_NONE as c_int {
        Ok(())
    } else {
        Err(EACCES)
    }
}

impl DriverCalls for Rxe {
    fn copy_sge(&self, pd: &Pd, lkey: u32, iova: u64, packet: &mut [u8], write: bool) -> Result {
        let access = if write {
            Access::from(Right::LocalWrite)
        } else {
            Access::empty()
        };
        check(pd)?;
        // SAFETY: The packet has as many bytes as are copied; the domain is of an rxe device.
        to_result(unsafe {
            bindings::ib_mkey_rxe_stock_copy_data(
                pd.as_raw(),
                access.into_raw() as c_int,
                lkey,
                iova,
                packet.as_mut_ptr().cast(),
                c_int::try_from(packet.len())?,
                direction(write),
            )
        })
    }

    fn check_range(&self, mr: &ClaimedRxeMr, iova: u64, length: usize) -> Result {
        // SAFETY: The MR is valid.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_check_range(mr.private(), iova, length) })
    }

    fn copy(&self, mr: &ClaimedRxeMr, iova: u64, packet: &mut [u8], write: bool) -> Result {
        // SAFETY: The MR is valid; the packet has as many bytes as are copied.
        to_result(unsafe {
            bindings::ib_mkey_rxe_stock_copy(
                mr.private(),
                iova,
                packet.as_mut_ptr().cast(),
                u32::try_from(packet.len())?,
                direction(write),
            )
        })
    }

    fn fetch_add(&self, mr: &ClaimedRxeMr, iova: u64, add: u64) -> Result<u64> {
        let mut original = 0;
        // SAFETY: The MR is valid; `original` is a place for a word.
        state_result(unsafe {
            bindings::ib_mkey_rxe_test_atomic_op(
                mr.private(),
                iova,
                FETCH_ADD,
                0,
                add,
                &mut original,
            )
        })?;
        Ok(original)
    }

    fn atomic_write(&self, mr: &ClaimedRxeMr, iova: u64, value: u64) -> Result {
        // SAFETY: The MR is valid.
        state_result(unsafe { bindings::ib_mkey_rxe_test_atomic_write(mr.private(), iova, value) })
    }

    fn flush(&self, mr: &ClaimedRxeMr, iova: u64, length: u32) -> Result {
        // SAFETY: The MR is valid.
        to_result(unsafe { bindings::ib_mkey_rxe_test_flush(mr.private(), iova, length) })
    }

    fn refuses_unknown(&self, mr: &ClaimedRxeMr) -> Result<bool> {
        let (mr, unknown, mut original) = (mr.private(), ptr::null(), 0);
        // SAFETY: The MR is valid, and is one of this module; `original` is a place for a word.
        let atomic =
            unsafe { ib_mkey_rxe_atomic_op(mr, 0, FETCH_ADD, 0, 1, &mut original, unknown) };
        // SAFETY: As above.
        let write = unsafe { ib_mkey_rxe_atomic_write(mr, 0, 1, unknown) };
        // SAFETY: As above.
        let flush = unsafe { ib_mkey_rxe_flush(mr, 0, 1, unknown) };
        let refused = atomic == Base::DENIED && write == Base::DENIED;
        Ok(refused && flush == EACCES.to_errno())
    }

    fn refuses_foreign(&self, mr: &ClaimedRxeMr, iova: u64) -> Result<bool> {
        // These functions read no other field of a QP than the protection domain, which is null.
        let mut qp = KBox::new([0u64; size_of::<ib_qp>() / size_of::<u64>()], GFP_KERNEL)?;
        let (qp, rkey) = (qp.as_mut_ptr().cast::<rxe_qp>(), mr.key());
        let (mr, mut word) = (mr.private(), 1u64);
        let (packet, peer) = (
            (&raw mut word).cast(),
            &ib_mkey_rxe_peer {
                pd: ptr::null_mut(),
                qp,
                rkey,
            },
        );
        let part = ib_mkey_rxe_part {
            length: size_of::<u64>() as u32,
            dir: rxe_mr_copy_dir_RXE_TO_MR_OBJ,
        };
        // SAFETY: The MR is valid, and is one of this module. The packet is `word`, and the memory
        // at `qp` has the size of an `ib_qp`.
        let copied = unsafe { ib_mkey_rxe_copy_peer(mr, iova, packet, part, qp, rkey) };
        // SAFETY: The MR is as above; `word` is a place for a word.
        let atomic = unsafe { ib_mkey_rxe_atomic_op(mr, iova, FETCH_ADD, 0, 1, &mut word, peer) };
        // SAFETY: As above.
        let write = unsafe { ib_mkey_rxe_atomic_write(mr, iova, 1, peer) };
        let refused = atomic == Base::DENIED && write == Base::DENIED;
        Ok(refused && copied == EACCES.to_errno())
    }

    fn reg_mr(&self, mr: &ClaimedRxeMr, iova: u64, key: u32, access: Access) -> Result {
        mr.set_start(iova);
        // SAFETY: The MR is valid.
        to_result(unsafe {
            let access = access.into_raw() as c_int;
            bindings::ib_mkey_rxe_stock_reg_fast_mr(mr.as_raw(), key, access)
        })
    }

    fn send_with_invalidate(&self, pd: &Pd, key: u32) -> Result {
        check(pd)?;
        // SAFETY: The domain is of an rxe device.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mr(pd.as_raw(), key) })
    }
}
