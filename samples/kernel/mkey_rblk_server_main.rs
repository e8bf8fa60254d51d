// SPDX-License-Identifier: GPL-2.0

//! The server of a block device over RDMA, in Rust: a disk in memory.
//!
//! It listens at all addresses of the network namespace of `insmod`. For a command it reads the
//! client's memory by RDMA READ, or writes it by RDMA WRITE, and replies then.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};
use kernel_ext::{
    rdma::ulp::{
        Connected, Depth, DevicePd, Done, Endpoint, HostBuffer, HostMemory, Link, Listener, Net,
        NoPages, Op, Passive, Poll, Queue, Remote, Request, Wr,
    },
    thread::{Thread, Wake},
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
use protocol::{value, Command, Hello, Reply, DEPTH, MAX_BYTES, PORT, SECTOR};

module! {
    type: MkeyRblkServer,
    name: "mkey_rblk_server",
    authors: ["The ib_mkey authors"],
    description: "Sample of a block device over RDMA, in Rust: server",
    license: "GPL",
    imports_ns: ["IB_MKEY"],
    params: {
        size: u32 {
            default: 64,
            description: "MiB of the disk",
        },
    },
}

/// Bytes of a piece of the disk. A command of [`MAX_BYTES`] is in five pieces at most.
const PIECE: usize = 256 << 10;
/// The receives: some commands come before the replies to earlier ones are acknowledged.
const RECEIVES: u32 = 2 * DEPTH;

/// The disk as one device sees it.
struct Disk {
    pieces: KVec<Arc<HostBuffer>>,
}

impl Disk {
    /// Returns the number of bytes.
    fn len(&self) -> u64 {
        self.pieces.len() as u64 * PIECE as u64
    }

    /// Makes the segments of `wr` those of a command.
    fn point(&self, wr: &mut Wr<Job>, command: &Command) -> Result {
        let end = command.at.checked_add(command.len.into()).ok_or(EINVAL)?;
        if command.len == 0 || command.len > MAX_BYTES || end > self.len() {
            return Err(EINVAL);
        }
        wr.clear();
        let (mut at, mut left) = (usize::try_from(command.at)?, command.len as usize);
        while left > 0 {
            let in_piece = at % PIECE;
            let len = left.min(PIECE - in_piece);
            let piece = self.pieces.get(at / PIECE).ok_or(EINVAL)?;
            wr.add(piece, in_piece, len)?;
            at += len;
            left -= len;
        }
        Ok(())
    }
}

/// A command from its receive to the reply. One request does all steps.
struct Job {
    message: Arc<HostBuffer>,
    tag: u32,
}

impl Job {
    fn receive(mut wr: KBox<Wr<Self>>, qp: &Queue<Disk>) -> Result {
        let message = wr.work.message.clone();
        wr.clear();
        wr.add(&message, 0, Command::LEN)?;
        qp.post(wr, Op::Recv).map_err(|refused| refused.error)
    }

    fn reply(mut wr: KBox<Wr<Self>>, qp: &Queue<Disk>, status: u32) -> Result {
        let message = wr.work.message.clone();
        let tag = wr.work.tag;
        Reply { tag, status }.put(&message)?;
        wr.clear();
        wr.add(&message, 0, Reply::LEN)?;
        qp.post(wr, Op::Send).map_err(|refused| refused.error)
    }

    /// Moves the data of the command in `message`, or replies that it cannot.
    fn start(mut wr: KBox<Wr<Self>>, qp: &Queue<Disk>, len: u32) -> Result {
        let command = Command::get(&wr.work.message, len)?;
        wr.work.tag = command.tag;
        if qp.session().point(&mut wr, &command).is_err() {
            return Self::reply(wr, qp, bindings::EINVAL);
        }
        let remote = Remote {
            addr: command.addr,
            rkey: command.rkey,
        };
        let op = match command.write {
            true => Op::Read(remote),
            false => Op::Write(remote),
        };
        qp.post(wr, op).map_err(|refused| refused.error)
    }
}

impl Request for Job {
    type Session = Disk;
    type Pages = NoPages;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Disk>, done: Done<'_>) {
        // The connection is lost after an error, and its requests go with it.
        let Ok(len) = done.result else { return };
        let next = match done.op {
            Op::Recv => Self::start(wr, qp, len),
            Op::Send => Self::receive(wr, qp),
            _ => Self::reply(wr, qp, 0),
        };
        if next.is_err() {
            qp.fail();
        }
    }
}

