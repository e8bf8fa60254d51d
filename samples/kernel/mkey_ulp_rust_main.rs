// SPDX-License-Identifier: GPL-2.0

//! A ULP in Rust that uses device memory and keys. It shows which functions to call, and when.
//!
//! Loading the module runs the ULP once between two devices. The module loads if every byte was
//! where it should be, and fails to load otherwise.

use bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_HOST as DM_HOST;
use core::borrow::Borrow;
use kernel::{prelude::*, sync::Arc};
use kernel_ext::rdma::ulp::{
    BindRefused, DeviceMemory, DevicePd, Devices, DmRegion, HeldDevice, HostBuffer, Layout,
    LeafBlock, Local, Mkey, Qp, Remote, Right, Status, Unbound, Work,
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
    },
}

/// Returns the value of a parameter. Linux 7.2 returns a reference to it, 7.3 the value.
fn value(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

#[macro_use]
#[path = "mkey_ulp_rust_side.rs"]
mod side;
use side::{all_access, Side, DM_LEN, HOST_LEN};
#[path = "mkey_ulp_rust_refusals.rs"]
mod refusals;
use refusals::{other_domains, refusals, refused};

/// Fills a buffer with bytes that seldom repeat.
fn fill(buffer: &HostBuffer, seed: usize) -> Result {
    for i in 0..buffer.len() {
        buffer.write(i, &[(i * 3 + i / 256 + seed) as u8])?;
    }
    Ok(())
}

/// Returns all bytes of a buffer.
fn bytes_of(buffer: &HostBuffer) -> Result<KVec<u8>> {
    let mut bytes = KVec::from_elem(0, buffer.len(), GFP_KERNEL)?;
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Counts in device memory: the other node adds, and the host reads.
fn counter(
    here: &mut Side,
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
    let old = Local::Memory(LeafBlock::new(host, 0, 8));
    for i in 0..ADDITIONS {
        let status = here.qp.execute(Work::FetchAdd(STEP), &old, remote)?;
        expect!(status == Status::SUCCESS);
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
fn column(here: &mut Side, there: &Side) -> Result {
    const BLOCK: usize = 16;
    const ROWS: usize = 32;
    const LEN: usize = BLOCK * ROWS;
    // The length of a row, and the offset of the column in it, in the two matrices.
    const FROM: (usize, usize) = (48, 8);
    const TO: (usize, usize) = (72, 40);

    let from = HostBuffer::new(&here.device, FROM.0 * ROWS)?;
    let to = HostBuffer::new(&there.device, TO.0 * ROWS)?;
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
    let source = strided(&here.pd, &from, FROM, 0)?;
    // The peer names the bytes of this key by addresses from here on.
    let target = strided(&there.pd, &to, TO, 0x1234_5678_9000)?;
    let local = Local::Key(&source, LEN as u32);
    let remote = Remote {
        addr: target.base(),
        rkey: target.rkey(),
    };
    expect!(here.qp.execute(Work::Write, &local, remote)? == Status::SUCCESS);

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
fn gather(here: &mut Side, there: &Side) -> Result {
    const BLOCK: usize = 24;
    const UNIT: usize = 32;
    const BLOCKS: [u32; 6] = [30, 2, 3, 3, 17, 0];
    const FIRST: usize = 8;

    let table = HostBuffer::new(&there.device, FIRST + 30 * UNIT + BLOCK)?;
    let into = HostBuffer::new(&here.device, HOST_LEN)?;
    fill(&table, 3)?;
    let first = LeafBlock::new(&table, FIRST as u64, BLOCK as u64);
    let at = |indices| Layout::Indexed {
        first: &first,
        unit: UNIT as u64,
        indices,
    };
    let key = Mkey::new(&there.pd, 8)?;
    // With the local DMA lkey alone, this bind would succeed.
    let key = refused(key.bind(all_access(), at(&[0, 31])), ERANGE)?;
    let key = refused(key.bind(all_access(), at(&[])), EINVAL)?;
    let key = refused(key.bind(all_access(), at(&[0; 9])), ENOSPC)?;
    let key = key.bind(all_access(), at(&BLOCKS))?;
    let remote = Remote {
        addr: 0,
        rkey: key.rkey(),
    };
    let local = Local::Memory(LeafBlock::new(&into, 0, (BLOCK * BLOCKS.len()) as u64));
    expect!(here.qp.execute(Work::Read, &local, remote)? == Status::SUCCESS);

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
fn messages(here: &mut Side, there: &mut Side) -> Result {
    const PART: usize = 40;
    const GAP: usize = 25;
    const LEN: usize = 3 * PART;

    let from = HostBuffer::new(&here.device, HOST_LEN)?;
    let into = HostBuffer::new(&there.device, HOST_LEN)?;
    let target = Mkey::new(&there.pd, 1)?;
    let target = target.bind(
        all_access(),
        Layout::List(&[LeafBlock::new(&into, 0, LEN as u64)]),
    )?;
    let remote = Remote {
        addr: 0,
        rkey: target.rkey(),
    };
    let mut key = Mkey::new_at(&here.pd, 3, 1 << 40)?;
    for message in 0..10 {
        fill(&from, message)?;
        let at = |part: usize| message * 100 + part * (PART + GAP);
        let part = |number| LeafBlock::new(&from, at(number) as u64, PART as u64);
        let old = key.rkey();
        let staged = key.stage(Layout::List(&[part(0), part(1), part(2)]))?;
        expect!(staged.rkey() != old);
        let Ok(bound) = here.qp.bind(staged, Right::LocalWrite.into())? else {
            return Err(EIO);
        };
        let local = Local::Key(&bound, LEN as u32);
        expect!(here.qp.execute(Work::Write, &local, remote)? == Status::SUCCESS);
        let status;
        (status, key) = here.qp.unbind(bound)?;
        expect!(status == Status::SUCCESS);
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
    let Ok(target) = there.qp.bind(staged, all_access())? else {
        return Err(EIO);
    };
    let remote = Remote {
        addr: 0,
        rkey: target.rkey(),
    };
    let local = Local::Memory(LeafBlock::new(&from, 0, 12));
    expect!(here.qp.execute(Work::Write, &local, remote)? == Status::SUCCESS);
    let (sent, got) = (bytes_of(&from)?, bytes_of(&into)?);
    for i in 0..12 {
        expect!(got.get(7 + i / 3 * 10 + i % 3) == sent.get(i));
    }
    let (status, target) = there.qp.unbind(target)?;
    expect!(status == Status::SUCCESS);
    // A request that is too long for rxe is not posted. The next completion is that of the next
    // request.
    let staged = key.stage(Layout::List(&[LeafBlock::new(&from, 0, 8)]))?;
    let Ok(bound) = here.qp.bind(staged, Right::LocalWrite.into())? else {
        return Err(EIO);
    };
    let much = Local::Key(&bound, u32::MAX);
    expect!(here.qp.execute(Work::Write, &much, remote) == Err(EINVAL));
    expect!(here.qp.execute(Work::Write, &local, remote)? == Status::REMOTE_ACCESS);
    Qp::connect(&mut here.qp, &mut there.qp)?;

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
    let Err((status, _key)) = there.qp.bind(staged, Right::RemoteWrite.into())? else {
        return Err(EIO);
    };
    expect!(status == Status::BIND);
    Qp::connect(&mut here.qp, &mut there.qp)
}

/// Sends from device memory by its lkey.
fn staging(here: &Side, there: &mut Side, memory: &DeviceMemory, region: &Arc<DmRegion>) -> Result {
    const LEN: usize = 100;
    const AT: u64 = 1001;

    let into = HostBuffer::new(&here.device, HOST_LEN)?;
    let key = Mkey::new(&here.pd, 1)?;
    let key = key.bind(
        all_access(),
        Layout::List(&[LeafBlock::new(&into, 0, LEN as u64)]),
    )?;
    let message: [u8; LEN] = core::array::from_fn(|i| i as u8 + 1);
    // Write the message in two pieces. The end comes first.
    let (head, tail) = message.split_at(LEN / 3);
    memory.write(AT + head.len() as u64, tail)?;
    memory.write(AT, head)?;
    let local = Local::Memory(LeafBlock::new(region, AT, LEN as u64));
    let remote = Remote {
        addr: 0,
        rkey: key.rkey(),
    };
    expect!(there.qp.execute(Work::Write, &local, remote)? == Status::SUCCESS);

    for (i, byte) in bytes_of(&into)?.iter().enumerate() {
        expect!(byte == message.get(i).unwrap_or(&0));
    }
    Ok(())
}

/// Binds device memory and host memory to one key, then unbinds the key.
fn composite(
    here: &mut Side,
    there: &mut Side,
    key: Mkey<Unbound>,
    memory: Arc<DeviceMemory>,
    region: Arc<DmRegion>,
) -> Result {
    const HEAD: [u8; 20] = [100; 20];

    let into = HostBuffer::new(&here.device, HOST_LEN)?;
    let body = HostBuffer::new(&there.device, HOST_LEN)?;
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
    let all = Local::Memory(LeafBlock::new(&into, 0, 50));
    expect!(here.qp.execute(Work::Read, &all, remote)? == Status::SUCCESS);
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
    expect!(here.qp.execute(Work::Read, &all, remote)? == Status::REMOTE_ACCESS);
    Qp::connect(&mut here.qp, &mut there.qp)
}

/// Runs all steps from the device that posts requests to the one that has the memory.
fn run(here: HeldDevice, there: HeldDevice) -> Result {
    let mut here = Side::new(here)?;
    let mut there = Side::new(there)?;
    Qp::connect(&mut here.qp, &mut there.qp)?;

    let host = HostBuffer::new(&here.device, HOST_LEN)?;
    let memory = DeviceMemory::new(&there.device, DM_LEN, 3, 0)?;
    let region = DmRegion::new(&there.pd, &memory, 0, DM_LEN, all_access())?;
    counter(&mut here, &host, &memory, &region)?;
    column(&mut here, &there)?;
    gather(&mut here, &there)?;
    staging(&here, &mut there, &memory, &region)?;
    messages(&mut here, &mut there)?;
    other_domains(&mut here, &mut there, &region)?;
    let key = refusals(&here, &there, &memory)?;
    composite(&mut here, &mut there, key, memory, region)?;
    // `composite()` has freed the device memory, so allocate some again.
    let memory = DeviceMemory::new(&there.device, DM_LEN, 3, DM_HOST.into())?;
    let region = DmRegion::new(&there.pd, &memory, 0, DM_LEN, all_access())?;
    counter(&mut here, &host, &memory, &region)
}

struct MkeyUlp {
    // Keeps the client registered while the module is loaded, so that devices are added to it and
    // removed from it.
    _devices: Devices,
}

impl kernel::Module for MkeyUlp {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let devices = Devices::new()?;
        let here = devices.hold(value(module_parameters::device.value()))?;
        let there = devices.hold(value(module_parameters::peer.value()))?;
        run(here, there)?;
        pr_info!("device memory and keys work\n");
        Ok(Self { _devices: devices })
    }
}
