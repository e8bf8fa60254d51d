// SPDX-License-Identifier: GPL-2.0

//! Connected queue pairs, and requests that own what they use until they complete.
//!
//! A request is a [`Wr`] in a box. Posting gives the box to the queue pair, and the completion
//! gives it to [`Request::done`]. So nothing that a device may access is freed or changed meanwhile.

use super::{
    cm::{Active, Connected, Endpoint, Passive},
    fast::{Pages, State},
    id::{not_connected, RawId},
    Access, DevicePd, FastMr, HostBuffer, Remote, Status,
};
use crate::{bindings, kernel_ext::thread::Wake};
use core::{marker::PhantomData, ops::Deref, ptr, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// The largest number of segments of a request.
pub(crate) const MAX_SEGMENTS: usize = 8;

/// The ULP's part of a request.
pub(crate) trait Request: Send + Sized + 'static {
    /// The data of the connection.
    type Session: Send + Sync + 'static;
    /// The owner of the pages that the request registers.
    type Pages: Pages;

    /// Called when the request has completed, or was flushed after an error. May sleep for a
    /// short time. It must not drop a [`Link`].
    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Self::Session>, done: Done);
}

/// The result of a request.
pub(crate) struct Done {
    /// The operation that was posted.
    pub(crate) op: Op,
    /// The number of bytes that a receive got, or the status of an error.
    pub(crate) result: Result<u32, Status>,
}

/// An operation.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    /// Receives a message into the segments.
    Recv,
    /// Sends the segments as a message.
    Send,
    /// Writes the segments to the remote side.
    Write(Remote),
    /// Reads from the remote side into the segments.
    Read(Remote),
    /// Registers the MR of the request, then sends the segments: REG_MR and SEND.
    RegisterAndSend(Access),
    /// Invalidates the MR of the request: LOCAL_INV.
    Invalidate,
}

/// Bytes of a buffer.
pub(crate) struct Segment {
    buffer: Arc<HostBuffer>,
    offset: usize,
    len: usize,
}

/// A request, with all that it uses.
#[repr(C)]
pub(crate) struct Wr<W: Request> {
    // First, so that the address of the request is that of its `ib_cqe`.
    cqe: bindings::ib_cqe,
    op: Op,
    segments: KVec<Segment>,
    mr: Option<FastMr<W::Pages>>,
    /// The data of the ULP.
    pub(crate) work: W,
}

impl<W: Request> Wr<W> {
    /// Makes a request without segments.
    pub(crate) fn new(work: W, mr: Option<FastMr<W::Pages>>) -> Result<KBox<Self>> {
        let wr = Self {
            cqe: bindings::ib_cqe {
                done: Some(done::<W>),
            },
            op: Op::Recv,
            segments: KVec::with_capacity(MAX_SEGMENTS, GFP_KERNEL)?,
            mr,
            work,
        };
        Ok(KBox::new(wr, GFP_KERNEL)?)
    }

    /// Removes all segments.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Adds `len` bytes from `offset` on. Does not allocate.
    ///
    /// # Errors
    ///
    /// `ERANGE` for bytes outside the buffer, `ENOSPC` for too many segments.
    pub(crate) fn add(&mut self, buffer: &Arc<HostBuffer>, offset: usize, len: usize) -> Result {
        if offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
            return Err(ERANGE);
        }
        let segment = Segment {
            buffer: buffer.clone(),
            offset,
            len,
        };
        self.segments
            .push_within_capacity(segment)
            .map_err(|_| ENOSPC)
    }

    /// Returns the MR.
    pub(crate) fn mr(&mut self) -> Option<&mut FastMr<W::Pages>> {
        self.mr.as_mut()
    }

    /// Deregisters the MR and returns its pages. Sleeps.
    pub(crate) fn into_pages(this: KBox<Self>) -> Option<W::Pages> {
        KBox::into_inner(this).mr?.into_pages()
    }
}

/// # Safety
///
/// Only `ib_core` may call this, as the `done` of a posted [`Wr<W>`] on the queue of a
/// [`Queue<W::Session>`].
unsafe extern "C" fn done<W: Request>(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: By the safety requirement. The queue pair gives the box back, which it owned since
    // the request was posted. The context is the queue pair, which outlives its queue.
    let (qp, wc, mut wr) = unsafe {
        let wc = &*wc;
        (
            &*(*cq).cq_context.cast::<Queue<W::Session>>(),
            wc,
            KBox::from_raw((*wc.__bindgen_anon_1.wr_cqe.as_ref()).cast::<Wr<W>>()),
        )
    };
    let result = match wc.status {
        bindings::ib_wc_status_IB_WC_SUCCESS => Ok(wc.byte_len),
        status => Err(Status::from_raw(status)),
    };
    let op = wr.op;
    if result.is_err() {
        qp.fail();
    } else if let (Op::Invalidate, Some(mr)) = (op, &mut wr.mr) {
        mr.state = State::Free;
    }
    W::done(wr, qp, Done { op, result });
}

