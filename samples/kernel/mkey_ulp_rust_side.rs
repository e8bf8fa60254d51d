// SPDX-License-Identifier: GPL-2.0

//! Shared by the parts of the sample: two devices with a connection, sizes and a check.

use crate::kernel_ext::{
    rdma::ulp::{
        Access, Connected, Depth, DevicePd, Done, Endpoint, HeldDevice, HostBuffer, LeafMemory,
        Link, Listener, Net, NoPages, Op, Passive, Poll, Queue, Request, Requested, Right, Srq,
        Status, Wr,
    },
    sync::lock::{new_irq_lock, IrqLock},
    thread::Wake,
};
use core::net::SocketAddrV4;
use kernel::{prelude::*, sync::Arc};

/// Returns `EIO` from the caller, and logs the line, unless the condition holds.
macro_rules! expect {
    ($condition:expr) => {
        if !$condition {
            let what = stringify!($condition);
            pr_err!("line {}: {} does not hold\n", line!(), what);
            return Err(EIO);
        }
    };
}

/// The bytes of device memory.
pub(crate) const DM_LEN: u64 = 4096;
/// The bytes of a buffer of host memory.
pub(crate) const HOST_LEN: usize = 4096;
/// The bytes of an inline request.
pub(crate) const INLINE: u32 = 64;
/// The requests, and the receives, that may be in flight.
pub(crate) const DEPTH: u32 = 8;
/// The port at which the second device listens.
const PORT: u16 = 18518;

/// Returns the access flags of keys and MRs in this sample.
pub(crate) fn all_access() -> Access {
    Access::from(Right::LocalWrite) | Right::RemoteWrite | Right::RemoteRead | Right::RemoteAtomic
}

/// A request of this sample.
pub(crate) struct Step;

/// A request that has completed.
pub(crate) struct Completed {
    pub(crate) wr: KBox<Wr<Step>>,
    pub(crate) is_recv: bool,
    pub(crate) result: Result<u32, Status>,
    pub(crate) immediate: Option<u32>,
}

/// Fills a buffer with bytes that seldom repeat.
pub(crate) fn fill(buffer: &HostBuffer, seed: usize) -> Result {
    for i in 0..buffer.len() {
        buffer.write(i, &[(i * 3 + i / 256 + seed) as u8])?;
    }
    Ok(())
}

/// Returns all bytes of a buffer.
pub(crate) fn bytes_of(buffer: &HostBuffer) -> Result<KVec<u8>> {
    let mut bytes = KVec::from_elem(0, buffer.len(), GFP_KERNEL)?;
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The part that completions leave for the thread.
pub(crate) struct Inbox {
    completed: KVec<Completed>,
    /// A key that the other side may invalidate, and `true` when it has.
    pub(crate) lent: Option<(KBox<Wr<Step>>, bool)>,
}

/// The data of a connection.
#[pin_data]
pub(crate) struct Session {
    #[pin]
    pub(crate) inbox: IrqLock<Inbox>,
    wake: Arc<Wake>,
}

impl Session {
    fn take(&self, is_recv: bool) -> Option<Completed> {
        let completed = &mut self.inbox.lock().completed;
        let at = completed.iter().position(|each| each.is_recv == is_recv)?;
        completed.remove(at).ok()
    }
}

impl Request for Step {
    type Session = Arc<Session>;
    type Pages = NoPages;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, done: Done<'_>) {
        let session = qp.session();
        let mut inbox = session.inbox.lock();
        if let (Some(proof), Some((wr, is_invalid))) = (&done.invalidated, &mut inbox.lent) {
            *is_invalid = wr.invalidated(proof);
        }
        // There is room for all requests of a connection.
        let _ = inbox.completed.push_within_capacity(Completed {
            wr,
            is_recv: matches!(done.op, Op::Recv),
            result: done.result,
            immediate: done.immediate,
        });
        drop(inbox);
        session.wake.wake();
    }
}

/// A device with one side of a connection.
pub(crate) struct Side {
    pub(crate) device: HeldDevice,
    pub(crate) pd: Arc<DevicePd>,
    pub(crate) session: Arc<Session>,
    /// Has the receives of the next connections.
    pub(crate) srq: Option<Arc<Srq<Arc<Session>>>>,
    pub(crate) link: Option<Link<Arc<Session>, Connected>>,
}

