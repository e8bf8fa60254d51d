// SPDX-License-Identifier: GPL-2.0

//! The operations of a connection, and the requests that are refused.

use crate::{
    kernel_ext::rdma::ulp::{
        DeviceMemory, DmRegion, HostBuffer, Layout, LeafBlock, Mkey, Op, Poll, Refused, Remote,
        Srq, Status, Wr, MAX_SEGMENTS,
    },
    side::{
        all_access, bytes_of, fill, Completed, Pair, Side, Step, DEPTH, DM_LEN, HOST_LEN, INLINE,
    },
};
use kernel::{prelude::*, sync::Arc};

/// A number that a message carries.
const NUMBER: u32 = 0x0102_0304;
/// The bytes of a message, which are in three parts.
const PART: usize = 16;
const LEN: usize = 3 * PART;

struct Memory {
    from: Arc<HostBuffer>,
    into: Arc<HostBuffer>,
    /// Device memory of the other side.
    device: Arc<DeviceMemory>,
    region: Arc<DmRegion>,
}

impl Memory {
    /// Makes the memory of both sides, with bytes to send that depend on `seed`.
    fn new(pair: &Pair, seed: usize) -> Result<Self> {
        let device = DeviceMemory::new(&pair.there.device, DM_LEN, 3, 0)?;
        let memory = Self {
            from: HostBuffer::new(&pair.here.device, HOST_LEN)?,
            into: HostBuffer::new(&pair.there.device, HOST_LEN)?,
            region: DmRegion::new(&pair.there.pd, &device, 0, DM_LEN, all_access())?,
            device,
        };
        fill(&memory.from, seed)?;
        Ok(memory)
    }
}

/// Posts a receive in two parts.
fn receive(side: &Side, into: &Arc<HostBuffer>) -> Result {
    let mut wr = Wr::new(Step, None)?;
    wr.add(into, PART, LEN - PART)?;
    wr.add(into, 0, PART)?;
    side.post(wr, Op::Recv)
}

/// Returns a request with a message in three parts.
fn message(memory: &Memory, inline: bool) -> Result<KBox<Wr<Step>>> {
    let mut wr = Wr::new(Step, None)?;
    for part in [2, 0, 1] {
        wr.add(&memory.from, part * PART, PART)?;
    }
    wr.inline = inline;
    Ok(wr)
}

/// Sends a message. Returns the receive.
fn send(pair: &mut Pair, memory: &Memory, op: Op, inline: bool) -> Result<Completed> {
    memory.into.write(0, &[0; LEN])?;
    receive(&pair.there, &memory.into)?;
    expect!(pair.here.run(message(memory, inline)?, op)?.result.is_ok());
    let got = pair.there.wait(true)?;
    expect!(got.result == Ok(LEN as u32));
    let (sent, got_bytes) = (bytes_of(&memory.from)?, bytes_of(&memory.into)?);
    for i in 0..LEN {
        // The sender turns the parts, and the receiver turns what it gets.
        let part = [2, 0, 1].get(i / PART).ok_or(EIO)?;
        let at = (PART + i) % LEN;
        expect!(got_bytes.get(at) == sent.get(part * PART + i % PART));
    }
    Ok(got)
}

fn messages(pair: &mut Pair, memory: &Memory) -> Result {
    expect!(send(pair, memory, Op::Send, false)?.immediate.is_none());
    expect!(send(pair, memory, Op::Send, true)?.immediate.is_none());
    let got = send(pair, memory, Op::SendImmediate(NUMBER), true)?;
    expect!(got.immediate == Some(NUMBER));

    // The write ends before its number comes.
    let remote = Remote {
        addr: 8,
        rkey: memory.region.rkey(),
    };
    receive(&pair.there, &memory.into)?;
    let write = Op::WriteImmediate(remote, !NUMBER);
    expect!(pair.here.execute(write, &memory.from, 0, LEN)?.is_ok());
    expect!(pair.there.wait(true)?.immediate == Some(!NUMBER));
    let (sent, mut got) = (bytes_of(&memory.from)?, [0; LEN]);
    memory.device.read(8, &mut got)?;
    expect!(sent.get(..LEN) == Some(&got[..]));
    Ok(())
}

/// Lends a key, which a message invalidates.
fn invalidate(pair: &mut Pair, memory: &Memory) -> Result {
    let block = [LeafBlock::new(&memory.region, 0, 64)];
    let key = Mkey::new(&pair.there.pd, 1)?.stage(Layout::List(&block))?;
    let bound = pair
        .there
        .run(Wr::with_key(Step, key)?, Op::Register(all_access()))?;
    expect!(bound.result.is_ok());
    let rkey = bound.wr.rkey();
    let write = Op::Write(Remote { addr: 0, rkey });
    expect!(pair.here.execute(write, &memory.from, 0, 64)?.is_ok());
    // An rkey of another MR is no proof.
    pair.there.session.inbox.lock().lent = Some((bound.wr, false));
    send(pair, memory, Op::SendInvalidate(rkey), false)?;
    let lent = pair.there.session.inbox.lock().lent.take();
    let (mut wr, is_invalid) = lent.ok_or(EIO)?;
    expect!(is_invalid);
    // The key is free, so this is refused, and unbinding it needs no call.
    let refused = pair.there.link.as_ref().ok_or(EIO)?;
    let refused = refused.post(wr, Op::Invalidate).err().ok_or(EIO)?;
    expect!(refused.error == EINVAL);
    wr = refused.wr;
    wr.take_key().ok_or(EIO)?.unbind()?;
    Ok(())
}

