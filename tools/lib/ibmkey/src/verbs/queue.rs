// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A reliable connection over RoCE that runs one request at a time.

use core::{
    ffi::CStr,
    fmt,
    marker::PhantomData,
    mem::size_of,
    ptr::NonNull,
    time::Duration, //
};
use std::{
    thread::sleep,
    time::Instant, //
};

use super::{
    memory::Span,
    Pd, //
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    sys,
};

const PORT: u8 = 1;
/// An MTU that every port supports.
const MTU: sys::ibv_mtu = sys::IBV_MTU_1024;
/// The largest number of addresses of a port that are read.
const MAX_GIDS: usize = 256;
/// The time to wait for the completion of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// The request could not be posted.
    Refused(Errno),
    /// The request completed with this status.
    Status(String),
    /// The request did not complete.
    Silence,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errno) => errno.fmt(f),
            Self::Status(status) => f.write_str(status),
            Self::Silence => write!(f, "nothing completed for {} s", PATIENCE.as_secs()),
        }
    }
}

impl core::error::Error for Failure {}

/// The address of one side of a connection. The other side needs it to connect.
#[derive(Clone, Copy)]
pub struct Address {
    gid: sys::ibv_gid,
    qp_num: u32,
}

/// One end of a connection.
///
/// # Invariants
///
/// `qp` is a queue pair that completes to `cq`. Only this object destroys them, posts
/// to the queue pair and polls the completion queue.
pub struct Queue<'a> {
    cq: NonNull<sys::ibv_cq>,
    qp: NonNull<sys::ibv_qp>,
    gid: sys::ibv_gid_entry,
    pd: PhantomData<&'a Pd<'a>>,
}

impl<'a> Queue<'a> {
    /// Makes an unconnected queue.
    pub fn new(pd: &'a Pd<'_>) -> Result<Self> {
        let gid = find_gid(pd)?;
        // SAFETY: The context is open, and there is no completion channel.
        let cq = unsafe {
            sys::ibv_create_cq(
                pd.context(),
                2,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                0,
            )
        };
        let cq = NonNull::new(cq).ok_or_else(Errno::last)?;
        let mut init = sys::ibv_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            qp_type: sys::IBV_QPT_RC,
            cap: sys::ibv_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            ..Default::default()
        };