impl Side {
    fn new(device: HeldDevice, wake: &Arc<Wake>) -> Result<Self> {
        let inbox = Inbox {
            completed: KVec::with_capacity(2 * DEPTH as usize, GFP_KERNEL)?,
            lent: None,
        };
        Ok(Self {
            pd: DevicePd::new(&device)?,
            device,
            session: Arc::pin_init(
                pin_init!(Session {
                    inbox <- new_irq_lock!(inbox, "Session::inbox"),
                    wake: wake.clone(),
                }),
                GFP_KERNEL,
            )?,
            srq: None,
            link: None,
        })
    }

    /// Drops the connection, then the requests that it has returned.
    fn disconnect(&mut self) {
        self.link = None;
        while self.session.take(false).is_some() || self.session.take(true).is_some() {}
    }

    /// Posts a request.
    pub(crate) fn post(&self, wr: KBox<Wr<Step>>, op: Op) -> Result {
        Ok(self.link.as_ref().ok_or(EPIPE)?.post(wr, op)?)
    }

    /// Waits for a receive, or for another request. If the connection is lost, drops it first.
    pub(crate) fn wait(&mut self, is_recv: bool) -> Result<Completed> {
        loop {
            if let Some(completed) = self.session.take(is_recv) {
                return Ok(completed);
            }
            let Some(link) = self.link.take_if(|link| link.is_lost()) else {
                let link = self.link.as_ref().ok_or(EPIPE)?;
                if link.poll(DEPTH as u16) == 0 && !self.session.wake.wait(100) {
                    return Err(EINTR);
                }
                continue;
            };
            // This returns all requests.
            drop(link);
        }
    }

    /// Posts a request and waits for it.
    pub(crate) fn run(&mut self, wr: KBox<Wr<Step>>, op: Op) -> Result<Completed> {
        self.post(wr, op)?;
        self.wait(false)
    }

    /// Posts a request with one segment, and waits for it. Returns its result.
    pub(crate) fn execute(
        &mut self,
        op: Op,
        leaf: impl Into<LeafMemory>,
        offset: usize,
        len: usize,
    ) -> Result<Result<u32, Status>> {
        let mut wr = Wr::new(Step, None)?;
        wr.add(leaf, offset, len)?;
        Ok(self.run(wr, op)?.result)
    }
}

/// The connection that the first device has asked for.
type Asked = Link<Arc<Session>, Requested>;

/// Returns the size of a connection of this sample.
pub(crate) fn depth(poll: Poll) -> Depth {
    Depth {
        send: DEPTH,
        recv: DEPTH,
        inline: INLINE,
        poll,
    }
}

/// Two devices with a connection. The first one posts most requests.
pub(crate) struct Pair {
    pub(crate) here: Side,
    pub(crate) there: Side,
    net: Net,
    to: SocketAddrV4,
    listener: Listener,
    wake: Arc<Wake>,
}

impl Pair {
    pub(crate) fn new(here: HeldDevice, there: HeldDevice, wake: &Arc<Wake>) -> Result<Self> {
        let (net, _) = here.address()?;
        let (far_net, address) = there.address()?;
        Ok(Self {
            here: Side::new(here, wake)?,
            there: Side::new(there, wake)?,
            net,
            to: SocketAddrV4::new(address, PORT),
            listener: Listener::new(&far_net, PORT, wake)?,
            wake: wake.clone(),
        })
    }

    /// Asks the second device to connect, also again after an error.
    pub(crate) fn ask(&mut self, depth: &Depth) -> Result<(Asked, Endpoint<Passive>)> {
        let (here, there) = (&mut self.here, &mut self.there);
        here.disconnect();
        there.disconnect();
        if here.device.is_leaving() || there.device.is_leaving() {
            return Err(ENODEV);
        }
        let endpoint = Endpoint::resolve(&self.net, self.to, &self.wake)?;
        let link = Link::new(endpoint, &here.pd, depth, here.session.clone())?;
        let asked = link.request(&[])?;
        let mut endpoint = None;
        for _ in 0..50 {
            endpoint = self.listener.next();
            if endpoint.is_some() {
                break;
            }
            if !self.wake.wait(100) {
                return Err(EINTR);
            }
        }
        Ok((asked, endpoint.ok_or(ETIMEDOUT)?))
    }

    /// Connects.
    pub(crate) fn connect(&mut self, poll: Poll) -> Result {
        let depth = depth(poll);
        let (asked, endpoint) = self.ask(&depth)?;
        let (here, there) = (&mut self.here, &mut self.there);
        let session = there.session.clone();
        let link = match &there.srq {
            Some(srq) => Link::with_srq(endpoint, srq, &depth, session)?,
            None => Link::new(endpoint, &there.pd, &depth, session)?,
        };
        there.link = Some(link.accept(&[])?);
        here.link = Some(asked.wait()?);
        Ok(())
    }
}