/// # Safety
///
/// Only `ib_core` may call this, as the `done` of `first`.
unsafe extern "C" fn first_failed<C>(cq: *mut bindings::ib_cq, _wc: *mut bindings::ib_wc) {
    // SAFETY: The context is the queue pair, which outlives its queue. A request without a signal
    // completes only if it fails.
    unsafe { (*(*cq).cq_context.cast::<Queue<C>>()).fail() };
}

/// A request that was not posted, and the reason.
pub(crate) struct Refused<W: Request> {
    /// The request. If the device may use a part of it, there is none: it is never freed then.
    pub(crate) wr: Option<KBox<Wr<W>>>,
    /// `ENOTCONN` after an error of the connection; `EINVAL` for memory of another device, or for
    /// an MR in the wrong state; the errors of posting.
    pub(crate) error: Error,
}

/// A queue pair. All its requests complete in a workqueue.
///
/// # Invariants
///
/// `raw` is valid, and its completion queue has this as its context.
pub(crate) struct Queue<C> {
    raw: NonNull<bindings::ib_qp>,
    pd: Arc<DevicePd>,
    /// Of the first of two requests, of which the second owns both.
    first: bindings::ib_cqe,
    failed: Atomic<bool>,
    wake: Arc<Wake>,
    session: C,
}

// SAFETY: Any thread may post to a queue pair.
unsafe impl<C: Send> Send for Queue<C> {}
// SAFETY: Any thread may post to a queue pair, also several at once.
unsafe impl<C: Sync> Sync for Queue<C> {}

impl<C> Queue<C> {
    /// Returns the data of the connection.
    pub(crate) fn session(&self) -> &C {
        &self.session
    }

    /// Posts nothing any more, and tells the owner of the connection. The owner drops the link.
    pub(crate) fn fail(&self) {
        self.failed.store(true, ordering::Relaxed);
        self.wake.wake();
    }

