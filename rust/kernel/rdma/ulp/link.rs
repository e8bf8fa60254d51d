// SPDX-License-Identifier: GPL-2.0

//! Connected queue pairs.
//!
//! A [`Link`] belongs to one thread, which drops it. Other threads and completions have a reference
//! to its [`Queue`], to which they post. So the end of a link never waits for itself.

use super::{
    cm::{Active, Connected, Endpoint, Passive, Requested},
    id::{RawId, PRIVATE_MAX},
    srq::Srq,
    wr::{first_failed, Op, Queue, Request, Wr},
    DevicePd, MAX_SEGMENTS,
};
use crate::bindings;
use core::{marker::PhantomData, ops::Deref, ptr, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Completion, UniqueArc,
    },
    time::msecs_to_jiffies,
    types::NotThreadSafe,
};

/// `ib_drain_qp()` waits so long for the last receive of an SRQ.
const LAST_WQE_MS: u32 = 60_000;

/// The context in which requests complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poll {
    /// A work queue.
    Workqueue,
    /// A soft interrupt.
    Softirq,
    /// [`Link::poll`] alone.
    Direct,
}

/// The size of a queue pair, and the context of its completions.
pub(crate) struct Depth {
    /// The most requests and receives that are posted at once: those that [`Request::done`] has not
    /// got yet. [`Op::RegisterAndSend`] is two.
    pub(crate) send: u32,
    pub(crate) recv: u32,
    /// The most bytes of an inline request.
    pub(crate) inline: u32,
    pub(crate) poll: Poll,
}

/// The queue pair of a connection, its completion queue and its id.
///
/// # Invariants
///
/// `cq` is the completion queue of `qp`, whose id is `id`.
struct Inner<C> {
    // Dropping destroys the queue pair and its completion queue; then the fields drop in
    // declaration order. The last owner of the device destroys the id.
    qp: Arc<Queue<C>>,
    cq: NonNull<bindings::ib_cq>,
    id: Arc<RawId>,
    // The data of the connection and of requests are `Send`, so completions cannot reach this.
    _thread: NotThreadSafe,
}

/// A connection that is not made yet ([`Active`], [`Passive`], [`Requested`]), or is [`Connected`].
/// Dropping it disconnects, and returns after every request has completed. Sleeps.
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
        Self::make(endpoint, pd, depth, session, None)
    }

    /// Makes the queue pair of one side, in the domain of `srq`, which has its receives. `depth.recv`
    /// is ignored.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an SRQ of another device or too large a depth, `ENOMEM`.
    pub(crate) fn with_srq(
        endpoint: Endpoint<Side>,
        srq: &Arc<Srq<C>>,
        depth: &Depth,
        session: C,
    ) -> Result<Self> {
        Self::make(endpoint, srq.pd(), depth, session, Some(srq.clone()))
    }

    fn make(
        endpoint: Endpoint<Side>,
        pd: &Arc<DevicePd>,
        depth: &Depth,
        session: C,
        srq: Option<Arc<Srq<C>>>,
    ) -> Result<Self> {
        let id = endpoint.id;
        let device = pd.device().as_raw();
        // SAFETY: The id has a device.
        if unsafe { (*id.as_raw()).device } != device {
            return Err(EINVAL);
        }
        let mut room = UniqueArc::<Queue<C>>::new_uninit(GFP_KERNEL)?;
        let unheld = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        // Draining needs one of each kind. All receives of an SRQ may complete here.
        let receives = srq.as_ref().map_or(depth.recv, |srq| srq.room());
        let (send, recv) = (depth.send.saturating_add(2), receives.saturating_add(2));
        let entries = c_int::try_from(send.saturating_add(recv))?;
        // SAFETY: The device is valid, the name a C string. Nothing uses the context before it is
        // written, because nothing is posted.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device,
                room.as_mut_ptr().cast(),
                entries,
                0,
                match depth.poll {
                    Poll::Workqueue => bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                    Poll::Softirq => bindings::ib_poll_context_IB_POLL_SOFTIRQ,
                    Poll::Direct => bindings::ib_poll_context_IB_POLL_DIRECT,
                },
                super::NAME.as_char_ptr(),
            )
        })?;
        let mut init: bindings::ib_qp_init_attr = pin_init::zeroed();
        init.send_cq = cq;
        init.recv_cq = cq;
        init.cap.max_send_wr = send;
        init.cap.max_send_sge = MAX_SEGMENTS as u32;
        match &srq {
            Some(srq) => init.srq = srq.as_raw(),
            None => {
                init.cap.max_recv_wr = recv;
                init.cap.max_recv_sge = MAX_SEGMENTS as u32;
            }
        }
        init.cap.max_inline_data = depth.inline;
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
            max_inline: depth.inline,
            first: bindings::ib_cqe {
                done: Some(first_failed::<C>),
            },
            parts: Atomic::new(ptr::null_mut()),
            failed: Atomic::new(false),
            send_room: Atomic::new(depth.send),
            recv_room: Atomic::new(depth.recv),
            holders: Atomic::new(1),
            unheld,
            wake: id.wake().clone(),
            session,
            srq,
        });
        // INVARIANT: Made above.
        Ok(Self {
            inner: Inner {
                qp: qp.into(),
                cq,
                id,
                _thread: NotThreadSafe,
            },
            _side: PhantomData,
        })
    }

    /// Posts a receive. Before the connection is made, receives are all that can be posted.
    ///
    /// # Errors
    ///
    /// See [`Refused`](super::Refused).
    pub(crate) fn receive<W: Request<Session = C>>(&self, wr: KBox<Wr<W>>) -> Result {
        Ok(self.inner.qp.post(wr, Op::Recv)?)
    }

    fn with<New>(self) -> Link<C, New> {
        Link {
            inner: self.inner,
            _side: PhantomData,
        }
    }
}

