// SPDX-License-Identifier: GPL-2.0

//! Requests, which own what they use until they complete, and the queue pairs to which they are posted.
//!
//! Posting gives the box of a request to the queue pair, and the completion gives it to
//! [`Request::done`]. So nothing that a device may access is freed or changed meanwhile.

use super::{
    fast::{Pages, State},
    id::not_connected,
    mkey::Posted,
    pd::{PdMr, Remote},
    srq::{Receive, Srq},
    Access, DevicePd, FastMr, LeafMemory, Mkey, MAX_SEGMENTS,
};
use crate::{bindings, kernel_ext::thread::Wake};
use core::{ops::Deref, ptr, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu, Arc, Completion,
    },
};

/// The ULP's part of a request.
pub(crate) trait Request: Send + Sized + 'static {
    /// The data of the connection.
    type Session: Send + Sync + 'static;
    /// The owner of the pages that the request registers.
    type Pages: Pages;

    /// Called when the request has completed, or was flushed after an error. It may sleep for a
    /// short time, but not with [`Poll::Softirq`](super::Poll::Softirq): the last owner of a
    /// `DmRegion` or of a key deregisters it, which sleeps, so another owner keeps it then.
    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Self::Session>, done: Done<'_>);
}

/// The status of a completed work request, `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(bindings::ib_wc_status);

impl Status {
    /// A key could not be bound.
    pub(crate) const BIND: Self = Self(bindings::ib_wc_status_IB_WC_MW_BIND_ERR);
    /// The remote side does not allow the access.
    pub(crate) const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
    /// The queue pair failed before the request ran.
    pub(crate) const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
}

/// An operation.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    /// Receives a message into the segments.
    Recv,
    /// Sends the segments as a message.
    Send,
    /// Sends, and gives the receiver a number.
    SendImmediate(u32),
    /// Sends, and invalidates an rkey of the receiver.
    SendInvalidate(u32),
    /// Writes the segments to the remote side.
    Write(Remote),
    /// Writes, and then gives a number to a receive of the remote side.
    WriteImmediate(Remote, u32),
    /// Reads from the remote side into the segments.
    Read(Remote),
    /// Adds to the 8 bytes at the remote side. Their old value is written to the segment.
    FetchAdd(Remote, u64),
    /// Replaces the 8 bytes at the remote side if they have the first value. Their old value is
    /// written to the segment.
    CompareSwap(Remote, u64, u64),
    /// Registers the MR or the key of the request: REG_MR.
    Register(Access),
    /// Registers the MR or the key of the request, then sends the segments: REG_MR and SEND.
    RegisterAndSend(Access),
    /// Invalidates the MR or the key of the request: LOCAL_INV.
    Invalidate,
}

impl Op {
    /// Returns the number of its work requests, each of which may have a completion.
    fn count(self) -> u32 {
        match self {
            Self::RegisterAndSend(_) => 2,
            _ => 1,
        }
    }
}

/// The proof that the remote side has invalidated an rkey. It ends with the completion that brought it,
/// so it is not used for a later registration that has the same rkey.
pub(crate) struct Invalidated<'a> {
    rkey: u32,
    pd: &'a DevicePd,
}

/// The result of a request.
pub(crate) struct Done<'a> {
    /// The operation that was posted.
    pub(crate) op: Op,
    /// The number of bytes that a receive got, or the status of an error.
    pub(crate) result: Result<u32, Status>,
    /// The number that came with a message or a write.
    pub(crate) immediate: Option<u32>,
    /// The rkey that a message invalidated.
    pub(crate) invalidated: Option<Invalidated<'a>>,
}

/// Bytes of a leaf, or of the MR or key of the request.
pub(super) struct Segment {
    pub(super) leaf: Option<LeafMemory>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// The MR or the key of a request.
enum Own<P: Pages> {
    Nothing,
    Pages(FastMr<P>),
    Key(Mkey<Posted>),
}

impl<P: Pages> Own<P> {
    /// Returns the MR and its first address.
    fn mr(&self) -> Option<(&PdMr, u64)> {
        match self {
            Self::Nothing => None,
            Self::Pages(mr) => Some((mr.mr(), mr.mr().iova())),
            Self::Key(key) => Some((key.mr(), key.base())),
        }
    }