        // SAFETY: The protection domain exists during `'a`, and the attributes are valid.
        let qp = unsafe { sys::ibv_create_qp(pd.as_raw(), &mut init) };
        let Some(qp) = NonNull::new(qp) else {
            let errno = Errno::last();
            // SAFETY: The completion queue was created above, and nothing uses it.
            unsafe { sys::ibv_destroy_cq(cq.as_ptr()) };
            return Err(errno);
        };
        // INVARIANT: Both queues were created above, so there is no other owner.
        Ok(Self {
            cq,
            qp,
            gid,
            pd: PhantomData,
        })
    }

    /// Returns the address for the other side.
    pub fn address(&self) -> Address {
        Address {
            gid: self.gid.gid,
            // SAFETY: By the type's invariant; the field is never written.
            qp_num: unsafe { (*self.qp.as_ptr()).qp_num },
        }
    }

    /// Connects the queue. The peer may access memory as far as both `access` and the memory's
    /// access flags allow.
    pub fn connect(&mut self, peer: &Address, access: u32) -> Result {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            port_num: PORT,
            qp_access_flags: access,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS,
        )?;

        attr.qp_state = sys::IBV_QPS_RTR;
        attr.path_mtu = MTU;
        attr.dest_qp_num = peer.qp_num;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = PORT;
        attr.ah_attr.grh.dgid = peer.gid;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.grh.sgid_index =
            u8::try_from(self.gid.gid_index).map_err(|_| Errno::EINVAL)?;
        self.modify(
            &mut attr,
            sys::IBV_QP_AV
                | sys::IBV_QP_PATH_MTU
                | sys::IBV_QP_DEST_QPN
                | sys::IBV_QP_RQ_PSN
                | sys::IBV_QP_MAX_DEST_RD_ATOMIC
                | sys::IBV_QP_MIN_RNR_TIMER,
        )?;

        attr.qp_state = sys::IBV_QPS_RTS;
        // The timeout is 4 us << 17, half a second, which is long enough even for emulated
        // machines.
        attr.timeout = 17;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        self.modify(
            &mut attr,
            sys::IBV_QP_TIMEOUT
                | sys::IBV_QP_RETRY_CNT
                | sys::IBV_QP_RNR_RETRY
                | sys::IBV_QP_SQ_PSN
                | sys::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    fn modify(&mut self, attr: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result {
        let mask = (mask | sys::IBV_QP_STATE)
            .try_into()
            .map_err(|_| Errno::EINVAL)?;

        // SAFETY: By the type's invariant; the attributes are valid.
        Errno::check(unsafe { sys::ibv_modify_qp(self.qp.as_ptr(), attr, mask) })
    }

    /// Writes `length` bytes to the other side, and waits until they are written.
    pub fn write(
        &mut self,
        from: &Span,
        to: &Span,
        length: u32,
    ) -> core::result::Result<(), Failure> {
        let mut sge = sys::ibv_sge {
            addr: from.addr,
            length,
            lkey: from.lkey,
        };
        let mut request = sys::ibv_send_wr {
            sg_list: &mut sge,
            num_sge: 1,
            opcode: sys::IBV_WR_RDMA_WRITE,
            send_flags: sys::IBV_SEND_SIGNALED,
            ..Default::default()
        };
        request.wr.rdma.remote_addr = to.addr;
        request.wr.rdma.rkey = to.rkey;

        let mut bad = core::ptr::null_mut();
        // SAFETY: By the type's invariant; each provider has this function.
        let post = unsafe { (*(*self.qp.as_ptr()).context).ops.post_send };
        let post = post.ok_or(Failure::Refused(Errno::EOPNOTSUPP))?;
        // SAFETY: By the type's invariant, and the request is valid. The device accesses the memory
        // that the request names; the MR's access flags allow or refuse that.
        Errno::check(unsafe { post(self.qp.as_ptr(), &mut request, &mut bad) })
            .map_err(Failure::Refused)?;
        self.wait()
    }

    fn wait(&mut self) -> core::result::Result<(), Failure> {
        let start = Instant::now();
        // SAFETY: By the type's invariant; each provider has this function.
        let poll = unsafe { (*(*self.cq.as_ptr()).context).ops.poll_cq };
        let poll = poll.ok_or(Failure::Refused(Errno::EOPNOTSUPP))?;

        while start.elapsed() < PATIENCE {
            let mut completion = sys::ibv_wc::default();

            // SAFETY: By the type's invariant; there is room for one completion.
            match unsafe { poll(self.cq.as_ptr(), 1, &mut completion) } {
                0 => sleep(Duration::from_micros(100)),
                1 if completion.status == sys::IBV_WC_SUCCESS => return Ok(()),
                1 => return Err(Failure::Status(status(completion.status))),
                _ => return Err(Failure::Refused(Errno::last())),
            }
        }
        Err(Failure::Silence)
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe {
            sys::ibv_destroy_qp(self.qp.as_ptr());
            sys::ibv_destroy_cq(self.cq.as_ptr());
        }
    }
}

fn status(status: sys::ibv_wc_status) -> String {
    // SAFETY: For every number the function returns a static C string.
    let text = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(status)) };

    text.to_string_lossy().into_owned()
}

/// Returns an address of the port, preferably an IPv4 one, because those exist as soon as the
/// interface is up.
fn find_gid(pd: &Pd<'_>) -> Result<sys::ibv_gid_entry> {
    let mut entries = vec![sys::ibv_gid_entry::default(); MAX_GIDS];
    // SAFETY: The context is open, and `entries` has room for as many entries as the call is told.
    let count = unsafe {
        sys::_ibv_query_gid_table(
            pd.context(),
            entries.as_mut_ptr(),
            entries.len(),
            0,
            size_of::<sys::ibv_gid_entry>(),
        )
    };
    let count = usize::try_from(count).map_err(|_| Errno::EOPNOTSUPP)?;
    let is_ipv4 = |entry: &&sys::ibv_gid_entry| {
        // SAFETY: All members of the union consist of plain bytes, so each may be read.
        let raw = unsafe { entry.gid.raw };
        raw.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
    };
    let usable = || {
        entries.iter().take(count).filter(|entry| {
            entry.port_num == PORT.into() && entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2
        })
    };

    usable()
        .find(is_ipv4)
        .or_else(|| usable().next())
        .copied()
        .ok_or(Errno::EOPNOTSUPP)
}