fn atomics(pair: &mut Pair, memory: &Memory) -> Result {
    let remote = Remote {
        addr: 64,
        rkey: memory.region.rkey(),
    };
    memory.device.write(64, &7u64.to_ne_bytes())?;
    let mut word = [0; 8];
    for (op, old, new) in [
        (Op::CompareSwap(remote, 8, 1), 7, 7),
        (Op::CompareSwap(remote, 7, u64::MAX), 7, u64::MAX),
        (Op::FetchAdd(remote, 3), u64::MAX, 2),
    ] {
        expect!(pair.here.execute(op, &memory.from, 8, 8)?.is_ok());
        memory.from.read(8, &mut word)?;
        expect!(u64::from_ne_bytes(word) == old);
        memory.device.read(64, &mut word)?;
        expect!(u64::from_ne_bytes(word) == new);
    }
    Ok(())
}

/// Reads, and writes what was read by the next request.
fn fenced(pair: &mut Pair, memory: &Memory) -> Result {
    const AT: u64 = 1024;
    const BYTES: usize = 1024;
    let at = |addr| Remote {
        addr,
        rkey: memory.region.rkey(),
    };
    memory.device.write(0, &[0xa5; BYTES])?;
    memory.device.write(AT, &[0; BYTES])?;
    let mut read = Wr::new(Step, None)?;
    read.add(&memory.from, 0, BYTES)?;
    let mut write = Wr::new(Step, None)?;
    write.add(&memory.from, 0, BYTES)?;
    write.fence = true;
    pair.here.post(read, Op::Read(at(0)))?;
    pair.here.post(write, Op::Write(at(AT)))?;
    expect!(pair.here.wait(false)?.result.is_ok());
    expect!(pair.here.wait(false)?.result.is_ok());
    let mut got = [0; BYTES];
    memory.device.read(AT, &mut got)?;
    expect!(got == [0xa5; BYTES]);
    Ok(())
}

/// Requests that are refused, and leave the connection as it is.
fn refusals(pair: &mut Pair, memory: &Memory) -> Result {
    let (here, near) = (&mut pair.here, &memory.from);
    let rkey = memory.region.rkey();
    let at = |addr| Remote { addr, rkey };
    for op in [Op::FetchAdd(at(68), 1), Op::CompareSwap(at(1), 0, 1)] {
        expect!(here.execute(op, near, 0, 8) == Err(EINVAL));
    }
    expect!(here.execute(Op::FetchAdd(at(64), 1), near, 0, 4) == Err(EINVAL));
    expect!(here.post(Wr::new(Step, None)?, Op::FetchAdd(at(64), 1)) == Err(EINVAL));
    expect!(here.post(Wr::new(Step, None)?, Op::Register(all_access())) == Err(EINVAL));
    expect!(here.post(Wr::new(Step, None)?, Op::Invalidate) == Err(EINVAL));
    let mut own = Wr::new(Step, None)?;
    own.add_own(8)?;
    expect!(here.post(own, Op::Send) == Err(EINVAL));

    let inline = |len| {
        let mut wr = Wr::new(Step, None)?;
        wr.add(near, 0, len)?;
        wr.inline = true;
        Ok::<_, Error>(wr)
    };
    expect!(here.post(inline(INLINE as usize + 1)?, Op::Write(at(0))) == Err(EINVAL));
    expect!(here.post(inline(8)?, Op::Read(at(0))) == Err(EINVAL));
    expect!(here.post(inline(8)?, Op::Recv) == Err(EINVAL));
    let mut device = Wr::new(Step, None)?;
    device.add(&memory.region, 0, 8)?;
    device.inline = true;
    expect!(pair.there.post(device, Op::Send) == Err(EINVAL));

    let mut wr = Wr::new(Step, None)?;
    expect!(wr.add(near, HOST_LEN - 7, 8) == Err(ERANGE));
    for _ in 0..MAX_SEGMENTS {
        wr.add(near, 0, 1)?;
    }
    expect!(wr.add(near, 0, 1) == Err(ENOSPC));
    expect!(pair.here.run(wr, Op::Write(at(0)))?.result.is_ok());
    Ok(())
}