    fn state(&self) -> State {
        match self {
            Self::Nothing => State::Free,
            Self::Pages(mr) => mr.state,
            Self::Key(key) => key.state.state,
        }
    }

    fn set_state(&mut self, state: State) {
        match self {
            Self::Nothing => (),
            Self::Pages(mr) => mr.state = state,
            Self::Key(key) => key.state.state = state,
        }
    }
}

/// The first field of a request, which does not depend on its type.
#[repr(C)]
pub(super) struct Head {
    // First, so that the address of the request is that of its `ib_cqe`, and of this.
    pub(super) cqe: bindings::ib_cqe,
    /// The next request of a list of the queue pair.
    pub(super) next: *mut Head,
}

// SAFETY: Only the queue pair that owns the request uses the pointer.
unsafe impl core::marker::Send for Head {}

/// A request, with all that it uses.
#[repr(C)]
pub(crate) struct Wr<W: Request> {
    head: Head,
    op: Op,
    pub(super) segments: KVec<Segment>,
    own: Own<W::Pages>,
    /// The request begins after all earlier READs and atomics have ended.
    pub(crate) fence: bool,
    /// The segments are copied when the request is posted.
    pub(crate) inline: bool,
    /// While a block device has the request.
    pub(super) held: Option<Held<W::Session>>,
    /// The place in the table of an SRQ, while that has the request.
    pub(super) slot: Atomic<usize>,
    /// The data of the ULP.
    pub(crate) work: W,
}

impl<W: Request> Wr<W> {
    /// Makes a request without segments.
    pub(crate) fn new(work: W, mr: Option<FastMr<W::Pages>>) -> Result<KBox<Self>> {
        let wr = Self {
            head: Head {
                cqe: bindings::ib_cqe {
                    done: Some(done::<W>),
                },
                next: ptr::null_mut(),
            },
            op: Op::Recv,
            segments: KVec::with_capacity(MAX_SEGMENTS, GFP_KERNEL)?,
            own: mr.map_or(Own::Nothing, Own::Pages),
            fence: false,
            inline: false,
            held: None,
            slot: Atomic::new(0),
            work,
        };
        Ok(KBox::new(wr, GFP_KERNEL)?)
    }

    /// Makes a request for a key without segments.
    pub(crate) fn with_key(work: W, key: impl Into<Mkey<Posted>>) -> Result<KBox<Self>> {
        let mut wr = Self::new(work, None)?;
        wr.own = Own::Key(key.into());
        Ok(wr)
    }

    /// Removes all segments.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Adds `len` bytes from `offset` on. Does not allocate.
    ///
    /// # Errors
    ///
    /// `ERANGE` for bytes outside the memory, `ENOSPC` for too many segments.
    pub(crate) fn add(&mut self, leaf: impl Into<LeafMemory>, offset: usize, len: usize) -> Result {
        let leaf = leaf.into();
        if offset.checked_add(len).is_none_or(|end| end > leaf.len()) {
            return Err(ERANGE);
        }
        self.push(Some(leaf), offset, len)
    }

    /// Adds the first `len` bytes of the MR or the key of the request.
    ///
    /// # Errors
    ///
    /// `ENOSPC` for too many segments.
    pub(crate) fn add_own(&mut self, len: usize) -> Result {
        self.push(None, 0, len)
    }

    fn push(&mut self, leaf: Option<LeafMemory>, offset: usize, len: usize) -> Result {
        let segment = Segment { leaf, offset, len };
        self.segments
            .push_within_capacity(segment)
            .map_err(|_| ENOSPC)
    }

    /// Returns the MR.
    pub(crate) fn mr(&mut self) -> Option<&mut FastMr<W::Pages>> {
        match &mut self.own {
            Own::Pages(mr) => Some(mr),
            _ => None,
        }
    }

