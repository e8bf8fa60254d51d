// SPDX-License-Identifier: GPL-2.0

//! The client of a block device over RDMA, in Rust: the disk `/dev/rblk0`.
//!
//! Each request of the disk registers its pages, wherever they begin and end, and sends the rkey.
//! It ends after the reply, when the reply or the client has invalidated the rkey. If the connection
//! is lost, requests wait until a thread has connected again, and are sent once more.

use core::net::{Ipv4Addr, SocketAddrV4};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex, SpinLock, SpinLockGuard},
    time::{delay::fsleep, Delta, Instant, Monotonic},
};
use kernel_ext::{
    block::{Direction, Disk, Driver, Io, Limits},
    rdma::ulp::{
        random, Access, Connected, Depth, DevicePd, Done, Endpoint, FastMr, HostBuffer, Link, Net,
        NoPages, Op, Poll, Queue, Request, Right, Wr,
    },
    thread::{without_io, Thread, Wake},
};

#[path = "../../rust/bindings/mod.rs"]
mod bindings;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "this module uses a part"
)]
#[path = "../../rust/kernel/for_ulp.rs"]
mod kernel_ext;
#[allow(dead_code, reason = "the other side uses the rest")]
#[path = "mkey_rblk_protocol.rs"]
mod protocol;
use protocol::{number, private, value, Command, Reply, DEPTH, MAX_BYTES, PORT, PRIVATE, SECTOR};

module! {
    type: MkeyRblkClient,
    name: "mkey_rblk_client",
    authors: ["The ib_mkey authors"],
    description: "Sample of a block device over RDMA, in Rust: client",
    license: "GPL",
    imports_ns: ["IB_MKEY"],
    params: {
        server: u32 {
            default: 0,
            description: "IPv4 address of the server, as a number",
        },
    },
}

/// The segments of a request.
const SEGMENTS: u16 = 256;
/// The time between two attempts to connect.
const RETRY_MS: u32 = 1000;

/// The time in which a server replies. After that the connection counts as lost.
const REPLY_MS: i64 = 30_000;

/// Sends a command, and invalidates its rkey.
struct Submit {
    tag: usize,
    message: Arc<HostBuffer>,
}

/// Receives a reply.
struct Receive {
    message: Arc<HostBuffer>,
}

/// The objects of one tag of the disk. A request of the disk is in `waiting`, or belongs to the
/// MR of the command.
struct Slot {
    /// A request that is not sent, because there is no connection.
    waiting: Option<Io<Client>>,
    /// The command that no request uses.
    free: Option<KBox<Wr<Submit>>>,
    /// The command that was sent, or failed.
    sent: Option<KBox<Wr<Submit>>>,
    /// When the command was posted whose request has not ended.
    busy: Option<Instant<Monotonic>>,
    /// The status in the reply.
    status: Option<u32>,
}

struct State {
    /// The queue pair, if there is a connection.
    link: Option<Arc<Queue<Arc<Client>>>>,
    slots: KVec<Slot>,
    /// The size of the disk.
    sectors: u64,
    /// The module ends: without a connection, requests fail.
    removing: bool,
    /// The disk is gone: the thread ends.
    ending: bool,
}

#[pin_data]
struct Client {
    #[pin]
    state: SpinLock<State>,
    #[pin]
    disk: Mutex<Option<Disk<Client>>>,
    net: Net,
    server: SocketAddrV4,
    wake: Arc<Wake>,
    /// A random number by which the server knows the client.
    name: u64,
}

impl State {
    /// Sends the waiting request of `tag` if there is a connection. Returns a request that cannot
    /// be sent, which the caller ends after it has unlocked the state.
    fn start(&mut self, tag: usize) -> Option<(Io<Client>, Error)> {
        let slot = self.slots.get_mut(tag)?;
        let Some(link) = &self.link else { return None };
        let mut wr = slot.free.take()?;
        let Some(io) = slot.waiting.take() else {
            slot.free = Some(wr);
            return None;
        };
        let (at, len) = (io.sector().checked_mul(SECTOR), io.len());
        let write = io.direction() == Some(Direction::Write);
        let access = match write {
            true => Access::from(Right::RemoteRead),
            false => Access::from(Right::LocalWrite) | Right::RemoteWrite,
        };
        let message = wr.work.message.clone();
        let mapped = match (wr.mr(), at) {
            (Some(mr), Some(at)) => mr.map(io).map(|remote| (remote, at)),
            _ => Err((io, EINVAL)),
        };
        let (remote, at) = match mapped {
            Ok(mapped) => mapped,
            Err(failed) => {
                slot.free = Some(wr);
                return Some(failed);
            }
        };
        let command = Command {
            write,
            invalidate: true,
            tag: tag as u32,
            at,
            len,
            rkey: remote.rkey,
            addr: remote.addr,
        };
        slot.busy = Some(Instant::now());
        slot.status = None;
        if command.put(&message).is_err() {
            link.fail();
            slot.sent = Some(wr);
        } else if let Err(refused) = link.post(wr, Op::RegisterAndSend(access)) {
            // The thread connects again, and sends it then.
            link.fail();
            slot.sent = Some(refused.wr);
        }
        None
    }
}

