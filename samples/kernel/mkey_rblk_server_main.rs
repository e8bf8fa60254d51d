// SPDX-License-Identifier: GPL-2.0

//! The server of a block device over RDMA, in Rust: it serves a block device of its machine.
//!
//! It listens at all addresses of the network namespace of `insmod`. For a command it moves the
//! data between the block device and its buffers, and by RDMA READ or RDMA WRITE between these and
//! the client's memory. Then it replies; a WRITE has immediate data, and is the reply. The buffers
//! are pages of the host, or device memory of any class. If they are in the memory of an NVMe
//! controller, the controller reads and writes its own memory, and no byte passes through RAM
//! between the disk and the packets.

use kernel::{
    debugfs::Scope,
    fmt, new_spinlock,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, SpinLock,
    },
};
use kernel_ext::{
    block::Direction,
    rdma::ulp::{
        BlockDevice, Connected, Depth, DeviceMemory, DevicePd, DmRegion, Done, Endpoint,
        HostBuffer, LeafMemory, Link, Listener, Net, NoPages, Op, Passive, Poll, Queue, Remote,
        Request, Right, Transfer, Wr, MAX_SEGMENTS,
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
    type: MkeyRblkServer,
    name: "mkey_rblk_server",
    authors: ["The ib_mkey authors"],
    description: "Sample of a block device over RDMA, in Rust: server",
    license: "GPL",
    imports_ns: ["IB_MKEY"],
    params: {
        device: u32 {
            default: 0,
            description: "Block device to serve, as a number: major << 20 | minor",
        },
        dm_class: u32 {
            default: 0,
            description: "Class of device memory for the buffers, as for ib_alloc_dm_class(); 0 for pages of the host",
        },
        memory: u32 {
            default: 4,
            description: "MiB of buffers for each connection",
        },
        probe_ms: u32 {
            default: 1000,
            description: "Milliseconds between two probes of a connection",
        },
    },
}

/// Bytes of a buffer. A command of [`MAX_BYTES`] takes [`MAX_SEGMENTS`] of them.
const BUFFER: usize = MAX_BYTES as usize / MAX_SEGMENTS;
/// The receives: some commands come before the replies to earlier ones are acknowledged.
const RECEIVES: u32 = 2 * DEPTH;

/// The bytes that the block device has moved.
struct Moved {
    ram: Atomic<u64>,
    device: Atomic<u64>,
}

fn show(moved: &Arc<Moved>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ram = moved.ram.load(ordering::Relaxed);
    let device = moved.device.load(ordering::Relaxed);
    f.write_fmt(fmt!("# memory bytes\nram {ram}\ndevice {device}\n"))
}

struct Pool {
    free: KVec<LeafMemory>,
    /// Commands that wait for buffers, in their order.
    waiting: KVec<KBox<Wr<Job>>>,
}

impl Pool {
    /// Returns the first command, with buffers as its segments, if there are enough.
    fn next(&mut self) -> Option<KBox<Wr<Job>>> {
        let wr = self.waiting.first_mut()?;
        let mut left = wr.work.command.len as usize;
        if self.free.len() < left.div_ceil(BUFFER) {
            return None;
        }
        wr.clear();
        while left > 0 {
            let (buffer, len) = (self.free.pop()?, left.min(BUFFER));
            // There is room, because `Job::start()` has checked the length.
            wr.add(buffer.clone(), 0, len).ok()?;
            wr.work.buffers.push_within_capacity(buffer).ok()?;
            left -= len;
        }
        self.waiting.remove(0).ok()
    }
}

/// A connection.
#[pin_data]
struct Session {
    /// The name of the client.
    name: u64,
    store: Arc<BlockDevice>,
    #[pin]
    pool: SpinLock<Pool>,
    /// All buffers. So the completion of a transfer frees none, which would sleep.
    _buffers: KVec<LeafMemory>,
    #[pin]
    probe: SpinLock<Option<KBox<Wr<Probe>>>>,
    moved: Arc<Moved>,
}

impl Session {
    /// Begins commands, in their order, until there are too few buffers.
    fn pump(&self, qp: &Queue<Arc<Self>>) -> Result {
        loop {
            let Some(wr) = self.pool.lock().next() else {
                return Ok(());
            };
            let Command {
                write, addr, rkey, ..
            } = wr.work.command;
            match write {
                true => Job::post(wr, qp, Op::Read(Remote { addr, rkey }))?,
                false => Job::transfer(wr, qp)?,
            }
        }
    }
}

/// A command from its receive to the reply. One request does all steps.
struct Job {
    message: Arc<HostBuffer>,
    command: Command,
    buffers: KVec<LeafMemory>,
}

impl Job {
    fn post(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, op: Op) -> Result {
        qp.post(wr, op).map_err(|refused| refused.error)
    }

    fn receive(mut wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>) -> Result {
        let message = wr.work.message.clone();
        wr.clear();
        wr.add(&message, 0, Command::LEN)?;
        Self::post(wr, qp, Op::Recv)
    }

    fn reply(mut wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, result: Result) -> Result {
        let (message, command) = (wr.work.message.clone(), wr.work.command);
        let (tag, rkey) = (command.tag, command.rkey);
        let status = result
            .err()
            .map_or(0, |error| error.to_errno().unsigned_abs());
        Reply { tag, status }.put(&message)?;
        wr.clear();
        wr.add(&message, 0, Reply::LEN)?;
        match command.invalidate {
            true => Self::post(wr, qp, Op::SendInvalidate(rkey)),
            false => Self::post(wr, qp, Op::Send),
        }
    }

    /// Begins the command in `message` when there are buffers, or replies that it is refused.
    fn start(mut wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, len: u32) -> Result {
        let command = Command::get(&wr.work.message, len)?;
        let session = qp.session();
        let end = command.at.checked_add(command.len.into());
        let size = session.store.sectors() * SECTOR;
        let whole = command.at % SECTOR == 0 && u64::from(command.len) % SECTOR == 0;
        wr.work.command = command;
        if !whole || !(1..=MAX_BYTES).contains(&command.len) || end.is_none_or(|end| end > size) {
            return Self::reply(wr, qp, Err(EINVAL));
        }
        let pushed = session.pool.lock().waiting.push_within_capacity(wr);
        pushed.map_err(|_| ENOSPC)?;
        session.pump(qp)
    }

    /// Moves the data between the block device and the buffers.
    fn transfer(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>) -> Result {
        let Command { write, at, .. } = wr.work.command;
        let direction = match write {
            true => Direction::Write,
            false => Direction::Read,
        };
        let submitted = qp.session().store.submit(wr, qp, direction, at / SECTOR);
        submitted.map_err(|refused| refused.error)
    }

    /// Takes the next command, after the reply has left.
    fn end(mut wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>) -> Result {
        let session = qp.session();
        let mut pool = session.pool.lock();
        while let Some(buffer) = wr.work.buffers.pop() {
            pool.free.push_within_capacity(buffer).map_err(|_| ENOSPC)?;
        }
        drop(pool);
        Self::receive(wr, qp)?;
        session.pump(qp)
    }
}

impl Request for Job {
    type Session = Arc<Session>;
    type Pages = NoPages;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, done: Done<'_>) {
        // The connection is lost after an error, and its requests go with it.
        let Ok(len) = done.result else { return };
        let next = match done.op {
            Op::Recv => Self::start(wr, qp, len),
            Op::Read(_) => Self::transfer(wr, qp),
            _ => Self::end(wr, qp),
        };
        if next.is_err() {
            qp.fail();
        }
    }
}