    /// Returns the rkey of the MR or of the key, or 0 without one.
    pub(crate) fn rkey(&self) -> u32 {
        self.own.mr().map_or(0, |(mr, _)| mr.rkey())
    }

    /// Takes the key out of the request.
    pub(crate) fn take_key(&mut self) -> Option<Mkey<Posted>> {
        match core::mem::replace(&mut self.own, Own::Nothing) {
            Own::Key(key) => Some(key),
            other => {
                self.own = other;
                None
            }
        }
    }

    /// Tells the request that the remote side has invalidated the rkey. Returns `true` if it is that
    /// of the MR or of the key, whose pages or leaves can be released then.
    pub(crate) fn invalidated(&mut self, proof: &Invalidated<'_>) -> bool {
        let own = self.own.mr();
        let ours =
            own.is_some_and(|(mr, _)| mr.rkey() == proof.rkey && ptr::eq(mr.pd(), &**proof.pd));
        let ours = ours && self.own.state() == State::Registered;
        if ours {
            self.own.set_state(State::Free);
        }
        ours
    }

    /// Deregisters the MR and returns its pages. Sleeps.
    pub(crate) fn into_pages(this: KBox<Self>) -> Option<W::Pages> {
        match KBox::into_inner(this).own {
            Own::Pages(mr) => mr.into_pages(),
            _ => None,
        }
    }

    /// Checks the request and lists its segments. Returns their number.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    fn prepare(
        &self,
        op: Op,
        pd: &DevicePd,
        max_inline: u32,
        to: &mut [bindings::ib_sge],
    ) -> Result<c_int> {
        let own = self.own.mr();
        let state = self.own.state();
        let data = match op {
            _ if own.is_some_and(|(mr, _)| !ptr::eq(mr.pd(), &**pd)) => return Err(EINVAL),
            Op::Register(_) | Op::RegisterAndSend(_) if state != State::Mapped => {
                return Err(EINVAL)
            }
            Op::Invalidate if state != State::Registered => return Err(EINVAL),
            Op::Register(_) | Op::Invalidate => &[],
            _ => &*self.segments,
        };
        let mut total = 0u64;
        for (segment, to) in data.iter().zip(to) {
            let offset = segment.offset as u64;
            let mr = segment.leaf.as_ref().map_or(own, LeafMemory::mr);
            let (addr, lkey) = match (&segment.leaf, mr) {
                (_, Some((mr, base))) if ptr::eq(mr.pd(), &**pd) => {
                    (base.wrapping_add(offset), mr.lkey())
                }
                (Some(LeafMemory::Host(buffer)), _)
                    if ptr::eq(&raw const **buffer.device(), pd.device()) =>
                {
                    let start = match self.inline {
                        true => buffer.start(),
                        false => buffer.addr(),
                    };
                    (start + offset, pd.local_dma_lkey())
                }
                _ => return Err(EINVAL),
            };
            // The processor copies the bytes, so they are the host's.
            if self.inline && !matches!(segment.leaf, Some(LeafMemory::Host(_))) {
                return Err(EINVAL);
            }
            total += segment.len as u64;
            *to = bindings::ib_sge {
                addr,
                length: u32::try_from(segment.len)?,
                lkey,
            };
        }
        let sends = matches!(
            op,
            Op::Send
                | Op::SendImmediate(_)
                | Op::SendInvalidate(_)
                | Op::Write(_)
                | Op::WriteImmediate(..)
        );
        match op {
            _ if self.inline && !(sends && total <= max_inline.into()) => Err(EINVAL),
            Op::FetchAdd(remote, _) | Op::CompareSwap(remote, ..)
                if data.len() != 1 || total != 8 || remote.addr % 8 != 0 =>
            {
                Err(EINVAL)
            }
            _ => Ok(data.len() as c_int),
        }
    }