impl Request for Submit {
    type Session = Arc<Client>;
    type Pages = Io<Client>;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Client>>, done: Done<'_>) {
        let mut state = qp.session().state.lock();
        let Some(slot) = state.slots.get_mut(wr.work.tag) else {
            return;
        };
        match (done.op, done.result) {
            (Op::Invalidate, Ok(_)) => end(state, wr),
            // The reply may be faster than the completion of the send.
            (_, Ok(_)) if slot.status.is_some() => slot.sent = invalidate(wr, qp),
            _ => slot.sent = Some(wr),
        }
    }
}

/// Ends the request of a command whose rkey is invalid.
fn end(mut state: SpinLockGuard<'_, State>, mut wr: KBox<Wr<Submit>>) {
    let Some(slot) = state.slots.get_mut(wr.work.tag) else {
        return;
    };
    let io = wr.mr().and_then(|mr| mr.release());
    let status = slot.status.take();
    slot.free = Some(wr);
    slot.busy = None;
    drop(state);
    if let Some(io) = io {
        io.end(if status == Some(0) { Ok(()) } else { Err(EIO) });
    }
}

/// Invalidates the rkey of a command. Returns the command if the connection is lost.
fn invalidate(wr: KBox<Wr<Submit>>, qp: &Queue<Arc<Client>>) -> Option<KBox<Wr<Submit>>> {
    match qp.post(wr, Op::Invalidate) {
        Ok(()) => None,
        Err(refused) => {
            qp.fail();
            Some(refused.wr)
        }
    }
}

/// Takes a reply.
fn take(reply: Reply, qp: &Queue<Arc<Client>>, done: &Done<'_>) -> Result {
    let mut state = qp.session().state.lock();
    let slot = state.slots.get_mut(reply.tag as usize).ok_or(EINVAL)?;
    if slot.busy.is_none() || slot.status.is_some() {
        return Err(EINVAL);
    }
    slot.status = Some(reply.status);
    let Some(mut wr) = slot.sent.take() else {
        return Ok(());
    };
    let proof = done.invalidated.as_ref();
    if proof.is_some_and(|proof| wr.invalidated(proof)) {
        end(state, wr);
    } else {
        slot.sent = invalidate(wr, qp);
    }
    Ok(())
}

impl Request for Receive {
    type Session = Arc<Client>;
    type Pages = NoPages;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Client>>, done: Done<'_>) {
        let Ok(len) = done.result else { return };
        let reply = match done.immediate {
            // The data have come with it.
            Some(tag) => Ok(Reply { tag, status: 0 }),
            None => Reply::get(&wr.work.message, len),
        };
        // Posted before the request ends, because the reply to the next request needs a receive.
        let next = reply.and_then(|reply| {
            qp.post(wr, Op::Recv)?;
            take(reply, qp, &done)
        });
        if next.is_err() {
            qp.fail();
        }
    }
}

impl Driver for Client {
    fn queue(this: ArcBorrow<'_, Self>, io: Io<Self>) {
        if io.direction().is_none() {
            io.end(Err(EIO));
            return;
        }
        let tag = io.tag();
        let mut state = this.state.lock();
        let taken = state.link.is_some() || !state.removing;
        let refused = match state.slots.get_mut(tag) {
            Some(slot) if taken => {
                slot.waiting = Some(io);
                state.start(tag)
            }
            _ => Some((io, EIO)),
        };
        drop(state);
        if let Some((io, error)) = refused {
            io.end(Err(error));
        }
    }
}

/// The commands of all tags.
type Commands = KVec<KBox<Wr<Submit>>>;

impl Client {
    /// Connects to the server. Returns the connection and the commands of all tags.
    fn connect(self: &Arc<Self>) -> Result<(Link<Arc<Self>, Connected>, Commands)> {
        let endpoint = Endpoint::resolve(&self.net, self.server, &self.wake)?;
        let device = endpoint.device();
        let pd = DevicePd::new(&device)?;
        // REG_MR and SEND; LOCAL_INV follows when both have completed.
        let depth = Depth {
            send: 2 * DEPTH,
            recv: DEPTH,
            inline: 0,
            poll: Poll::Workqueue,
        };
        let link = Link::new(endpoint, &pd, &depth, self.clone())?;
        let mut commands = KVec::with_capacity(DEPTH as usize, GFP_KERNEL)?;
        for tag in 0..DEPTH as usize {
            let message = HostBuffer::new(&device, Reply::LEN)?;
            let work = Receive {
                message: message.clone(),
            };
            let mut wr = Wr::new(work, None)?;
            wr.add(&message, 0, Reply::LEN)?;
            link.receive(wr)?;

            let message = HostBuffer::new(&device, Command::LEN)?;
            let work = Submit {
                tag,
                message: message.clone(),
            };
            let mut wr = Wr::new(work, Some(FastMr::new(&pd, SEGMENTS)?))?;
            wr.add(&message, 0, Command::LEN)?;
            commands.push(wr, GFP_KERNEL)?;
        }
        Ok((link.connect(&private(self.name))?, commands))
    }

