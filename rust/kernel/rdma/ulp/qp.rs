// SPDX-License-Identifier: GPL-2.0

//! Completion queues and reliable queue pairs.

mod request;

use super::{Access, Bound, Device, DevicePd, DmRegion, HeldDevice, HostBuffer, Mkey, Right};
use crate::bindings;
use core::{mem::MaybeUninit, ptr, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    str::CStrExt,
    sync::Arc,
    time::{delay::fsleep, Delta, Instant, Monotonic},
};

/// The port of all queue pairs.
const PORT: u32 = 1;
/// The number of READs and atomics that may be outstanding.
const MAX_RD_ATOMIC: u8 = 4;
/// The most requests of one method: bind a key, use it, unbind it.
const DEPTH: u32 = 3;
/// The longest time that a request may take.
const REQUEST_TIMEOUT: Delta = Delta::from_secs(20);

/// A completion queue that is polled.
///
/// # Invariants
///
/// The pointer came from `__ib_alloc_cq()` of `_device`, and only this frees it.
pub(crate) struct Cq {
    raw: NonNull<bindings::ib_cq>,
    _device: HeldDevice,
}

// SAFETY: A completion queue may be used from any thread.
unsafe impl Send for Cq {}

impl Cq {
    /// Makes a queue for `entries` completions.
    pub(crate) fn new(device: &HeldDevice, entries: u16) -> Result<Self> {
        // SAFETY: The device is registered, the name a C string.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device.as_raw(),
                ptr::null_mut(),
                entries.into(),
                0,
                bindings::ib_poll_context_IB_POLL_DIRECT,
                super::NAME.as_char_ptr(),
            )
        })?;
        // INVARIANT: Allocated above.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _device: device.clone(),
        })
    }

    /// Returns the next completion, if there is one.
    fn poll(&mut self) -> Option<Status> {
        // SAFETY: All-zero is a valid `ib_wc`: null pointers and integers.
        let mut wc: bindings::ib_wc = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: The queue is valid, and there is room for one.
        let n = unsafe { bindings::ib_poll_cq(self.raw.as_ptr(), 1, &mut wc) };
        (n == 1).then_some(Status(wc.status))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. A queue pair owns its completion queue and is destroyed
        // before it.
        unsafe { bindings::ib_free_cq(self.raw.as_ptr()) };
    }
}

/// The status of a completed work request, `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(bindings::ib_wc_status);

impl Status {
    /// The request succeeded.
    pub(crate) const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);
    /// A key could not be bound.
    pub(crate) const BIND: Self = Self(bindings::ib_wc_status_IB_WC_MW_BIND_ERR);
    /// The remote side does not allow the access.
    pub(crate) const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
}

/// The local side of a transfer: consecutive addresses of memory that is held.
#[derive(Clone, Copy)]
pub(crate) struct Local<'a> {
    addr: u64,
    len: u32,
    key: LocalKey<'a>,
}

#[derive(Clone, Copy)]
enum LocalKey<'a> {
    /// The local DMA lkey of this device.
    Dma(&'a HeldDevice),
    /// The lkey of a memory region that is held, in this protection domain.
    Region(u32, &'a DevicePd),
}

impl<'a> Local<'a> {
    /// Makes the local side of a part of a buffer.
    ///
    /// # Errors
    ///
    /// `ERANGE` if the part is outside the buffer.
    pub(crate) fn host(buffer: &'a HostBuffer, offset: usize, len: u32) -> Result<Self> {
        let end = offset.checked_add(len as usize).ok_or(ERANGE)?;
        if end > buffer.len() {
            return Err(ERANGE);
        }
        Ok(Self {
            addr: buffer.addr() + offset as u64,
            len,
            key: LocalKey::Dma(buffer.device()),
        })
    }

    /// Makes the local side of a part of device memory.
    pub(crate) fn dm(region: &'a DmRegion, offset: u64, len: u32) -> Self {
        Self {
            addr: offset,
            len,
            key: LocalKey::Region(region.lkey(), region.pd()),
        }
    }

    /// Makes the local side of a part of the bytes of a key.
    pub(crate) fn key(key: &'a Mkey<Bound>, offset: u64, len: u32) -> Self {
        Self {
            addr: offset,
            len,
            key: LocalKey::Region(key.lkey(), key.pd()),
        }
    }
}

/// The remote side of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    /// The address. For device memory and keys it is an offset.
    pub(crate) addr: u64,
    /// The rkey.
    pub(crate) rkey: u32,
}

