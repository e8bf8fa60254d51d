// SPDX-License-Identifier: GPL-2.0

//! Completion queues and reliable queue pairs.

use super::{Access, Bound, DevicePd, HeldDevice, LeafBlock, Mkey, Right, Staged, Unbound};
use crate::{
    bindings,
    kernel_ext::rdma::{Device, Pd},
};
use core::ptr::{self, NonNull};
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
        let mut wc: bindings::ib_wc = pin_init::zeroed();
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
    /// Makes a status of `enum ib_wc_status`.
    pub(super) const fn from_raw(status: bindings::ib_wc_status) -> Self {
        Self(status)
    }

    /// The request succeeded.
    pub(crate) const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);
    /// A key could not be bound.
    pub(crate) const BIND: Self = Self(bindings::ib_wc_status_IB_WC_MW_BIND_ERR);
    /// The remote side does not allow the access.
    pub(crate) const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
}

/// The local side of a transfer.
pub(crate) enum Local<'a> {
    /// Memory, in a block without strides.
    Memory(LeafBlock),
    /// The first bytes of a key.
    Key(&'a Mkey<Bound>, u32),
}

impl Local<'_> {
    /// Returns the local side for a queue pair of `pd`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for memory of another domain or device, `ERANGE` for bytes outside host memory.
    fn sge(&self, pd: &Pd) -> Result<bindings::ib_sge> {
        match self {
            Self::Memory(block) => block.sge(pd),
            Self::Key(key, length) => {
                check_domain(key, pd)?;
                Ok(bindings::ib_sge {
                    addr: key.base(),
                    length: *length,
                    lkey: key.mr().lkey(),
                })
            }
        }
    }
}

/// Refuses a key of another protection domain, because its rkey may name another key on the device
/// of a queue pair.
fn check_domain<State>(key: &Mkey<State>, pd: &Pd) -> Result {
    ptr::eq(key.mr().pd(), pd).then_some(()).ok_or(EINVAL)
}

/// The remote side of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    /// The address. For device memory it is an offset.
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