    /// Adds the disk when the first connection is made.
    fn add_disk(self: &Arc<Self>, link: &Link<Arc<Self>, Connected>) -> Result {
        let mut bytes = [0; PRIVATE];
        let len = link.private_data(&mut bytes);
        let sectors = number(&bytes, len)?;
        let mut disk = self.disk.lock();
        let mut state = self.state.lock();
        if disk.is_some() && state.sectors != sectors {
            // This is another store.
            return Err(ENODEV);
        }
        if disk.is_some() || state.removing {
            return Ok(());
        }
        state.sectors = sectors;
        drop(state);
        let limits = Limits {
            sectors,
            max_sectors: MAX_BYTES / SECTOR as u32,
            max_segments: SEGMENTS,
            alignment: 4,
        };
        *disk = Some(Disk::new(c"rblk0", DEPTH, &limits, self.clone())?);
        Ok(())
    }

    /// Connects, and sends what waits.
    fn up(self: &Arc<Self>) -> Result<Link<Arc<Self>, Connected>> {
        let (link, commands) = self.connect()?;
        self.add_disk(&link)?;
        let mut state = self.state.lock();
        for (slot, wr) in state.slots.iter_mut().zip(commands) {
            slot.free = Some(wr);
        }
        state.link = Some(link.queue());
        drop(state);
        for tag in 0..DEPTH as usize {
            let refused = self.state.lock().start(tag);
            if let Some((io, error)) = refused {
                io.end(Err(error));
            }
        }
        Ok(link)
    }

    /// Drops the connection and its commands. Their requests wait for the next connection, or fail
    /// if there will be none.
    fn down(&self, link: Option<Link<Arc<Self>, Connected>>) {
        let queue = self.state.lock().link.take();
        drop(queue);
        // All commands have completed when this returns.
        drop(link);
        for tag in 0..DEPTH as usize {
            let mut state = self.state.lock();
            let removing = state.removing;
            let Some(slot) = state.slots.get_mut(tag) else {
                return;
            };
            let (sent, free, waiting) = (slot.sent.take(), slot.free.take(), slot.waiting.take());
            (slot.busy, slot.status) = (None, None);
            drop(state);
            drop(free);
            let io = sent.and_then(Wr::into_pages).or(waiting);
            if removing {
                // It fails.
                drop(io);
            } else if io.is_some() {
                // Without a request, a new one may have come meanwhile.
                if let Some(slot) = self.state.lock().slots.get_mut(tag) {
                    slot.waiting = io;
                }
            }
        }
    }

    /// Keeps the connection until the module ends. The disk waits for it, so the caller forbids I/O.
    fn run(self: &Arc<Self>) {
        let mut link: Option<Link<_, _>> = None;
        loop {
            let state = self.state.lock();
            let (removing, ending) = (state.removing, state.ending);
            let late = |at: Instant<_>| at.elapsed().as_millis() > REPLY_MS;
            let is_late = state.slots.iter().any(|slot| slot.busy.is_some_and(late));
            drop(state);
            if let (Some(link), true) = (&link, is_late) {
                link.fail();
            }
            let lost = link.as_ref().map(|link| link.is_lost());
            if ending || lost == Some(true) || (removing && lost.is_none()) {
                self.down(link.take());
            }
            match lost {
                _ if ending => return,
                Some(false) => _ = self.wake.wait(RETRY_MS),
                _ if removing => _ = self.wake.wait(RETRY_MS),
                _ => {
                    link = self.up().ok();
                    if link.is_none() {
                        fsleep(Delta::from_millis(RETRY_MS.into()));
                    }
                }
            }
        }
    }
}

struct MkeyRblkClient {
    client: Arc<Client>,
    // Dropped after `Drop::drop()` has told it to end.
    _thread: Thread,
}

impl kernel::Module for MkeyRblkClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let server = value(module_parameters::server.value());
        let mut slots = KVec::with_capacity(DEPTH as usize, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            let slot = Slot {
                waiting: None,
                free: None,
                sent: None,
                busy: None,
                status: None,
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        let state = State {
            link: None,
            slots,
            sectors: 0,
            removing: false,
            ending: false,
        };
        let (net, wake) = (Net::current()?, Wake::new()?);
        let client = Arc::pin_init(
            pin_init!(Client {
                state <- new_spinlock!(state),
                disk <- new_mutex!(None),
                net,
                server: SocketAddrV4::new(Ipv4Addr::from(server), PORT),
                wake,
                name: random(),
            }),
            GFP_KERNEL,
        )?;
        let running = client.clone();
        let thread = Thread::spawn(c"mkey_rblk_client", move || without_io(|| running.run()))?;
        Ok(Self {
            client,
            _thread: thread,
        })
    }
}

impl Drop for MkeyRblkClient {
    fn drop(&mut self) {
        self.client.state.lock().removing = true;
        self.client.wake.wake();
        // Waits for the requests of the disk.
        let disk = self.client.disk.lock().take();
        drop(disk);
        self.client.state.lock().ending = true;
        self.client.wake.wake();
    }
}
