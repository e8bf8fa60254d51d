// SPDX-License-Identifier: GPL-2.0

//! A ULP in Rust that uses device memory and keys. It shows which functions to call, and when.
//!
//! Loading the module runs the ULP once, between two devices of two network namespaces or with one
//! device. The module loads if every byte was where it should be, and fails to load otherwise.

use bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_HOST as DM_HOST;
use core::borrow::Borrow;
use kernel::{prelude::*, sync::Arc};
use kernel_ext::{
    rdma::ulp::{
        BindRefused, DeviceMemory, DevicePd, Devices, DmRegion, HeldDevice, HostBuffer, Layout,
        LeafBlock, Mkey, Op, Poll, Remote, Right, Status, Unbound, Wr,
    },
    thread::Wake,
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

module! {
    type: MkeyUlp,
    name: "mkey_ulp_rust",
    authors: ["The ib_mkey authors"],
    description: "Sample of a kernel user of RDMA device memory and memory keys, in Rust",
    license: "GPL",
    imports_ns: ["IB_MKEY"],
    params: {
        device: u32 {
            default: 0,
            description: "RDMA device that asks, by its number in rdma dev",
        },
        peer: u32 {
            default: 1,
            description: "RDMA device that has the memory, by its number in rdma dev",
        },
        rounds: u32 {
            default: 3,
            description: "The number of connections that are made and ended first",
        },
    },
}

/// Returns the value of a parameter. Linux 7.2 returns a reference to it, 7.3 the value.
fn value(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

#[macro_use]
#[path = "mkey_ulp_rust_side.rs"]
mod side;
use side::{all_access, bytes_of, depth, fill, Pair, Step, DM_LEN, HOST_LEN};
#[path = "mkey_ulp_rust_refusals.rs"]
mod refusals;
use refusals::{other_domains, refusals, refused};
#[path = "mkey_ulp_rust_verbs.rs"]
mod verbs;

/// Is rejected, and gets the reason.
fn rejected(pair: &mut Pair) -> Result {
    const REASON: &[u8] = b"no more";
    let (asked, endpoint) = pair.ask(&depth(Poll::Workqueue))?;
    endpoint.reject(REASON)?;
    let rejected = asked.wait().err().ok_or(EIO)?;
    expect!(rejected.error.to_errno() == -(bindings::ECONNREFUSED as i32));
    let (reason, rest) = rejected.private.split_at(REASON.len());
    expect!(reason == REASON && rest.iter().all(|byte| *byte == 0));
    Ok(())
}

/// Counts in device memory: the other node adds, and the host reads.
fn counter(
    pair: &mut Pair,
    host: &Arc<HostBuffer>,
    memory: &DeviceMemory,
    region: &DmRegion,
) -> Result {
    const ADDITIONS: u64 = 100;
    const STEP: u64 = 7;
    const FIRST: u64 = 5;
    // The words on both sides of the counter have this value, which no transfer may change.
    const GUARD: u64 = 0x0123_4567_89ab_cdef;
    const AT: u64 = 64;

    for (word, at) in [(GUARD, AT - 8), (FIRST, AT), (GUARD, AT + 8)] {
        memory.write(at, &word.to_ne_bytes())?;
    }
    let remote = Remote {
        addr: AT,
        rkey: region.rkey(),
    };
    let mut word = [0; 8];
    for i in 0..ADDITIONS {
        let add = Op::FetchAdd(remote, STEP);
        expect!(pair.here.execute(add, host, 0, 8)?.is_ok());
        host.read(0, &mut word)?;
        expect!(u64::from_ne_bytes(word) == FIRST + i * STEP);
    }
    for (expected, at) in [
        (GUARD, AT - 8),
        (FIRST + ADDITIONS * STEP, AT),
        (GUARD, AT + 8),
    ] {
        memory.read(at, &mut word)?;
        expect!(u64::from_ne_bytes(word) == expected);
    }
    Ok(())
}

/// Copies a column of one matrix to a column of another, whose rows have a different length.
fn column(pair: &mut Pair) -> Result {
    const BLOCK: usize = 16;
    const ROWS: usize = 32;
    const LEN: usize = BLOCK * ROWS;
    // The length of a row, and the offset of the column in it, in the two matrices.
    const FROM: (usize, usize) = (48, 8);
    const TO: (usize, usize) = (72, 40);

    let from = HostBuffer::new(&pair.here.device, FROM.0 * ROWS)?;
    let to = HostBuffer::new(&pair.there.device, TO.0 * ROWS)?;
    fill(&from, 1)?;

    let strided =
        |pd: &Arc<DevicePd>, matrix: &Arc<HostBuffer>, (row, at): (usize, usize), base| {
            let block = LeafBlock::new(matrix, at as u64, BLOCK as u64).with_stride([row as i64]);
            let layout = Layout::Interleaved {
                repeat: &[ROWS as u64],
                blocks: &[block],
            };
            Ok::<_, Error>(Mkey::new_at(pd, 1, base)?.bind(all_access(), layout)?)
        };
    let source = strided(&pair.here.pd, &from, FROM, 0)?;
    // The peer names the bytes of this key by addresses from here on.
    let target = strided(&pair.there.pd, &to, TO, 0x1234_5678_9000)?;
    let remote = Remote {
        addr: target.base(),
        rkey: target.rkey(),
    };
    let mut write = Wr::with_key(Step, source)?;
    write.add_own(LEN)?;
    expect!(pair.here.run(write, Op::Write(remote))?.result.is_ok());

    let sent = bytes_of(&from)?;
    for (i, byte) in bytes_of(&to)?.iter().enumerate() {
        let (row, in_row) = (i / TO.0, i % TO.0);
        let expected = match in_row.checked_sub(TO.1) {
            Some(in_block) if in_block < BLOCK => sent.get(row * FROM.0 + FROM.1 + in_block),
            _ => Some(&0),
        };
        expect!(Some(byte) == expected);
    }
    Ok(())
}

/// Gathers blocks of a table by their numbers, some of them more than once.
fn gather(pair: &mut Pair) -> Result {
    const BLOCK: usize = 24;
    const UNIT: usize = 32;
    const BLOCKS: [u32; 6] = [30, 2, 3, 3, 17, 0];
    const FIRST: usize = 8;

    let table = HostBuffer::new(&pair.there.device, FIRST + 30 * UNIT + BLOCK)?;
    let into = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    fill(&table, 3)?;
    let first = LeafBlock::new(&table, FIRST as u64, BLOCK as u64);
    let at = |indices| Layout::Indexed {
        first: &first,
        unit: UNIT as u64,
        indices,
    };
    let key = Mkey::new(&pair.there.pd, 8)?;
    // With the local DMA lkey alone, this bind would succeed.
    let key = refused(key.bind(all_access(), at(&[0, 31])), ERANGE)?;
    let key = refused(key.bind(all_access(), at(&[])), EINVAL)?;
    let key = refused(key.bind(all_access(), at(&[0; 9])), ENOSPC)?;
    let key = key.bind(all_access(), at(&BLOCKS))?;
    let remote = Remote {
        addr: 0,
        rkey: key.rkey(),
    };
    let len = BLOCK * BLOCKS.len();
    expect!(pair.here.execute(Op::Read(remote), &into, 0, len)?.is_ok());

    let sent = bytes_of(&table)?;
    for (i, byte) in bytes_of(&into)?.iter().enumerate() {
        let expected = match BLOCKS.get(i / BLOCK) {
            Some(block) => sent.get(FIRST + *block as usize * UNIT + i % BLOCK),
            None => Some(&0),
        };
        expect!(Some(byte) == expected);
    }
    Ok(())
}

/// Sends messages whose parts a key describes. Requests bind the key, write each message, and unbind
/// the key.
fn messages(pair: &mut Pair) -> Result {
    const PART: usize = 40;
    const GAP: usize = 25;
    const LEN: usize = 3 * PART;

    let from = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    let into = HostBuffer::new(&pair.there.device, HOST_LEN)?;
    let target = Mkey::new(&pair.there.pd, 1)?;
    let target = target.bind(
        all_access(),
        Layout::List(&[LeafBlock::new(&into, 0, LEN as u64)]),
    )?;
    let remote = Remote {
        addr: 0,
        rkey: target.rkey(),
    };
    let mut key = Mkey::new_at(&pair.here.pd, 3, 1 << 40)?;
    for message in 0..10 {
        fill(&from, message)?;
        let at = |part: usize| message * 100 + part * (PART + GAP);
        let part = |number| LeafBlock::new(&from, at(number) as u64, PART as u64);
        let old = key.rkey();
        let staged = key.stage(Layout::List(&[part(0), part(1), part(2)]))?;
        expect!(staged.rkey() != old);
        let bind = Wr::with_key(Step, staged)?;
        let bound = pair
            .here
            .run(bind, Op::Register(Right::LocalWrite.into()))?;
        expect!(bound.result.is_ok());
        let mut write = bound.wr;
        write.add_own(LEN)?;
        let written = pair.here.run(write, Op::Write(remote))?;
        expect!(written.result.is_ok());
        let mut unbound = pair.here.run(written.wr, Op::Invalidate)?;
        expect!(unbound.result.is_ok());
        key = unbound.wr.take_key().ok_or(EIO)?.unbind()?;
        let (sent, got) = (bytes_of(&from)?, bytes_of(&into)?);
        for (i, byte) in got.iter().enumerate() {
            let expected = match i {
                0..LEN => sent.get(at(i / PART) + i % PART),
                _ => Some(&0),
            };
            expect!(Some(byte) == expected);
        }
    }

    // After a bind by a request, a peer writes by the rkey of the key. After the key is unbound,
    // the rkey is refused.
    let layout = Layout::Interleaved {
        repeat: &[4],
        blocks: &[LeafBlock::new(&into, 7, 3).with_stride([10])],
    };
    let staged = target.unbind()?.stage(layout)?;
    let bind = Wr::with_key(Step, staged)?;
    let bound = pair.there.run(bind, Op::Register(all_access()))?;
    expect!(bound.result.is_ok());
    let remote = Remote {
        addr: 0,
        rkey: bound.wr.rkey(),
    };
    expect!(pair.here.execute(Op::Write(remote), &from, 0, 12)?.is_ok());
    let (sent, got) = (bytes_of(&from)?, bytes_of(&into)?);
    for i in 0..12 {
        expect!(got.get(7 + i / 3 * 10 + i % 3) == sent.get(i));
    }
    let mut unbound = pair.there.run(bound.wr, Op::Invalidate)?;
    expect!(unbound.result.is_ok());
    let target = unbound.wr.take_key().ok_or(EIO)?.unbind()?;
    // A request that is too long for rxe is not posted. The next completion is that of the next
    // request.
    let staged = key.stage(Layout::List(&[LeafBlock::new(&from, 0, 8)]))?;
    let mut much = Wr::with_key(Step, staged)?;
    much.add_own(u32::MAX as usize)?;
    let much = pair
        .here
        .link
        .as_ref()
        .ok_or(EIO)?
        .post(much, Op::Write(remote));
    let mut much = much.err().ok_or(EIO)?;
    expect!(much.error == EINVAL);
    much.wr.take_key().ok_or(EIO)?.unbind()?;
    let refused = pair.here.execute(Op::Write(remote), &from, 0, 12)?;
    expect!(refused == Err(Status::REMOTE_ACCESS));
    pair.connect(Poll::Workqueue)?;

    // Staging finds errors in a description. The request finds all other errors.
    let Err(BindRefused { key, error }) = target.stage(Layout::List(&[])) else {
        return Err(EIO);
    };
    expect!(error == EINVAL);
    let staged = key.stage(Layout::Indexed {
        first: &LeafBlock::new(&into, 0, 8),
        unit: 8,
        indices: &[3],
    })?;
    // Remote writes need local writes.
    let bind = Wr::with_key(Step, staged)?;
    let bound = pair
        .there
        .run(bind, Op::Register(Right::RemoteWrite.into()))?;
    expect!(bound.result == Err(Status::BIND));
    pair.connect(Poll::Workqueue)
}

/// Sends from device memory by its lkey.
fn staging(pair: &mut Pair, memory: &DeviceMemory, region: &Arc<DmRegion>) -> Result {
    const LEN: usize = 100;
    const AT: u64 = 1001;

    let into = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    let key = Mkey::new(&pair.here.pd, 1)?;
    let key = key.bind(
        all_access(),
        Layout::List(&[LeafBlock::new(&into, 0, LEN as u64)]),
    )?;
    let message: [u8; LEN] = core::array::from_fn(|i| i as u8 + 1);
    // Write the message in two pieces. The end comes first.
    let (head, tail) = message.split_at(LEN / 3);
    memory.write(AT + head.len() as u64, tail)?;
    memory.write(AT, head)?;
    let write = Op::Write(Remote {
        addr: 0,
        rkey: key.rkey(),
    });
    let sent = pair.there.execute(write, region, AT as usize, LEN)?;
    expect!(sent.is_ok());

    for (i, byte) in bytes_of(&into)?.iter().enumerate() {
        expect!(byte == message.get(i).unwrap_or(&0));
    }
    Ok(())
}

/// Binds device memory and host memory to one key, then unbinds the key.
fn composite(
    pair: &mut Pair,
    key: Mkey<Unbound>,
    memory: Arc<DeviceMemory>,
    region: Arc<DmRegion>,
) -> Result {
    const HEAD: [u8; 20] = [100; 20];

    let into = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    let body = HostBuffer::new(&pair.there.device, HOST_LEN)?;
    fill(&body, 2)?;
    memory.write(10, &HEAD)?;
    let parts = [
        LeafBlock::new(&region, 10, 20),
        LeafBlock::new(&body, 5, 30),
    ];
    let key = key.bind(all_access(), Layout::List(&parts))?;
    let sent = bytes_of(&body)?;
    // The bound key keeps the MRs that it refers to.
    drop((parts, region, memory, body));

    let remote = Remote {
        addr: 0,
        rkey: key.rkey(),
    };
    let all = Op::Read(remote);
    expect!(pair.here.execute(all, &into, 0, 50)?.is_ok());
    for (i, byte) in bytes_of(&into)?.iter().enumerate() {
        let expected = match i {
            0..20 => HEAD.get(i),
            20..50 => sent.get(i - 20 + 5),
            _ => Some(&0),
        };
        expect!(Some(byte) == expected);
    }

    // The unbind releases the MRs.
    let _key = key.unbind()?;
    let refused = pair.here.execute(all, &into, 0, 50)?;
    expect!(refused == Err(Status::REMOTE_ACCESS));
    pair.connect(Poll::Workqueue)
}

/// Binds a key to bytes of another key. The outer key keeps the inner one.
fn nested(pair: &mut Pair) -> Result {
    // The inner key has every third byte, the outer one two pieces of the inner one.
    const INNER: u64 = 100;
    const AT: [usize; 2] = [70, 9];
    const PIECE: usize = 20;

    let from = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    let into = HostBuffer::new(&pair.there.device, HOST_LEN)?;
    fill(&from, 6)?;
    let thirds = |pd: &Arc<DevicePd>, buffer: &Arc<HostBuffer>| {
        let block = LeafBlock::new(buffer, 0, 1).with_stride([3]);
        let layout = Layout::Interleaved {
            repeat: &[INNER],
            blocks: &[block],
        };
        let key = Mkey::new_at(pd, 1, 1 << 32)?.bind(all_access(), layout)?;
        Ok::<_, Error>(Arc::new(key, GFP_KERNEL)?)
    };
    let inner = thirds(&pair.there.pd, &into)?;
    let piece = |at: usize| LeafBlock::new(&inner, at as u64, PIECE as u64);
    let key = Mkey::new(&pair.there.pd, 2)?;
    let beyond = [piece(INNER as usize - PIECE + 1)];
    let key = refused(key.bind(all_access(), Layout::List(&beyond)), ERANGE)?;
    let elsewhere = Mkey::new(&pair.here.pd, 1)?.bind(all_access(), Layout::List(&[piece(0)]));
    refused(elsewhere, EINVAL)?;
    let outer = key.bind(all_access(), Layout::List(&AT.map(piece)))?;
    let far = |addr, rkey| Op::Write(Remote { addr, rkey });
    let (all, alone) = (far(0, outer.rkey()), far(inner.base(), inner.rkey()));
    drop((beyond, inner));

    // A key is memory of a request, too.
    let source = thirds(&pair.here.pd, &from)?;
    let mut write = Wr::new(Step, None)?;
    expect!(write.add(&source, INNER as usize - 2 * PIECE + 1, 2 * PIECE) == Err(ERANGE));
    write.add(&source, 11, 2 * PIECE)?;
    expect!(pair.here.run(write, all)?.result.is_ok());
    let sent = bytes_of(&from)?;
    let mut expected = KVec::from_elem(0, HOST_LEN, GFP_KERNEL)?;
    for i in 0..2 * PIECE {
        let at = AT.get(i / PIECE).ok_or(EIO)? + i % PIECE;
        *expected.get_mut(3 * at).ok_or(EIO)? = *sent.get(3 * (11 + i)).ok_or(EIO)?;
    }
    expect!(*bytes_of(&into)? == *expected);

    // The inner key lasts as long as the outer one is bound.
    expect!(pair.here.execute(alone, &from, 0, 1)?.is_ok());
    let _key = outer.unbind()?;
    expect!(pair.here.execute(alone, &from, 0, 1)? == Err(Status::REMOTE_ACCESS));
    pair.connect(Poll::Workqueue)
}

/// Runs all steps from the device that posts requests to the one that has the memory.
fn run(here: HeldDevice, there: HeldDevice, wake: &Arc<Wake>) -> Result {
    let mut pair = Pair::new(here, there, wake)?;
    for _ in 0..value(module_parameters::rounds.value()) {
        pair.connect(Poll::Workqueue)?;
    }
    rejected(&mut pair)?;
    for poll in [Poll::Softirq, Poll::Direct, Poll::Workqueue] {
        pair.connect(poll)?;
        verbs::all(&mut pair, poll)?;
    }
    verbs::shared(&mut pair)?;
    pair.connect(Poll::Workqueue)?;

    let host = HostBuffer::new(&pair.here.device, HOST_LEN)?;
    let memory = DeviceMemory::new(&pair.there.device, DM_LEN, 3, 0)?;
    let region = DmRegion::new(&pair.there.pd, &memory, 0, DM_LEN, all_access())?;
    counter(&mut pair, &host, &memory, &region)?;
    column(&mut pair)?;
    gather(&mut pair)?;
    nested(&mut pair)?;
    staging(&mut pair, &memory, &region)?;
    messages(&mut pair)?;
    other_domains(&mut pair, &region)?;
    let key = refusals(&pair, &memory)?;
    composite(&mut pair, key, memory, region)?;
    // `composite()` has freed the device memory, so allocate some again.
    let memory = DeviceMemory::new(&pair.there.device, DM_LEN, 3, DM_HOST.into())?;
    let region = DmRegion::new(&pair.there.pd, &memory, 0, DM_LEN, all_access())?;
    counter(&mut pair, &host, &memory, &region)
}

struct MkeyUlp {
    // Keeps the client registered while the module is loaded, so that devices are added to it and
    // removed from it.
    _devices: Devices,
}

impl kernel::Module for MkeyUlp {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let wake = Wake::new()?;
        let devices = Devices::new(&wake)?;
        let here = devices.hold(value(module_parameters::device.value()))?;
        let there = devices.hold(value(module_parameters::peer.value()))?;
        run(here, there, &wake)?;
        pr_info!("device memory and keys work\n");
        Ok(Self { _devices: devices })
    }
}