/// A key that a request has bound, or the status of the request and the unbound key.
pub(crate) type BindResult = core::result::Result<Mkey<Bound>, (Status, Mkey<Unbound>)>;

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
    /// Makes a queue pair for one request at a time.
    pub(crate) fn new(pd: &Arc<DevicePd>, cq: Cq) -> Result<Self> {
        let mut init: bindings::ib_qp_init_attr = pin_init::zeroed();
        init.send_cq = cq.raw.as_ptr();
        init.recv_cq = cq.raw.as_ptr();
        init.cap.max_send_wr = 1;
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
        let (gid_a, gid_b) = (roce_gid(a.pd.device())?, roce_gid(b.pd.device())?);
        a.connect_to(gid_a.1, gid_b.0, b)?;
        b.connect_to(gid_b.1, gid_a.0, a)
    }

    /// Does `work`, waits for its completion and returns the status.
    ///
    /// # Errors
    ///
    /// The errors of a [`Local`] of another protection domain or device, or outside its memory;
    /// `ETIMEDOUT`; the errors of posting.
    pub(crate) fn execute(
        &mut self,
        work: Work,
        local: &Local<'_>,
        remote: Remote,
    ) -> Result<Status> {
        let mut sge = local.sge(&self.pd)?;
        let mut wr: bindings::ib_send_wr = pin_init::zeroed();
        wr.sg_list = &mut sge;
        wr.num_sge = 1;
        let Remote { addr, rkey } = remote;
        if let Work::FetchAdd(add) = work {
            wr.opcode = bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD;
            let mut atomic = bindings::ib_atomic_wr {
                wr,
                remote_addr: addr,
                rkey,
                compare_add: add,
                ..pin_init::zeroed()
            };
            // SAFETY: The request is valid: `wr` is its first field. `local` borrows or holds the
            // memory.
            return unsafe { self.run((&raw mut atomic).cast()) };
        }
        wr.opcode = match work {
            Work::Write => bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
            _ => bindings::ib_wr_opcode_IB_WR_RDMA_READ,
        };
        let mut rdma = bindings::ib_rdma_wr {
            wr,
            remote_addr: addr,
            rkey,
        };
        // SAFETY: The request is valid: `wr` is its first field. `local` borrows or holds the
        // memory.
        unsafe { self.run((&raw mut rdma).cast()) }
    }

    /// Binds `key` to its staged layout, with the access flags `access`: REG_MR. If the status is
    /// not [`Status::SUCCESS`], the key is unbound.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a key of another protection domain, `ETIMEDOUT`; the errors of posting. The key
    /// is dropped then.
    pub(crate) fn bind(&mut self, key: Mkey<Staged>, access: Access) -> Result<BindResult> {
        check_domain(&key, &self.pd)?;
        let mut bind = bindings::ib_reg_wr {
            mr: key.mr().as_raw(),
            key: key.rkey(),
            access: access.into_raw() as c_int,
            ..pin_init::zeroed()
        };
        bind.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        // SAFETY: The request is valid: `wr` is its first field. The key is valid, too.
        let status = unsafe { self.run((&raw mut bind).cast()) }?;
        if status == Status::SUCCESS {
            Ok(Ok(key.into_bound()))
        } else {
            Ok(Err((status, key.unstage()?)))
        }
    }

    /// Unbinds `key`: LOCAL_INV. When this returns, no access to the leaves through the key is in
    /// progress. If the request fails, a call unbinds the key.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::bind`].
    pub(crate) fn unbind(&mut self, key: Mkey<Bound>) -> Result<(Status, Mkey<Unbound>)> {
        check_domain(&key, &self.pd)?;
        let mut unbind: bindings::ib_send_wr = pin_init::zeroed();
        unbind.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        // The union has one field, which is named otherwise.
        unbind.ex.bindgen_union_field = key.rkey();
        // SAFETY: The request is valid, and so is the key.
        let status = unsafe { self.run(&mut unbind) }?;
        if status == Status::SUCCESS {
            Ok((status, key.into_unbound()))
        } else {
            Ok((status, key.unbind()?))
        }
    }

    /// Posts a request, waits for its completion and returns the status.
    ///
    /// # Safety
    ///
    /// The request, and the memory and the key that it names, must be valid until this returns.
    unsafe fn run(&mut self, request: *mut bindings::ib_send_wr) -> Result<Status> {
        // SAFETY: By the safety requirement. Posting copies the request.
        to_result(unsafe { bindings::ib_post_send(self.raw.as_ptr(), request, ptr::null_mut()) })?;
        self.complete()
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
                if let Err(error) = self.modify(bindings::ib_qp_state_IB_QPS_ERR, 0, |_| ()) {
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
        let mut attr: bindings::ib_qp_attr = pin_init::zeroed();
        attr.qp_state = state;
        fill(&mut attr);
        let mask = mask | bindings::ib_qp_attr_mask_IB_QP_STATE;
        // SAFETY: The queue pair and the attributes are valid.
        to_result(unsafe { bindings::ib_modify_qp(self.raw.as_ptr(), &mut attr, mask as c_int) })
    }

    /// Resets the queue pair and connects it to `peer`, which has the address `gid`.
    fn connect_to(&mut self, sgid_index: u8, gid: bindings::ib_gid, peer: &Self) -> Result {
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

        self.modify(bindings::ib_qp_state_IB_QPS_RESET, 0, |_| ())?;
        let access = Access::from(Right::RemoteRead) | Right::RemoteWrite | Right::RemoteAtomic;
        let mask = PKEY_INDEX | PORT_ATTR | ACCESS_FLAGS;
        self.modify(bindings::ib_qp_state_IB_QPS_INIT, mask, |attr| {
            attr.port_num = PORT;
            attr.qp_access_flags = access.into_raw() as c_int;
        })?;

        // SAFETY: The queue pair is valid; its number is set when it is made.
        let dest_qp_num = unsafe { (*peer.raw.as_ptr()).qp_num };
        let mask = AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC_ATTR | MIN_RNR_TIMER;
        self.modify(bindings::ib_qp_state_IB_QPS_RTR, mask, |attr| {
            attr.path_mtu = bindings::ib_mtu_IB_MTU_1024;
            attr.dest_qp_num = dest_qp_num;
            attr.max_dest_rd_atomic = MAX_RD_ATOMIC;
            attr.min_rnr_timer = 12;
            attr.ah_attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
            attr.ah_attr.port_num = PORT;
            attr.ah_attr.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            attr.ah_attr.grh.dgid = gid;
            attr.ah_attr.grh.sgid_index = sgid_index;
            attr.ah_attr.grh.hop_limit = 64;
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

/// Returns the newest RoCE v2 address and its index. It belongs to an address that was assigned to
/// the interface.
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