/// An operation.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Write to the remote side.
    Write,
    /// Read from the remote side.
    Read,
    /// Add to the 8 bytes at the remote side. Their old value is written to the local side.
    FetchAdd(u64),
}

/// The address of a queue pair.
struct Address {
    gid: bindings::ib_gid,
    gid_index: u8,
    qpn: u32,
}

/// A reliable queue pair.
///
/// # Invariants
///
/// The pointer came from `ib_create_qp_kernel()` with `pd` and `cq`, and only this destroys it. It
/// has no outstanding work request unless one of the methods runs.
pub(crate) struct Qp {
    raw: NonNull<bindings::ib_qp>,
    // Dropping destroys the queue pair; then the fields drop in declaration order.
    cq: Cq,
    pd: Arc<DevicePd>,
}

// SAFETY: A queue pair may be used from any thread.
unsafe impl Send for Qp {}

impl Qp {
    /// Makes a queue pair for [`DEPTH`] requests at a time.
    pub(crate) fn new(pd: &Arc<DevicePd>, cq: Cq) -> Result<Self> {
        // SAFETY: All-zero is a valid `ib_qp_init_attr`: null pointers, no callback, integers.
        let mut init: bindings::ib_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        init.send_cq = cq.raw.as_ptr();
        init.recv_cq = cq.raw.as_ptr();
        init.cap.max_send_wr = DEPTH;
        init.cap.max_send_sge = 1;
        init.cap.max_recv_wr = 1;
        init.cap.max_recv_sge = 1;
        init.sq_sig_type = bindings::ib_sig_type_IB_SIGNAL_ALL_WR;
        init.qp_type = bindings::ib_qp_type_IB_QPT_RC;
        init.port_num = PORT;
        // SAFETY: The domain, the queues and the attributes are valid, the name a C string.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), &mut init, super::NAME.as_char_ptr())
        })?;
        // INVARIANT: Created above.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            cq,
            pd: pd.clone(),
        })
    }

    /// Connects two queue pairs to each other, also again after an error.
    ///
    /// # Errors
    ///
    /// `ENOENT` if a device has no RoCE v2 address; the errors of `ib_modify_qp()`.
    pub(crate) fn connect(a: &mut Self, b: &mut Self) -> Result {
        let (at_a, at_b) = (a.address()?, b.address()?);
        a.reset()?;
        b.reset()?;
        let (index_a, index_b) = (at_a.gid_index, at_b.gid_index);
        a.connect_to(index_a, at_b)?;
        b.connect_to(index_b, at_a)
    }

    /// Posts `work`, waits for its completion and returns the status.
    ///
    /// # Errors
    ///
    /// `EINVAL` for memory of another protection domain or device, `ETIMEDOUT`; the errors of
    /// posting.
    pub(crate) fn execute(
        &mut self,
        work: Work,
        local: Local<'_>,
        remote: Remote,
    ) -> Result<Status> {
        let lkey = match local.key {
            LocalKey::Region(lkey, pd) if pd.is(&self.pd) => lkey,
            LocalKey::Dma(device) if device.is(self.pd.device()) => self.pd.local_dma_lkey(),
            LocalKey::Region(..) | LocalKey::Dma(_) => return Err(EINVAL),
        };
        let mut sge = bindings::ib_sge {
            addr: local.addr,
            length: local.len,
            lkey,
        };
        self.post(work, &mut sge, remote)?;
        self.complete()
    }

    /// Refuses a key of another protection domain, because its rkey may name another key on the
    /// device of the queue pair.
    fn check_key<State>(&self, key: &Mkey<State>) -> Result {
        if key.pd().is(&self.pd) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    fn post(&mut self, work: Work, sge: &mut bindings::ib_sge, remote: Remote) -> Result {
        // SAFETY: All-zero is valid for both: null pointers and integers.
        let (mut rdma, mut atomic): (bindings::ib_rdma_wr, bindings::ib_atomic_wr) =
            unsafe { MaybeUninit::zeroed().assume_init() };
        rdma.remote_addr = remote.addr;
        rdma.rkey = remote.rkey;
        atomic.remote_addr = remote.addr;
        atomic.rkey = remote.rkey;
        let (wr, opcode) = match work {
            Work::Write => (&raw mut rdma.wr, bindings::ib_wr_opcode_IB_WR_RDMA_WRITE),
            Work::Read => (&raw mut rdma.wr, bindings::ib_wr_opcode_IB_WR_RDMA_READ),
            Work::FetchAdd(add) => {
                atomic.compare_add = add;
                let opcode = bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD;
                (&raw mut atomic.wr, opcode)
            }
        };
        // SAFETY: `wr` is the first field of the structure that the opcode takes. Posting copies
        // the structure and the scatter/gather entry.
        to_result(unsafe {
            (*wr).opcode = opcode;
            (*wr).sg_list = sge;
            (*wr).num_sge = 1;
            bindings::ib_post_send(self.raw.as_ptr(), wr, ptr::null_mut())
        })
    }

    /// Waits for the completion of the request.
    fn complete(&mut self) -> Result<Status> {
        let start = Instant::<Monotonic>::now();
        let mut in_time = true;
        loop {
            if let Some(status) = self.cq.poll() {
                return in_time.then_some(status).ok_or(ETIMEDOUT);
            }
            if in_time && start.elapsed() > REQUEST_TIMEOUT {
                in_time = false;
                // In the error state all requests complete. Until then the device may access the
                // memory, which the caller has lent only for this call.
                let error = self.modify(bindings::ib_qp_state_IB_QPS_ERR, 0, |_| ());
                if let Err(error) = error {
                    pr_err!("a queue pair cannot be stopped: {error:?}\n");
                }
            }
            fsleep(Delta::from_micros(50));
        }
    }

    /// Changes the state, and the attributes that `fill` sets and `mask` names.
    fn modify(
        &mut self,
        state: bindings::ib_qp_state,
        mask: bindings::ib_qp_attr_mask,
        fill: impl FnOnce(&mut bindings::ib_qp_attr),
    ) -> Result {
        // SAFETY: All-zero is a valid `ib_qp_attr`: null pointers and integers.
        let mut attr: bindings::ib_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.qp_state = state;
        fill(&mut attr);
        let mask = mask | bindings::ib_qp_attr_mask_IB_QP_STATE;
        // SAFETY: The queue pair and the attributes are valid.
        to_result(unsafe { bindings::ib_modify_qp(self.raw.as_ptr(), &mut attr, mask as c_int) })
    }

    /// Resets the queue pair. After a completion with an error, the queue pair enters the error
    /// state, possibly after a reset. This therefore resets it until it stays reset.
    fn reset(&mut self) -> Result {
        for _ in 0..3 {
            self.modify(bindings::ib_qp_state_IB_QPS_RESET, 0, |_| ())?;
            // SAFETY: All-zero values are valid: null pointers, absent callbacks and integers.
            let (mut now, mut init): (bindings::ib_qp_attr, bindings::ib_qp_init_attr) =
                unsafe { MaybeUninit::zeroed().assume_init() };
            let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
            // SAFETY: The queue pair and both structures are valid.
            to_result(unsafe {
                bindings::ib_query_qp(self.raw.as_ptr(), &mut now, mask, &mut init)
            })?;
            if now.qp_state == bindings::ib_qp_state_IB_QPS_RESET {
                return Ok(());
            }
        }
        Err(EBUSY)
    }

    fn connect_to(&mut self, gid_index: u8, mut peer: Address) -> Result {
        use bindings::{
            ib_qp_attr_mask_IB_QP_ACCESS_FLAGS as ACCESS_FLAGS, ib_qp_attr_mask_IB_QP_AV as AV,
            ib_qp_attr_mask_IB_QP_DEST_QPN as DEST_QPN,
            ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC as MAX_DEST_RD_ATOMIC_ATTR,
            ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC as MAX_QP_RD_ATOMIC_ATTR,
            ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER as MIN_RNR_TIMER,
            ib_qp_attr_mask_IB_QP_PATH_MTU as PATH_MTU,
            ib_qp_attr_mask_IB_QP_PKEY_INDEX as PKEY_INDEX,
            ib_qp_attr_mask_IB_QP_PORT as PORT_ATTR, ib_qp_attr_mask_IB_QP_RETRY_CNT as RETRY_CNT,
            ib_qp_attr_mask_IB_QP_RNR_RETRY as RNR_RETRY, ib_qp_attr_mask_IB_QP_RQ_PSN as RQ_PSN,
            ib_qp_attr_mask_IB_QP_SQ_PSN as SQ_PSN, ib_qp_attr_mask_IB_QP_TIMEOUT as TIMEOUT,
        };

        let rights = Access::from(Right::RemoteRead) | Right::RemoteWrite | Right::RemoteAtomic;
        let mask = PKEY_INDEX | PORT_ATTR | ACCESS_FLAGS;
        self.modify(bindings::ib_qp_state_IB_QPS_INIT, mask, |attr| {
            attr.port_num = PORT;
            attr.qp_access_flags = rights.into_raw() as c_int;
        })?;

        let mask = AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC_ATTR | MIN_RNR_TIMER;
        self.modify(bindings::ib_qp_state_IB_QPS_RTR, mask, |attr| {
            attr.path_mtu = bindings::ib_mtu_IB_MTU_1024;
            attr.dest_qp_num = peer.qpn;
            attr.max_dest_rd_atomic = MAX_RD_ATOMIC;
            attr.min_rnr_timer = 12;
            attr.ah_attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
            // SAFETY: The attributes are valid; the GID is copied.
            unsafe {
                bindings::rdma_ah_set_port_num(&mut attr.ah_attr, PORT);
                bindings::rdma_ah_set_grh(&mut attr.ah_attr, &mut peer.gid, 0, gid_index, 64, 0);
            }
        })?;

        let mask = TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC_ATTR;
        self.modify(bindings::ib_qp_state_IB_QPS_RTS, mask, |attr| {
            // 4 us << 14: 67 ms
            attr.timeout = 14;
            attr.retry_cnt = 7;
            attr.rnr_retry = 7;
            attr.max_rd_atomic = MAX_RD_ATOMIC;
        })
    }

    fn address(&self) -> Result<Address> {
        let (gid, gid_index) = roce_gid(self.pd.device())?;
        Ok(Address {
            gid,
            gid_index,
            // SAFETY: The queue pair is valid; its number is set when it is made.
            qpn: unsafe { (*self.raw.as_ptr()).qp_num },
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let ret = unsafe { bindings::ib_destroy_qp_user(self.raw.as_ptr(), ptr::null_mut()) };
        if ret != 0 {
            pr_err!("a queue pair cannot be destroyed: error {ret}\n");
        }
    }
}

/// Returns the newest RoCE v2 address. It belongs to an address that was assigned to the interface.
fn roce_gid(device: &Device) -> Result<(bindings::ib_gid, u8)> {
    let mut found = Err(ENOENT);
    for index in 0..=u8::MAX {
        // SAFETY: The device is registered.
        let attr = unsafe { bindings::rdma_get_gid_attr(device.as_raw(), PORT, index.into()) };
        match from_err_ptr(attr.cast_mut()) {
            // SAFETY: `attr` holds a reference until it is put.
            Ok(attr) => unsafe {
                if (*attr).gid_type == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP {
                    found = Ok((ptr::read(&raw const (*attr).gid), index));
                }
                bindings::rdma_put_gid_attr(attr);
            },
            // `EINVAL` is the end of the table, `ENODATA` an empty entry.
            Err(EINVAL) => break,
            Err(_) => (),
        }
    }
    found
}