    /// Gives the request to a device. Returns 0 or an error, and `true` if a part was posted.
    ///
    /// # Safety
    ///
    /// `this` must be valid, and stay so until the request completes, or until the queue pair is
    /// drained if only a part was posted. The queue pair and `first` must be valid, and
    /// [`Self::prepare`] must have set the first `count` of `sges` for it. Its completion queue must
    /// have a [`Queue<W::Session>`] as its context.
    unsafe fn submit(
        this: *mut Self,
        qp: *mut bindings::ib_qp,
        first: *mut bindings::ib_cqe,
        sges: &mut [bindings::ib_sge],
        count: c_int,
    ) -> (c_int, bool) {
        let cqe = this.cast::<bindings::ib_cqe>();
        // SAFETY: By the safety requirement. The device does not use the fields.
        let fields = unsafe { ((*this).op, (*this).fence, (*this).inline, (*this).own.mr()) };
        let (op, fence, inline, own) = fields;
        let (mr, key) = own.map_or((ptr::null_mut(), 0), |(mr, _)| (mr.as_raw(), mr.rkey()));
        if let Op::Recv = op {
            let mut recv: bindings::ib_recv_wr = pin_init::zeroed();
            recv.sg_list = sges.as_mut_ptr();
            recv.num_sge = count;
            // SAFETY: By the safety requirement. The call copies the request.
            return unsafe {
                *recv.__bindgen_anon_1.wr_cqe.as_mut() = cqe;
                (bindings::ib_post_recv(qp, &recv, ptr::null_mut()), false)
            };
        }

        let flag = |set, flag| if set { flag } else { 0 };
        // The field has an immediate in network byte order, or an rkey.
        let (opcode, ex) = match op {
            Op::SendImmediate(number) => {
                (bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM, number.to_be())
            }
            Op::SendInvalidate(rkey) => (bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV, rkey),
            Op::Write(_) => (bindings::ib_wr_opcode_IB_WR_RDMA_WRITE, 0),
            Op::WriteImmediate(_, number) => (
                bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
                number.to_be(),
            ),
            Op::Read(_) => (bindings::ib_wr_opcode_IB_WR_RDMA_READ, 0),
            Op::FetchAdd(..) => (bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD, 0),
            Op::CompareSwap(..) => (bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP, 0),
            Op::Register(_) => (bindings::ib_wr_opcode_IB_WR_REG_MR, 0),
            Op::Invalidate => (bindings::ib_wr_opcode_IB_WR_LOCAL_INV, key),
            Op::Recv | Op::Send | Op::RegisterAndSend(_) => (bindings::ib_wr_opcode_IB_WR_SEND, 0),
        };
        let mut wr: bindings::ib_send_wr = pin_init::zeroed();
        wr.opcode = opcode;
        wr.ex.bindgen_union_field = ex;
        wr.sg_list = sges.as_mut_ptr();
        wr.num_sge = count;
        wr.send_flags = (bindings::ib_send_flags_IB_SEND_SIGNALED
            | flag(fence, bindings::ib_send_flags_IB_SEND_FENCE)
            | flag(inline, bindings::ib_send_flags_IB_SEND_INLINE))
            as c_int;
        let mut reg: bindings::ib_reg_wr = pin_init::zeroed();
        reg.mr = mr;
        reg.key = key;
        let mut bad = ptr::null();
        // SAFETY: By the safety requirement. The call copies the requests, whose structures are those
        // of their opcodes and begin with an `ib_send_wr`.
        unsafe {
            *wr.__bindgen_anon_1.wr_cqe.as_mut() = cqe;
            let mut post = |begin: *mut bindings::ib_send_wr| {
                let ret = bindings::ib_post_send(qp, begin, &mut bad);
                (ret, ret != 0 && !ptr::eq(bad, begin))
            };
            match op {
                Op::Write(remote) | Op::WriteImmediate(remote, _) | Op::Read(remote) => {
                    let mut rdma = bindings::ib_rdma_wr {
                        wr,
                        remote_addr: remote.addr,
                        rkey: remote.rkey,
                    };
                    post((&raw mut rdma).cast())
                }
                Op::FetchAdd(remote, first) | Op::CompareSwap(remote, first, _) => {
                    let mut atomic = bindings::ib_atomic_wr {
                        wr,
                        remote_addr: remote.addr,
                        rkey: remote.rkey,
                        compare_add: first,
                        ..pin_init::zeroed()
                    };
                    if let Op::CompareSwap(_, _, new) = op {
                        atomic.swap = new;
                    }
                    post((&raw mut atomic).cast())
                }
                Op::Register(access) => {
                    reg.access = access.into_raw() as c_int;
                    reg.wr = wr;
                    post((&raw mut reg).cast())
                }
                Op::RegisterAndSend(access) => {
                    reg.access = access.into_raw() as c_int;
                    reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
                    *reg.wr.__bindgen_anon_1.wr_cqe.as_mut() = first;
                    reg.wr.next = &raw mut wr;
                    post((&raw mut reg).cast())
                }
                _ => post(&raw mut wr),
            }
        }
    }