/// A connection that was not made.
pub(crate) struct NotMade {
    pub(crate) error: Error,
    /// The private data of the answer, and zeros. An answer of the CM has zeros.
    pub(crate) private: [u8; PRIVATE_MAX],
}

impl From<NotMade> for Error {
    fn from(not_made: NotMade) -> Self {
        not_made.error
    }
}

impl<C: Send + Sync + 'static> Link<C, Active> {
    /// Connects, with private data of up to [`PRIVATE_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED` if the other side rejects it or drops the [`Endpoint`], and if its CM rejects
    /// it: nothing listens, or too many wait. `ENOTCONN` if the connection is lost at once.
    /// `ETIMEDOUT` without an answer.
    pub(crate) fn connect(self, private: &[u8]) -> Result<Link<C, Connected>> {
        Ok(self.request(private)?.wait()?)
    }

    /// Asks the other side to connect, and does not wait. So one thread can make both sides.
    pub(crate) fn request(self, private: &[u8]) -> Result<Link<C, Requested>> {
        self.inner.id.connect(private)?;
        Ok(self.with())
    }
}

impl<C: Send + Sync + 'static> Link<C, Requested> {
    /// Waits until the other side has accepted.
    ///
    /// # Errors
    ///
    /// See [`Link::connect`].
    pub(crate) fn wait(self) -> Result<Link<C, Connected>, NotMade> {
        let Err(error) = self.inner.id.wait() else {
            return Ok(self.with());
        };
        let mut private = [0; PRIVATE_MAX];
        self.inner.id.private_data(&mut private);
        Err(NotMade { error, private })
    }
}

impl<C: Send + Sync + 'static> Link<C, Passive> {
    /// Accepts, with private data of up to [`PRIVATE_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, `ENOTCONN` or `EINVAL` if the other side is gone, `ETIMEDOUT`.
    pub(crate) fn accept(self, private: &[u8]) -> Result<Link<C, Connected>> {
        self.inner.id.accept(private)?;
        Ok(self.with())
    }
}

impl<C> Link<C, Connected> {
    /// Returns `true` after an error or a disconnection, or if the device is about to be removed. The
    /// owner drops the link and all that holds the device. The removal waits for that.
    pub(crate) fn is_lost(&self) -> bool {
        let qp = &self.inner.qp;
        qp.failed.load(ordering::Relaxed)
            || self.inner.id.is_lost()
            || qp.pd.held_device().is_leaving()
    }

    /// Returns the queue pair, for other threads. After the link is dropped it refuses all requests
    /// but receives of an SRQ. It holds the device.
    pub(crate) fn queue(&self) -> Arc<Queue<C>> {
        self.inner.qp.clone()
    }

    /// Completes up to `budget` requests if they complete by [`Poll::Direct`]. Returns their number.
    pub(crate) fn poll(&self, budget: u16) -> c_int {
        let cq = self.inner.cq.as_ptr();
        // SAFETY: By the type invariant of `Inner`.
        unsafe {
            match (*cq).poll_ctx {
                bindings::ib_poll_context_IB_POLL_DIRECT => {
                    bindings::ib_process_cq_direct(cq, budget.into())
                }
                _ => 0,
            }
        }
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

/// Drains a queue pair with an SRQ. `ib_drain_qp()` drains the send queue first, and completes the
/// receives in this thread. Here the marker of the send queue comes last, in the same completion
/// queue, so all requests complete in its context.
///
/// # Safety
///
/// `qp` must be valid and have an SRQ, and nothing may post to it.
unsafe fn drain_shared(qp: *mut bindings::ib_qp) {
    let mut attr: bindings::ib_qp_attr = pin_init::zeroed();
    attr.qp_state = bindings::ib_qp_state_IB_QPS_ERR;
    let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
    // SAFETY: By the safety requirement. The core completes `srq_completion`.
    unsafe {
        // Some drivers never say that the last receive has completed.
        if bindings::ib_modify_qp(qp, &mut attr, mask) == 0 {
            bindings::wait_for_completion_timeout(
                &mut (*qp).srq_completion,
                msecs_to_jiffies(LAST_WQE_MS),
            );
        }
        bindings::ib_drain_sq(qp);
    }
}

impl<C> Drop for Inner<C> {
    fn drop(&mut self) {
        self.qp.fail();
        let (id, qp, cq) = (self.id.as_raw(), self.qp.raw.as_ptr(), self.cq.as_ptr());
        // SAFETY: By the type invariant. After the grace period nothing posts or holds any more, so
        // draining waits for all requests.
        unsafe {
            bindings::synchronize_rcu();
            bindings::rdma_disconnect(id);
            match self.qp.srq {
                None => bindings::ib_drain_qp(qp),
                Some(_) => drain_shared(qp),
            }
        }
        if !self.qp.release() {
            self.qp.unheld.wait_for_completion();
        }
        let mut head = self.qp.parts.xchg(ptr::null_mut(), ordering::Relaxed);
        while !head.is_null() {
            let mut wc: bindings::ib_wc = pin_init::zeroed();
            wc.status = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR;
            // SAFETY: The list has leaked boxes, of which the device uses nothing now. Their `done`
            // makes them boxes again.
            unsafe {
                let next = (*head).next;
                *wc.__bindgen_anon_1.wr_cqe.as_mut() = head.cast();
                if let Some(done) = (*head).cqe.done {
                    done(cq, &mut wc);
                }
                head = next;
            }
        }
        // SAFETY: By the type invariant.
        unsafe {
            bindings::rdma_destroy_qp(id);
            bindings::ib_free_cq(cq);
        }
    }
}