    /// Posts a request. The queue pair owns it until it completes. Does not sleep.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub(crate) fn post<W: Request<Session = C>>(
        &self,
        mut wr: KBox<Wr<W>>,
        op: Op,
    ) -> Result<(), Refused<W>> {
        let mut sges: [bindings::ib_sge; MAX_SEGMENTS] =
            core::array::from_fn(|_| pin_init::zeroed());
        let count = match self.prepare(&wr, op, &mut sges) {
            Ok(count) => count,
            Err(error) => {
                return Err(Refused {
                    wr: Some(wr),
                    error,
                })
            }
        };
        wr.op = op;
        if let (Op::RegisterAndSend(_), Some(mr)) = (op, &mut wr.mr) {
            mr.state = State::Registered;
        }
        let key = wr.mr.as_ref().map_or(0, |mr| mr.rkey());
        let mr = wr.mr.as_ref().map_or(ptr::null_mut(), |mr| mr.as_raw());
        let owned = KBox::into_raw(wr);
        let list = sges.as_mut_ptr();

        // SAFETY: The queue pair is valid, and so are the requests: `wr` is their first field, and
        // the calls copy them. The box that was leaked has all memory that they name. `done()`
        // makes the box again.
        let (ret, posted) = unsafe {
            let cqe = &raw mut (*owned).cqe;
            if let Op::Recv = op {
                let mut recv: bindings::ib_recv_wr = pin_init::zeroed();
                *recv.__bindgen_anon_1.wr_cqe.as_mut() = cqe;
                recv.sg_list = list;
                recv.num_sge = count;
                (
                    bindings::ib_post_recv(self.raw.as_ptr(), &recv, ptr::null_mut()),
                    false,
                )
            } else {
                let mut rdma: bindings::ib_rdma_wr = pin_init::zeroed();
                let wr = &raw mut rdma.wr;
                *(*wr).__bindgen_anon_1.wr_cqe.as_mut() = cqe;
                (*wr).sg_list = list;
                (*wr).num_sge = count;
                (*wr).send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
                let mut reg: bindings::ib_reg_wr = pin_init::zeroed();
                let mut begin = wr;
                match op {
                    Op::Write(remote) | Op::Read(remote) => {
                        (*wr).opcode = match op {
                            Op::Write(_) => bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
                            _ => bindings::ib_wr_opcode_IB_WR_RDMA_READ,
                        };
                        rdma.remote_addr = remote.addr;
                        rdma.rkey = remote.rkey;
                    }
                    Op::Invalidate => {
                        (*wr).opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
                        (*wr).num_sge = 0;
                        (*wr).ex.bindgen_union_field = key;
                    }
                    Op::RegisterAndSend(access) => {
                        reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
                        *reg.wr.__bindgen_anon_1.wr_cqe.as_mut() =
                            (&raw const self.first).cast_mut();
                        reg.wr.next = wr;
                        reg.mr = mr;
                        reg.key = key;
                        reg.access = access.into_raw() as c_int;
                        begin = &raw mut reg.wr;
                        (*wr).opcode = bindings::ib_wr_opcode_IB_WR_SEND;
                    }
                    _ => (*wr).opcode = bindings::ib_wr_opcode_IB_WR_SEND,
                }
                let mut bad = ptr::null();
                let ret = bindings::ib_post_send(self.raw.as_ptr(), begin, &mut bad);
                (ret, !ptr::eq(bad, begin))
            }
        };
        let Err(error) = to_result(ret) else {
            return Ok(());
        };
        self.fail();
        if posted {
            return Err(Refused { wr: None, error });
        }
        // SAFETY: Nothing was posted, so this owns the box again.
        let mut wr = unsafe { KBox::from_raw(owned) };
        if let (Op::RegisterAndSend(_), Some(mr)) = (op, &mut wr.mr) {
            mr.state = State::Mapped;
        }
        Err(Refused {
            wr: Some(wr),
            error,
        })
    }

    /// Checks a request and lists its segments. Returns their number.
    fn prepare<W: Request>(
        &self,
        wr: &Wr<W>,
        op: Op,
        to: &mut [bindings::ib_sge],
    ) -> Result<c_int> {
        if self.failed.load(ordering::Relaxed) {
            return Err(not_connected());
        }
        let state = match &wr.mr {
            Some(mr) if !ptr::eq(mr.device(), self.pd.device()) => return Err(EINVAL),
            Some(mr) => mr.state,
            None => State::Free,
        };
        match op {
            Op::RegisterAndSend(_) if state != State::Mapped => return Err(EINVAL),
            Op::Invalidate if state != State::Registered => return Err(EINVAL),
            _ => (),
        }
        let lkey = self.pd.local_dma_lkey();
        for (segment, to) in wr.segments.iter().zip(to) {
            if !ptr::eq(&raw const **segment.buffer.device(), self.pd.device()) {
                return Err(EINVAL);
            }
            *to = bindings::ib_sge {
                addr: segment.buffer.addr() + segment.offset as u64,
                length: u32::try_from(segment.len)?,
                lkey,
            };
        }
        Ok(wr.segments.len() as c_int)
    }
}

/// The numbers of requests that a queue pair has room for.
pub(crate) struct Depth {
    pub(crate) send: u32,
    pub(crate) recv: u32,
}

/// The queue pair of a connection, its completion queue and its id.
///
/// # Invariants
///
/// `cq` is the completion queue of `qp`, whose id is `id`.
struct Inner<C> {
    // Dropping destroys the queue pair and its completion queue; then the fields drop in
    // declaration order. The last owner of the device destroys the id.
    qp: KBox<Queue<C>>,
    cq: NonNull<bindings::ib_cq>,
    id: Arc<RawId>,
}

// SAFETY: Any thread may destroy the objects.
unsafe impl<C: Send> Send for Inner<C> {}
// SAFETY: A reference gives access to the queue pair only.
unsafe impl<C: Sync> Sync for Inner<C> {}

/// A connection that is not made yet ([`Active`], [`Passive`]), or is [`Connected`]. Dropping it
/// disconnects, and returns after every request has completed. Sleeps.
pub(crate) struct Link<C, Side> {
    inner: Inner<C>,
    _side: PhantomData<Side>,
}