/// Posts all that there is room for. A completion that was not polled takes room, so it is not lost.
fn full(pair: &mut Pair, memory: &Memory) -> Result {
    let remote = Remote {
        addr: 0,
        rkey: memory.region.rkey(),
    };
    let write = |side: &Side| {
        let mut wr = Wr::new(Step, None)?;
        wr.add(&memory.from, 0, 8)?;
        side.post(wr, Op::Write(remote))
    };
    for _ in 1..DEPTH {
        write(&pair.here)?;
    }
    // There is room for one, and this is two.
    let block = [LeafBlock::new(&memory.from, 0, 64)];
    let key = Mkey::new(&pair.here.pd, 1)?.stage(Layout::List(&block))?;
    let link = pair.here.link.as_ref().ok_or(EIO)?;
    let both = link.post(Wr::with_key(Step, key)?, Op::RegisterAndSend(all_access()));
    let both = both.err().ok_or(EIO)?;
    expect!(both.error == ENOMEM);
    write(&pair.here)?;
    expect!(write(&pair.here) == Err(ENOMEM));
    expect!(pair.here.wait(false)?.result.is_ok());
    write(&pair.here)?;
    for _ in 0..DEPTH {
        expect!(pair.here.wait(false)?.result.is_ok());
    }
    let bound = pair.here.run(both.wr, Op::Register(all_access()))?;
    expect!(bound.result.is_ok());

    for _ in 0..DEPTH {
        receive(&pair.there, &memory.into)?;
    }
    expect!(receive(&pair.there, &memory.into) == Err(ENOMEM));
    let sent = pair.here.run(message(memory, false)?, Op::Send)?;
    expect!(sent.result.is_ok());
    expect!(receive(&pair.there, &memory.into) == Err(ENOMEM));
    expect!(pair.there.wait(true)?.result == Ok(LEN as u32));
    receive(&pair.there, &memory.into)
}

/// The device accepts REG_MR and refuses the SEND. The request comes back when the link is dropped,
/// and the link refuses requests after that.
fn half_a_request(pair: &mut Pair, memory: &Memory) -> Result {
    let block = [LeafBlock::new(&memory.from, 0, 64)];
    let key = Mkey::new(&pair.here.pd, 1)?.stage(Layout::List(&block))?;
    let mut wr = Wr::with_key(Step, key)?;
    wr.add_own(u32::MAX as usize)?;
    let queue = pair.here.link.as_ref().ok_or(EIO)?.queue();
    let mut done = pair.here.run(wr, Op::RegisterAndSend(all_access()))?;
    expect!(done.result == Err(Status::FLUSHED));
    done.wr.take_key().ok_or(EIO)?.unbind()?;
    expect!(pair.here.link.is_none());
    let late = queue.post(message(memory, false)?, Op::Send);
    let not_connected = -(crate::bindings::ENOTCONN as i32);
    expect!(late.is_err_and(|refused| refused.error.to_errno() == not_connected));
    Ok(())
}

/// Receives messages of several connections, one after another, by the receives of an SRQ.
pub(crate) fn shared(pair: &mut Pair) -> Result {
    let memory = Memory::new(pair, 5)?;
    let last = HostBuffer::new(&pair.there.device, LEN)?;
    let srq = Srq::new(&pair.there.pd, DEPTH)?;
    pair.there.srq = Some(srq.clone());
    pair.connect(Poll::Workqueue)?;
    receive(&pair.there, &memory.into)?;
    // Each connection but the first takes a receive of the one before it, and leaves one.
    for poll in [Poll::Softirq, Poll::Direct, Poll::Workqueue] {
        send(pair, &memory, Op::Send, false)?;
        pair.connect(poll)?;
    }
    let spare = |buffer: &Arc<HostBuffer>| {
        let mut wr = Wr::new(Step, None)?;
        wr.add(buffer, 0, LEN)?;
        Ok::<_, Error>(wr)
    };
    srq.receive(spare(&last)?)?;
    for _ in 2..DEPTH {
        srq.receive(spare(&memory.into)?)?;
    }

    // A receive whose completion was not polled takes room.
    pair.connect(Poll::Direct)?;
    let full = |refused: Refused<Step>| refused.error == ENOMEM;
    expect!(srq.receive(spare(&memory.into)?).is_err_and(full));
    let sent = pair.here.run(message(&memory, false)?, Op::Send)?;
    expect!(sent.result.is_ok());
    expect!(srq.receive(spare(&memory.into)?).is_err_and(full));
    expect!(pair.there.wait(true)?.result == Ok(LEN as u32));
    srq.receive(spare(&memory.into)?)?;

    // The end of the connection leaves the receives. The SRQ frees them.
    pair.there.srq = None;
    pair.connect(Poll::Workqueue)?;
    drop(srq);
    expect!(Arc::into_unique_or_drop(last).is_some());
    Ok(())
}

/// Does all operations on a new connection, which is lost after that.
pub(crate) fn all(pair: &mut Pair, poll: Poll) -> Result {
    let memory = Memory::new(pair, 4)?;
    messages(pair, &memory)?;
    invalidate(pair, &memory)?;
    atomics(pair, &memory)?;
    fenced(pair, &memory)?;
    refusals(pair, &memory)?;
    if poll == Poll::Direct {
        full(pair, &memory)?;
    }
    half_a_request(pair, &memory)
}
