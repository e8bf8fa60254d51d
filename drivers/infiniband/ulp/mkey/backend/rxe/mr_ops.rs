// SPDX-License-Identifier: GPL-2.0

//! The operations that rxe calls for MRs of this module, and for windows over them.
//!
//! `provider.c` has the table of these operations. rxe calls them in its workqueue, without locks,
//! and holds a reference to the MR.

use super::{
    base::state_of,
    bindings::{
        self, resp_states, rxe_bind_mw, rxe_mr, rxe_mr_copy_dir,
        rxe_mr_copy_dir_RXE_TO_MR_OBJ as TO_MEMORY, rxe_odp_stats, rxe_qp,
    },
    Claimed,
};
use crate::{
    access::{
        self, bind, prefetch,
        refused::Asked,
        window::{self, BoundWindow},
    },
    backend::{Direction, Payload},
    bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
    kernel_ext::{
        export_c::{export_c, opaque, FromC, Given},
        rdma::{mr::Right, Access, Pd},
    },
    region::{
        binding::Binding,
        rights::{Origin, Peer},
    },
};
use core::{ptr::NonNull, slice};
use kernel::{
    ffi::{c_int, c_uint, c_void},
    prelude::*,
    types::Opaque,
};

// SAFETY: The pointer is to an MR that has the table, so it is claimed. rxe holds a reference to
// it.
unsafe impl FromC for &Claimed {
    type C = *mut rxe_mr;
}

opaque!(bindings::ib_mkey_window, BoundWindow);

/// A QP that serves a peer.
#[repr(transparent)]
pub(super) struct Serving(Opaque<rxe_qp>);

// SAFETY: The pointer is NULL, or to a QP whose task makes the call.
unsafe impl FromC for Option<&Serving> {
    type C = *mut rxe_qp;
}

impl Serving {
    /// Returns the peer, and its request, which copies in the direction `dir`.
    fn peer(&self, dir: rxe_mr_copy_dir) -> Peer {
        // SAFETY: The task of the QP runs this.
        let peer = unsafe { bindings::ib_mkey_rxe_peer_of(self.0.get(), dir) };
        Peer {
            pd: peer.pd as usize,
            rkey: peer.rkey,
            window: peer.by_window.then(|| Access::from_raw(peer.access as u32)),
        }
    }
}