impl<C: Send + Sync + 'static, Side> Link<C, Side> {
    /// Makes the queue pair of one side, in a domain on the device of the side.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a domain of another device or too large a depth, `ENOMEM`.
    pub(crate) fn new(
        endpoint: Endpoint<Side>,
        pd: &Arc<DevicePd>,
        depth: &Depth,
        session: C,
    ) -> Result<Self> {
        let id = endpoint.id;
        let device = pd.device().as_raw();
        // SAFETY: The id has a device.
        if unsafe { (*id.as_raw()).device } != device {
            return Err(EINVAL);
        }
        let mut room = KBox::<Queue<C>>::new_uninit(GFP_KERNEL)?;
        // Draining needs one of each kind.
        let (send, recv) = (depth.send.saturating_add(2), depth.recv.saturating_add(2));
        let entries = c_int::try_from(send.saturating_add(recv))?;
        // SAFETY: The device is valid, the name a C string. Nothing uses the context before it is
        // written, because nothing is posted.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device,
                room.as_mut_ptr().cast(),
                entries,
                0,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                super::NAME.as_char_ptr(),
            )
        })?;
        let mut init: bindings::ib_qp_init_attr = pin_init::zeroed();
        init.send_cq = cq;
        init.recv_cq = cq;
        init.cap.max_send_wr = send;
        init.cap.max_recv_wr = recv;
        init.cap.max_send_sge = MAX_SEGMENTS as u32;
        init.cap.max_recv_sge = MAX_SEGMENTS as u32;
        init.sq_sig_type = bindings::ib_sig_type_IB_SIGNAL_REQ_WR;
        init.qp_type = bindings::ib_qp_type_IB_QPT_RC;
        // SAFETY: The id, the domain and the attributes are valid.
        let made = unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut init) };
        let made = to_result(made);
        // SAFETY: The call has set the queue pair.
        let raw = made.and_then(|()| NonNull::new(unsafe { (*id.as_raw()).qp }).ok_or(ENOMEM));
        let (raw, cq) = match (raw, NonNull::new(cq)) {
            (Ok(raw), Some(cq)) => (raw, cq),
            (raw, _) => {
                // SAFETY: Nothing uses the queue.
                unsafe { bindings::ib_free_cq(cq) };
                return Err(raw.err().unwrap_or(ENOMEM));
            }
        };
        // INVARIANT: Made above.
        let qp = room.write(Queue {
            raw,
            pd: pd.clone(),
            first: bindings::ib_cqe {
                done: Some(first_failed::<C>),
            },
            failed: Atomic::new(false),
            wake: id.wake().clone(),
            session,
        });
        // INVARIANT: Made above.
        Ok(Self {
            inner: Inner { qp, cq, id },
            _side: PhantomData,
        })
    }

    /// Posts a receive. Before the connection is made, receives are all that can be posted.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub(crate) fn receive<W: Request<Session = C>>(&self, wr: KBox<Wr<W>>) -> Result {
        let refused = self.inner.qp.post(wr, Op::Recv);
        refused.map_err(|refused| refused.error)
    }

    fn with<New>(self) -> Link<C, New> {
        Link {
            inner: self.inner,
            _side: PhantomData,
        }
    }
}

impl<C: Send + Sync + 'static> Link<C, Active> {
    /// Connects, with private data of up to [`PRIVATE_MAX`](super::PRIVATE_MAX) bytes.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the other side refuses, `ETIMEDOUT`.
    pub(crate) fn connect(self, private: &[u8]) -> Result<Link<C, Connected>> {
        self.inner.id.connect(private)?;
        Ok(self.with())
    }
}

impl<C: Send + Sync + 'static> Link<C, Passive> {
    /// Accepts, with private data of up to [`PRIVATE_MAX`](super::PRIVATE_MAX) bytes.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the other side is gone, `ETIMEDOUT`.
    pub(crate) fn accept(self, private: &[u8]) -> Result<Link<C, Connected>> {
        self.inner.id.accept(private)?;
        Ok(self.with())
    }
}

impl<C> Link<C, Connected> {
    /// Returns `true` after an error or a disconnection, or if the device is about to be removed. The
    /// owner drops the link and all that holds the device. The removal waits for that.
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.qp.failed.load(ordering::Relaxed) || self.inner.id.is_lost()
    }

    /// Copies the private data of the other side. Returns their length.
    pub(crate) fn private_data(&self, to: &mut [u8]) -> usize {
        self.inner.id.private_data(to)
    }
}

impl<C> Deref for Link<C, Connected> {
    type Target = Queue<C>;

    fn deref(&self) -> &Queue<C> {
        &self.inner.qp
    }
}

impl<C> Drop for Inner<C> {
    fn drop(&mut self) {
        self.qp.fail();
        let (id, qp) = (self.id.as_raw(), self.qp.raw.as_ptr());
        // SAFETY: By the type invariant. A completion that began before `fail()` may post after the
        // first drain. It has ended when that drain has, and later ones post nothing, so the
        // second drain waits for all.
        unsafe {
            bindings::rdma_disconnect(id);
            bindings::ib_drain_qp(qp);
            bindings::ib_drain_qp(qp);
            bindings::rdma_destroy_qp(id);
            bindings::ib_free_cq(self.cq.as_ptr());
        }
    }
}