impl Transfer for Job {
    fn moved(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, result: Result) {
        let Command {
            write,
            tag,
            len,
            addr,
            rkey,
            ..
        } = wr.work.command;
        let moved = &qp.session().moved;
        match wr.work.buffers.first().is_some_and(LeafMemory::is_ram) {
            true => moved.ram.add(len.into(), ordering::Relaxed),
            false => moved.device.add(len.into(), ordering::Relaxed),
        }
        let next = match result {
            // This is the reply, too.
            Ok(()) if !write => Self::post(wr, qp, Op::WriteImmediate(Remote { addr, rkey }, tag)),
            result => Self::reply(wr, qp, result),
        };
        if next.is_err() {
            qp.fail();
        }
    }
}

/// A WRITE of no bytes. If the client's device does not acknowledge it, the connection is lost.
struct Probe;

impl Request for Probe {
    type Session = Arc<Session>;
    type Pages = NoPages;

    fn done(wr: KBox<Wr<Self>>, qp: &Queue<Arc<Session>>, done: Done<'_>) {
        if done.result.is_ok() {
            *qp.session().probe.lock() = Some(wr);
        }
    }
}

/// Sends a probe, unless the last one is on its way.
fn probe(link: &Link<Arc<Session>, Connected>) {
    let probe = link.session().probe.lock().take();
    if let Some(wr) = probe {
        // After an error, the link is lost.
        let _ = link.post(wr, Op::Write(Remote { addr: 0, rkey: 0 }));
    }
}