export_c! {
    in super::bindings;

    // Compares with the range that was published last. The evaluator checks the range again when it
    // copies bytes. rxe calls `ib_mkey_rxe_refused()` after a failure.
    fn ib_mkey_rxe_check_range(mr: &Claimed, iova: u64, length: usize) -> Result {
        let inside = if mr.is_fast_reg() {
            access::is_registered(mr, iova, length as u64)
        } else {
            mr.published()
                .is_some_and(|range| range.contains(iova, length as u64))
        };
        if inside {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    // rxe has refused an access by a QP in `pd`, which named the MR by `key`.
    fn ib_mkey_rxe_refused(
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        access: c_int,
        iova: u64,
        length: u64,
        remote: bool,
    ) -> () {
        let peer = Peer {
            pd: pd.as_raw() as usize,
            rkey: key,
            window: None,
        };
        let asked = Asked {
            addr: iova,
            len: length,
            needed: Access::from_raw(access as u32),
            remote,
            peer: Some(&peer),
        };
        access::refused_by_driver(mr, asked);
    }

    // Copies between the MR and the bytes of a packet, of which there is one at least. The reason of
    // an error was recorded. rxe completes a request with a protection error for `EFAULT` only.
    fn ib_mkey_rxe_copy(
        mr: &Claimed,
        iova: u64,
        addr: *mut c_void,
        length: u32,
        dir: rxe_mr_copy_dir,
        qp: Option<&Serving>,
    ) -> Result {
        let direction = if dir == TO_MEMORY {
            Direction::ToMemory
        } else {
            Direction::FromMemory
        };
        // SAFETY: rxe gives `length` bytes of a packet, and does not use them before this returns.
        let payload = unsafe { Payload::new(addr.cast(), length, direction) };
        let peer = qp.map(|qp| qp.peer(dir));
        access::copy(mr, iova, payload, peer.as_ref()).map_err(|_| EFAULT)
    }

    // Does an atomic operation with its result in `orig_val`. Returns a state of rxe's responder.
    fn ib_mkey_rxe_atomic_op(
        mr: &Claimed,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        orig_val: &mut u64,
        qp: Option<&Serving>,
    ) -> resp_states {
        let operation =
            |binding: &Binding, at| binding.atomic_op(at, opcode, compare, swap_add, orig_val);
        let done = qp.ok_or(EINVAL).and_then(|qp| {
            let peer = qp.peer(TO_MEMORY);
            access::atomic_op(mr, iova, &peer, Right::RemoteAtomic, operation)
        });
        state_of(done)
    }

    // Writes a word. Returns a state of rxe's responder.
    fn ib_mkey_rxe_atomic_write(
        mr: &Claimed,
        iova: u64,
        value: u64,
        qp: Option<&Serving>,
    ) -> resp_states {
        let write = |binding: &Binding, at| binding.atomic_write(at, value);
        let done = qp.ok_or(EINVAL).and_then(|qp| {
            let peer = qp.peer(TO_MEMORY);
            access::atomic_op(mr, iova, &peer, Right::RemoteWrite, write)
        });
        state_of(done)
    }

    // Makes bytes persistent. Sleeps.
    fn ib_mkey_rxe_flush(
        mr: &Claimed,
        iova: u64,
        length: u64,
        qp: Option<&Serving>,
    ) -> Result {
        if length == 0 {
            return Ok(());
        }
        let peer = qp.ok_or(EACCES)?.peer(TO_MEMORY);
        access::flush(mr, iova, length, &peer)
    }

    // Follows an advice of `ibv_advise_mr()` for the memory of the leaves. Sleeps.
    fn ib_mkey_rxe_prefetch(
        mr: &Claimed,
        iova: u64,
        length: u64,
        advice: u32,
        wait: bool,
    ) -> Result {
        let writes = advice == PREFETCH_WRITE;
        prefetch::prefetch(mr, (iova, length), writes, wait, |leaf, iova, length| {
            leaf.prefetch(iova, length, advice, wait)
        })
    }

    // Adds the page faults of the leaves to `stats`.
    fn ib_mkey_rxe_odp_stats(mr: &Claimed, stats: &mut rxe_odp_stats) -> Result {
        if prefetch::add_odp_stats(mr, stats) {
            Ok(())
        } else {
            Err(ENOENT)
        }
    }

    // LOCAL_INV, and SEND with invalidate of a peer if `remote`. Sleeps.
    fn ib_mkey_rxe_invalidate_mr(mr: &Claimed, pd: &Pd, key: u32, remote: bool) -> Result {
        let origin = if remote {
            Origin::Remote
        } else {
            Origin::Local
        };
        access::invalidate(mr, pd, key, origin)
    }

    // REG_MR of a kernel QP, for an MR for fast registration.
    fn ib_mkey_rxe_reg_fast_mr(mr: &Claimed, pd: &Pd, key: u32, access: c_int) -> Result {
        access::register(mr, pd, key, Access::from_raw(access as u32))
    }

    // REG_MR of a kernel QP, for a key. If `oldest`, all earlier requests of the QP have completed.
    // Otherwise the key is not bound, and another attempt follows after a failure. Sleeps.
    fn ib_mkey_rxe_reg_mkey(
        mr: &Claimed,
        pd: &Pd,
        key: u32,
        access: c_int,
        oldest: bool,
    ) -> Result {
        bind::bind_staged(mr, pd, key, access as u32, oldest)
    }

    // BIND_MW that names a key. Sleeps.
    fn ib_mkey_rxe_bind_mkey(
        mr: &Claimed,
        pd: &Pd,
        bind: &Given<rxe_bind_mw>,
        data: *mut c_void,
        length: c_uint,
    ) -> Result {
        const SHORT: usize = bindings::IB_MKEY_RXE_SHORT as usize;
        let (data, none) = (data.cast::<u8>(), NonNull::dangling().as_ptr());
        let (inline, buffer) = match bind.length {
            0 => ((data, length as usize), (none, 0)),
            _ => ((none, 0), (data, SHORT)),
        };
        // SAFETY: C passes memory on its stack. It has a copy of the `length` bytes of inline data,
        // or else `SHORT` zeros.
        let (inline, buffer): (&[u8], _) = unsafe {
            (
                slice::from_raw_parts(inline.0, inline.1),
                slice::from_raw_parts_mut(buffer.0, buffer.1),
            )
        };
        let request = bind::KeyRequest {
            rkey: bind.mw_rkey,
            new_key: bind.rkey,
            lkey: bind.mr_lkey,
            addr: bind.addr,
            length: bind.length,
            access: bind.access,
            inline,
        };
        bind::bind(mr, pd, &request, buffer)
    }

    // BIND_MW that binds a window to an MR of this module.
    fn ib_mkey_rxe_bind_mw(
        mr: &Claimed,
        pd: &Pd,
        bind: &Given<rxe_bind_mw>,
    ) -> Result<Pin<KBox<BoundWindow>>> {
        let request = window::WindowRequest {
            lkey: bind.mr_lkey,
            addr: bind.addr,
            length: bind.length,
            access: Access::from_raw(bind.access),
        };
        window::bind(mr, pd, &request)
    }

    // The window and all accesses through it have left the MR. Sleeps.
    fn ib_mkey_rxe_unbind_mw(window: Pin<KBox<BoundWindow>>) -> () {
        drop(window);
    }
}