    /// Makes the operation that of the next [`Self::submit`].
    fn begin(&mut self, op: Op) {
        self.op = op;
        if let Op::Register(_) | Op::RegisterAndSend(_) = op {
            self.own.set_state(State::Registered);
        }
    }

    /// Undoes [`Self::begin`].
    fn undo(&mut self) {
        if let Op::Register(_) | Op::RegisterAndSend(_) = self.op {
            self.own.set_state(State::Mapped);
        }
    }
}

impl<W: Request> Receive for Wr<W> {
    fn slot(&self) -> &Atomic<usize> {
        &self.slot
    }
}

/// # Safety
///
/// Only `ib_core` may call this, as the `done` of a posted [`Wr<W>`] on the queue of a
/// [`Queue<W::Session>`]; or the link when it is dropped.
unsafe extern "C" fn done<W: Request>(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: By the safety requirement. The queue pair or its SRQ gives the box back, which it owned
    // since the request was posted. If there is an SRQ, it has all receives of the queue pair. The
    // context is the queue pair, which outlives its queue.
    let (qp, wc, mut wr) = unsafe {
        let wc = &*wc;
        let qp = &*(*cq).cq_context.cast::<Queue<W::Session>>();
        let wr = (*wc.__bindgen_anon_1.wr_cqe.as_ref()).cast::<Wr<W>>();
        match (&qp.srq, (*wr).op) {
            (Some(srq), Op::Recv) => (qp, wc, srq.take(wr)),
            (_, op) => {
                qp.give_room(op);
                (qp, wc, KBox::from_raw(wr))
            }
        }
    };
    let op = wr.op;
    let mut done = Done {
        op,
        result: Ok(wc.byte_len),
        immediate: None,
        invalidated: None,
    };
    if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
        done.result = Err(Status(wc.status));
        qp.fail();
    } else if let Op::Invalidate = op {
        wr.own.set_state(State::Free);
    } else if let Op::Recv = op {
        let has = |flag| wc.wc_flags as u32 & flag != 0;
        // The two have one field.
        let ex = wc.ex.bindgen_union_field;
        if has(bindings::ib_wc_flags_IB_WC_WITH_IMM) {
            done.immediate = Some(u32::from_be(ex));
        }
        if has(bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE) {
            let pd = qp.pd();
            done.invalidated = Some(Invalidated { rkey: ex, pd });
        }
    }
    W::done(wr, qp, done);
}

/// # Safety
///
/// Only `ib_core` may call this, as the `done` of `first`.
pub(super) unsafe extern "C" fn first_failed<C>(
    cq: *mut bindings::ib_cq,
    _wc: *mut bindings::ib_wc,
) {
    // SAFETY: The context is the queue pair, which outlives its queue. A request without a signal
    // completes only if it fails.
    unsafe { (*(*cq).cq_context.cast::<Queue<C>>()).fail() };
}