/// The most connections, each of which has receives and buffers.
const MAX_LINKS: usize = 16;

struct Server {
    device: u32,
    class: u64,
    /// The number of buffers of a connection.
    buffers: usize,
    probe_ms: u32,
    moved: Arc<Moved>,
    listener: Listener,
    wake: Arc<Wake>,
    ending: Atomic<bool>,
}

impl Server {
    /// Makes the buffers of a connection.
    fn buffers(
        &self,
        pd: &Arc<DevicePd>,
        endpoint: &Endpoint<Passive>,
    ) -> Result<KVec<LeafMemory>> {
        let device = endpoint.device();
        let mut buffers = KVec::with_capacity(self.buffers, GFP_KERNEL)?;
        if self.class == 0 {
            for _ in 0..self.buffers {
                let buffer = HostBuffer::new(&device, BUFFER)?;
                buffers.push(LeafMemory::Host(buffer), GFP_KERNEL)?;
            }
            return Ok(buffers);
        }
        let len = BUFFER as u64;
        let memory = DeviceMemory::new(&device, self.buffers as u64 * len, 0, self.class)?;
        let access = Right::LocalWrite.into();
        for number in 0..self.buffers as u64 {
            let region = DmRegion::with_pages(pd, &memory, number * len, len, access)?;
            buffers.push(LeafMemory::Dm(region), GFP_KERNEL)?;
        }
        Ok(buffers)
    }

    fn accept(
        &self,
        endpoint: Endpoint<Passive>,
        name: u64,
        store: &Arc<BlockDevice>,
    ) -> Result<Link<Arc<Session>, Connected>> {
        let device = endpoint.device();
        let pd = DevicePd::new(&device)?;
        let free = self.buffers(&pd, &endpoint)?;
        let mut buffers = KVec::with_capacity(free.len(), GFP_KERNEL)?;
        for buffer in &free {
            store.check(buffer)?;
            buffers.push(buffer.clone(), GFP_KERNEL)?;
        }
        let pool = Pool {
            free,
            waiting: KVec::with_capacity(RECEIVES as usize, GFP_KERNEL)?,
        };
        let probe = Some(Wr::new(Probe, None)?);
        let session = Arc::pin_init(
            pin_init!(Session {
                name,
                store: store.clone(),
                pool <- new_spinlock!(pool),
                _buffers: buffers,
                probe <- new_spinlock!(probe),
                moved: self.moved.clone(),
            }),
            GFP_KERNEL,
        )?;
        let depth = Depth {
            send: RECEIVES + 1,
            recv: RECEIVES,
            inline: 0,
            poll: Poll::Workqueue,
        };
        let link = Link::new(endpoint, &pd, &depth, session)?;
        for _ in 0..RECEIVES {
            let message = HostBuffer::new(&device, Command::LEN)?;
            let job = Job {
                message: message.clone(),
                command: Command::default(),
                buffers: KVec::with_capacity(MAX_SEGMENTS, GFP_KERNEL)?,
            };
            let mut wr = Wr::new(job, None)?;
            wr.add(&message, 0, Command::LEN)?;
            link.receive(wr)?;
        }
        link.accept(&private(store.sectors()))
    }