/// The most connections, each of which has receives and maps the store.
const MAX_LINKS: usize = 16;

struct Server {
    pieces: KVec<Arc<HostMemory>>,
    listener: Listener,
    wake: Arc<Wake>,
    ending: Atomic<bool>,
}

impl Server {
    fn accept(&self, endpoint: Endpoint<Passive>) -> Result<Link<Disk, Connected>> {
        let device = endpoint.device();
        let pd = DevicePd::new(&device)?;
        let mut pieces = KVec::with_capacity(self.pieces.len(), GFP_KERNEL)?;
        for piece in &self.pieces {
            pieces.push(HostBuffer::map(&device, piece.clone())?, GFP_KERNEL)?;
        }
        let depth = Depth {
            send: RECEIVES,
            recv: RECEIVES,
            inline: 0,
            poll: Poll::Workqueue,
        };
        let disk = Disk { pieces };
        let sectors = disk.len() / SECTOR;
        let link = Link::new(endpoint, &pd, &depth, disk)?;
        for _ in 0..RECEIVES {
            let message = HostBuffer::new(&device, Command::LEN)?;
            let mut wr = Wr::new(
                Job {
                    message: message.clone(),
                    tag: 0,
                },
                None,
            )?;
            wr.add(&message, 0, Command::LEN)?;
            link.receive(wr)?;
        }
        link.accept(&Hello { sectors }.bytes())
    }

    /// Accepts connections, and drops those that are lost, until the module ends.
    fn run(&self) {
        let mut links = KVec::new();
        while !self.ending.load(ordering::Relaxed) {
            self.wake.wait(1000);
            // A client that connects again has lost a connection, whose data must not come later.
            links.retain(|link: &mut Link<_, _>| !link.is_lost());
            while !self.ending.load(ordering::Relaxed) {
                let Some(endpoint) = self.listener.next() else {
                    break;
                };
                if links.len() >= MAX_LINKS {
                    // This rejects it.
                    drop(endpoint);
                    continue;
                }
                let link = self.accept(endpoint);
                let kept = link.and_then(|link| Ok(links.push(link, GFP_KERNEL)?));
                if let Err(error) = kept {
                    pr_err!("a connection is refused: error {}\n", error.to_errno());
                }
            }
        }
    }
}

struct MkeyRblkServer {
    server: Arc<Server>,
    // Dropped after `Drop::drop()` has told it to end.
    _thread: Thread,
}

impl kernel::Module for MkeyRblkServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let size = value(module_parameters::size.value());
        let mut pieces = KVec::new();
        for _ in 0..size.checked_mul(1 << 20).ok_or(EINVAL)? as usize / PIECE {
            pieces.push(HostMemory::new(PIECE)?, GFP_KERNEL)?;
        }
        let wake = Wake::new()?;
        let server = Server {
            pieces,
            listener: Listener::new(&Net::current()?, PORT, &wake)?,
            wake,
            ending: Atomic::new(false),
        };
        let server = Arc::new(server, GFP_KERNEL)?;
        let running = server.clone();
        let thread = Thread::spawn(c"mkey_rblk_server", move || running.run())?;
        Ok(Self {
            server,
            _thread: thread,
        })
    }
}

impl Drop for MkeyRblkServer {
    fn drop(&mut self) {
        self.server.ending.store(true, ordering::Relaxed);
        self.server.wake.wake();
    }
}