/// A request that was not posted, and the reason.
pub(crate) struct Refused<W: Request> {
    pub(crate) wr: KBox<Wr<W>>,
    /// `ENOTCONN` after an error of the connection; `EINVAL` for memory of another device or domain,
    /// for an MR or a key in the wrong state, for atomics that are not of 8 aligned bytes, or for
    /// inline data that are too long or are not the host's; `ENOMEM` for more than the
    /// [`Depth`](super::Depth) of the link; the errors of posting.
    pub(crate) error: Error,
}

impl<W: Request> From<Refused<W>> for Error {
    fn from(refused: Refused<W>) -> Self {
        refused.error
    }
}

impl<C> Srq<C> {
    /// Posts a receive. It completes on the connection whose message takes it: that is the queue pair
    /// that [`Request::done`] gets. May be called in any context.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; `ENOMEM` if there is no room. A receive takes room until [`Request::done`]
    /// gets it, so the completions of all receives fit the completion queue of each connection.
    pub(crate) fn receive<W: Request<Session = C>>(
        &self,
        mut wr: KBox<Wr<W>>,
    ) -> Result<(), Refused<W>> {
        let mut sges: [bindings::ib_sge; MAX_SEGMENTS] =
            core::array::from_fn(|_| pin_init::zeroed());
        let count = match wr.prepare(Op::Recv, self.pd(), 0, &mut sges) {
            Ok(count) => count,
            Err(error) => return Err(Refused { wr, error }),
        };
        wr.begin(Op::Recv);
        let mut recv: bindings::ib_recv_wr = pin_init::zeroed();
        recv.sg_list = sges.as_mut_ptr();
        recv.num_sge = count;
        // SAFETY: A `Wr` begins with an `ib_cqe`, whose `done()` takes the receive. It has all memory
        // of its segments, which `prepare()` has listed.
        unsafe { self.post(wr, &mut recv) }.map_err(|(wr, error)| Refused { wr, error })
    }
}

/// A queue pair, to which any thread may post, and completions too.
///
/// # Invariants
///
/// `raw` is valid until a grace period after `failed` was set. Its completion queue has this as its
/// context.
pub(crate) struct Queue<C> {
    pub(super) raw: NonNull<bindings::ib_qp>,
    pub(super) pd: Arc<DevicePd>,
    pub(super) max_inline: u32,
    /// Of the first of two requests, of which the second owns both.
    pub(super) first: bindings::ib_cqe,
    /// The requests of which only the first part was posted. They complete when the link is dropped.
    pub(super) parts: Atomic<*mut Head>,
    pub(super) failed: Atomic<bool>,
    /// The work requests, and the receives without an SRQ, whose completions have room in the
    /// completion queue beside those of all that were posted.
    pub(super) send_room: Atomic<u32>,
    pub(super) recv_room: Atomic<u32>,
    /// The number of [`Held`], and 1 for the link.
    pub(super) holders: Atomic<i32>,
    /// Completed when there is no holder.
    pub(super) unheld: Arc<Completion>,
    pub(super) wake: Arc<Wake>,
    pub(super) session: C,
    /// Has the receives of this queue pair, if that does not have them itself.
    pub(super) srq: Option<Arc<Srq<C>>>,
}

/// A use of a queue pair by other than its requests. Dropping the link waits for its end.
///
/// # Invariants
///
/// The queue pair exists, and this is one of its holders.
pub(super) struct Held<C> {
    qp: NonNull<Queue<C>>,
    unheld: Arc<Completion>,
}

// SAFETY: As a reference to the queue pair.
unsafe impl<C: Sync> Send for Held<C> {}

impl<C> Deref for Held<C> {
    type Target = Queue<C>;

    fn deref(&self) -> &Queue<C> {
        // SAFETY: By the type invariant.
        unsafe { self.qp.as_ref() }
    }
}

impl<C> Drop for Held<C> {
    fn drop(&mut self) {
        if self.release() {
            // The queue pair may be gone after this.
            self.unheld.complete_all();
        }
    }
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

    pub(super) fn pd(&self) -> &DevicePd {
        &self.pd
    }