    /// Accepts connections, and drops those that are lost, until the module ends. If the block
    /// device is removed, drops all of them, and closes it: its driver may wait for its memory. A
    /// removal takes the time of one accept, 5 s at most, and that of the drops. As it waits for
    /// this, the caller forbids I/O.
    fn run(&self, store: Arc<BlockDevice>) {
        let (mut links, mut store) = (KVec::new(), Some(store));
        while !self.ending.load(ordering::Relaxed) {
            // One at a time, so that clients do not delay what follows.
            let endpoint = self.listener.next();
            if endpoint.is_none() {
                // Kernel threads have no signals.
                _ = self.wake.wait(self.probe_ms);
            }
            if store.as_ref().is_some_and(|store| store.is_gone()) {
                links.clear();
                store = None;
            }
            let name = endpoint.as_ref().and_then(|endpoint| {
                let mut bytes = [0; PRIVATE];
                let len = endpoint.private_data(&mut bytes);
                number(&bytes, len).ok()
            });
            // A client that connects again has lost its connection, whose data must not come later.
            links.retain(|link: &mut Link<Arc<Session>, _>| {
                !link.is_lost() && Some(link.session().name) != name
            });
            links.iter().for_each(probe);
            let (Some(endpoint), Some(name)) = (endpoint, name) else {
                // This rejects a client without a name.
                continue;
            };
            if store.is_none() {
                store = BlockDevice::open(self.device, &self.wake).ok();
            }
            let Some(store) = store.as_ref().filter(|_| links.len() < MAX_LINKS) else {
                // This rejects it.
                drop(endpoint);
                continue;
            };
            let link = self.accept(endpoint, name, store);
            let kept = link.and_then(|link| Ok(links.push(link, GFP_KERNEL)?));
            if let Err(error) = kept {
                pr_err!("a connection is refused: error {}\n", error.to_errno());
            }
        }
    }
}

struct MkeyRblkServer {
    server: Arc<Server>,
    _files: Pin<KBox<Scope<Arc<Moved>>>>,
    // Dropped after `Drop::drop()` has told it to end.
    _thread: Thread,
}

impl kernel::Module for MkeyRblkServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let (wake, memory) = (Wake::new()?, value(module_parameters::memory.value()));
        let probe_ms = value(module_parameters::probe_ms.value());
        if memory == 0 || memory > 64 || probe_ms == 0 {
            return Err(EINVAL);
        }
        let moved = Moved {
            ram: Atomic::new(0),
            device: Atomic::new(0),
        };
        let moved = Arc::new(moved, GFP_KERNEL)?;
        let files = Scope::dir(moved.clone(), c"mkey_rblk_server", |moved, dir| {
            dir.read_callback_file(c"moved", moved, &show);
        });
        let files = KBox::pin_init(files, GFP_KERNEL)?;
        let device = value(module_parameters::device.value());
        let store = BlockDevice::open(device, &wake)?;
        let server = Server {
            device,
            class: value(module_parameters::dm_class.value()).into(),
            buffers: memory as usize * MAX_SEGMENTS,
            probe_ms,
            moved,
            listener: Listener::new(&Net::current()?, PORT, &wake)?,
            wake,
            ending: Atomic::new(false),
        };
        let server = Arc::new(server, GFP_KERNEL)?;
        let running = server.clone();
        let thread = Thread::spawn(c"mkey_rblk_server", move || {
            without_io(|| running.run(store))
        })?;
        Ok(Self {
            server,
            _files: files,
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