    /// Posts nothing any more, and tells the owner of the connection. The owner drops the link.
    pub(crate) fn fail(&self) {
        self.failed.store(true, ordering::Relaxed);
        self.wake.wake();
    }

    /// Holds the queue pair, unless the connection is lost.
    pub(super) fn hold(&self) -> Option<Held<C>> {
        // Pairs with synchronize_rcu() in the drop of the link, which then waits for all holders.
        let _holding = rcu::read_lock();
        if self.failed.load(ordering::Relaxed) {
            return None;
        }
        self.holders.fetch_add(1, ordering::Relaxed);
        // INVARIANT: The link was not dropped before this grace period.
        Some(Held {
            qp: NonNull::from(self),
            unheld: self.unheld.clone(),
        })
    }

    /// Removes a holder. Returns `true` if it was the last one.
    pub(super) fn release(&self) -> bool {
        self.holders.fetch_sub(1, ordering::Full) == 1
    }

    fn room(&self, op: Op) -> &Atomic<u32> {
        match op {
            Op::Recv => &self.recv_room,
            _ => &self.send_room,
        }
    }

    /// Takes room for the completions of `op`.
    fn take_room(&self, op: Op) -> Result {
        let room = self.room(op);
        let mut old = room.load(ordering::Relaxed);
        loop {
            let new = old.checked_sub(op.count()).ok_or(ENOMEM)?;
            // Pairs with `give_room()`: the completions that had the room are out of the queue.
            match room.cmpxchg(old, new, ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => old = now,
            }
        }
    }

    fn give_room(&self, op: Op) {
        self.room(op).fetch_add(op.count(), ordering::Release);
    }

    /// Posts a request. The queue pair owns it until it completes. May be called in any context.
    /// If the queue pair has an SRQ, a receive is posted to that, also after the connection is lost.
    ///
    /// If the device accepts only a part of the request, the connection fails. The request completes
    /// with an error then, when the owner of the link drops it.
    ///
    /// # Errors
    ///
    /// See [`Refused`], and [`Srq::receive`] for a receive of an SRQ.
    pub(crate) fn post<W: Request<Session = C>>(
        &self,
        mut wr: KBox<Wr<W>>,
        op: Op,
    ) -> Result<(), Refused<W>> {
        if let (Op::Recv, Some(srq)) = (op, &self.srq) {
            return srq.receive(wr);
        }
        let mut sges: [bindings::ib_sge; MAX_SEGMENTS] =
            core::array::from_fn(|_| pin_init::zeroed());
        // Pairs with synchronize_rcu() in the drop of the link.
        let _posting = rcu::read_lock();
        let count = match self.failed.load(ordering::Relaxed) {
            true => Err(not_connected()),
            false => wr.prepare(op, &self.pd, self.max_inline, &mut sges),
        };
        let count = count.and_then(|count| self.take_room(op).map(|()| count));
        let count = match count {
            Ok(count) => count,
            Err(error) => return Err(Refused { wr, error }),
        };
        wr.begin(op);
        let (owned, raw) = (KBox::into_raw(wr), self.raw.as_ptr());
        let first = (&raw const self.first).cast_mut();
        // SAFETY: The queue pair is valid, because it had not failed in this grace period. The box
        // that was leaked has all memory that the request names. `done()` makes the box again.
        let (ret, partly) = unsafe { Wr::submit(owned, raw, first, &mut sges, count) };
        let Err(error) = to_result(ret) else {
            return Ok(());
        };
        if partly {
            let head = owned.cast::<Head>();
            let next = self.parts.xchg(head, ordering::Relaxed);
            // SAFETY: The box is leaked. the drop of the link reads the list after this grace period.
            unsafe { (*head).next = next };
            self.fail();
            return Ok(());
        }
        // SAFETY: Nothing was posted, so this owns the box again.
        let mut wr = unsafe { KBox::from_raw(owned) };
        wr.undo();
        self.give_room(op);
        Err(Refused { wr, error })
    }
}
