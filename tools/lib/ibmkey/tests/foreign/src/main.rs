// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Makes keys with the context, the protection domain and the MRs of rrddmma, a verbs crate of
//! another project, and transfers through them by its queue pair.
//!
//! usage: ibmkey-foreign DEVICE

use std::{
    error::Error,
    mem,
    os::fd::{
        AsRawFd,
        BorrowedFd, //
    },
};

use ibmkey::{
    keys::{
        self,
        Access,
        Key,
        Slice as Bytes, //
    },
    Errno,
};
use rrddmma::{
    bindings::{
        ibv_dereg_mr,
        ibv_send_wr,
        ibv_sge,
        ibv_wr_opcode, //
    },
    prelude::{
        Context,
        Cq,
        MrRemote,
        Nic,
        Pd,
        Qp,
        QpCaps,
        QpType,
        Slicing,
        WcStatus, //
    },
    wrap::RegisteredMem,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The length of a row of the matrix of bytes. The keys describe a column of the matrix.
const ROW: usize = 24;
const ROWS: usize = 16;
const ELEMENT: usize = 4;
const COLUMN: usize = 8;
const LENGTH: usize = ROWS * ELEMENT;

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// The objects of rrddmma.
struct Side {
    context: Context,
    pd: Pd,
    other: Pd,
    qp: Qp,
    matrix: RegisteredMem,
    plain: RegisteredMem,
}

impl Side {
    fn open(name: &str) -> Result<Self> {
        let Nic { context, ports } = Nic::finder().dev_name(name).probe()?;
        let port = ports.first().ok_or("the device has no port")?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, Cq::DEFAULT_CQ_DEPTH)?;
        let mut qp = Qp::builder()
            .qp_type(QpType::Rc)
            .caps(QpCaps::default())
            .send_cq(&cq)
            .recv_cq(&cq)
            .sq_sig_all(true)
            .build(&pd)?;

        qp.bind_local_port(port, None)?;
        // The queue pair is its own peer.
        qp.bind_peer(qp.endpoint().ok_or("the queue pair has no address")?)?;
        let contents: Vec<u8> = (0..ROW * ROWS).map(|byte| (byte % 251) as u8).collect();
        Ok(Self {
            other: Pd::new(&context)?,
            matrix: RegisteredMem::new_with_content(&pd, &contents)?,
            plain: RegisteredMem::new(&pd, LENGTH)?,
            context,
            pd,
            qp,
        })
    }

    /// Waits until a request completes.
    fn completes(&self) -> Result {
        match self.qp.scq().poll_one_blocking()?.status() {
            WcStatus::Success => Ok(()),
            status => Err(format!("a request completed with {status:?}").into()),
        }
    }

    /// Writes all of a key, which the request names by its lkey, into `plain`.
    fn write_from(&self, key: &Key<'_>) -> Result {
        let mut sge = ibv_sge {
            addr: 0,
            length: u32::try_from(key.length())?,
            lkey: key.lkey(),
        };
        // SAFETY: All fields are numbers, pointers or unions of them, which may be zero.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };

        request.sg_list = &mut sge;
        request.num_sge = 1;
        request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.wr.rdma.remote_addr = self.plain.addr() as u64;
        request.wr.rdma.rkey = self.plain.mr().rkey();
        // SAFETY: The request has one element. Both are valid during the call, which does not keep
        // them.
        unsafe { self.qp.post_raw_send(&request) }?;
        self.completes()
    }

    /// Writes `plain` into all of a key, which the request names by its rkey.
    fn write_to(&self, key: &Key<'_>) -> Result {
        let remote = MrRemote::new(0, usize::try_from(key.length())?, key.rkey());

        self.qp
            .write(&[self.plain.as_slice()], &remote, 0, None, true)?;
        self.completes()
    }

    /// Reads all of a key, which the request names by its rkey, into `plain`.
    fn read_from(&self, key: &Key<'_>) -> Result {
        let remote = MrRemote::new(0, usize::try_from(key.length())?, key.rkey());

        self.qp.read(&[self.plain.as_slice()], &remote, 0, true)?;
        self.completes()
    }

    /// Transfers through a key of a column of the matrix, and through a key of that key.
    fn column(&self, pd: &keys::Pd<'_>) -> Result {
        let before = bytes(&self.matrix);
        let key = Key::of_strided(pd, column(&self.matrix)?, &[16], &[24], all())?;

        self.write_from(&key)?;
        if bytes(&self.plain) != elements(&before) {
            return Err("a WRITE from the column has wrong bytes".into());
        }
        set(&self.plain, 0x40);
        self.write_to(&key)?;
        let (after, sent) = (bytes(&self.matrix), bytes(&self.plain));
        let beside = |bytes: &[u8]| -> Vec<u8> {
            let outside = |at: &usize| !(COLUMN..COLUMN + ELEMENT).contains(&(at % ROW));
            (0..bytes.len())
                .filter(outside)
                .map(|at| bytes[at])
                .collect()
        };
        if elements(&after) != sent || beside(&after) != beside(&before) {
            return Err("a WRITE into the column has wrong bytes".into());
        }

        // The second key describes the second half of the column, and then the first half.
        let (low, high) = (key.slice(0..32)?, key.slice(32..64)?);
        let turned = Key::of_slices(pd, &[high, low], all())?;
        self.read_from(&turned)?;
        let mut expected = elements(&after);
        expected.rotate_left(32);
        if bytes(&self.plain) != expected {
            return Err("a READ of a key of the key has wrong bytes".into());
        }

        // The MR stays while a key describes it, even if the crate that made it deregisters it.
        // SAFETY: If this call succeeds, the program ends without using the MR again.
        if unsafe { ibv_dereg_mr(self.matrix.mr().as_raw()) } != Errno::EBUSY.get() {
            return Err("an MR that a key describes was deregistered".into());
        }
        Ok(())
    }

    /// Transfers through a key of device memory and of memory of the other crate.
    fn device_memory(&self, pd: &keys::Pd<'_>) -> Result {
        let memory = pd.alloc_dm(4096, all())?;
        let numbers: Vec<u8> = (100..132).collect();

        memory.write(64, &numbers)?;
        let parts = [memory.slice(64..96)?, column(&self.matrix)?.slice(0..4)?];
        let key = Key::of_slices(pd, &parts, all())?;
        set(&self.plain, 0);
        self.write_from(&key)?;
        let (got, matrix) = (bytes(&self.plain), bytes(&self.matrix));
        if got[..32] != numbers || got[32..36] != matrix[COLUMN..COLUMN + ELEMENT] {
            return Err("a WRITE from device memory has wrong bytes".into());
        }
        Ok(())
    }
}

/// Returns the first element of the column.
fn column(matrix: &RegisteredMem) -> Result<Bytes<'_>> {
    // SAFETY: The MR and its memory belong to the borrowed object. This program makes no references
    // to the memory.
    let whole = unsafe {
        Bytes::from_raw(
            matrix.mr().lkey(),
            matrix.addr() as u64,
            matrix.mr().len() as u64,
        )
    };

    Ok(whole.slice(COLUMN as u64..(COLUMN + ELEMENT) as u64)?)
}

/// Returns the elements of the column, one after another.
fn elements(matrix: &[u8]) -> Vec<u8> {
    matrix
        .chunks(ROW)
        .flat_map(|row| &row[COLUMN..COLUMN + ELEMENT])
        .copied()
        .collect()
}

/// Returns a copy of registered memory.
fn bytes(memory: &RegisteredMem) -> Vec<u8> {
    // SAFETY: Each byte is in the memory. The device may write it at any time.
    let byte = |at| unsafe { memory.addr().add(at).read_volatile() };

    (0..memory.mr().len()).map(byte).collect()
}

/// Fills registered memory with bytes that differ from each other.
fn set(memory: &RegisteredMem, first: u8) {
    for at in 0..memory.mr().len() {
        // SAFETY: The byte is in the memory. The device may read it at any time.
        unsafe {
            memory
                .addr()
                .add(at)
                .write_volatile(first.wrapping_add(at as u8))
        };
    }
}

fn main() -> Result {
    let name = std::env::args().nth(1).ok_or("usage: foreign DEVICE")?;
    let side = Side::open(&name)?;
    // SAFETY: Both protection domains and the context belong to `side`, which outlives the keys.
    let (by_pointer, by_number, other) = unsafe {
        (
            keys::Pd::from_raw(side.pd.as_raw().cast())?,
            keys::Pd::from_handle(
                BorrowedFd::borrow_raw(side.context.as_raw_fd()),
                (*side.pd.as_raw()).handle,
            ),
            keys::Pd::from_raw(side.other.as_raw().cast())?,
        )
    };

    for pd in [by_pointer, by_number] {
        side.column(&pd)?;
        side.device_memory(&pd)?;
    }
    let wrong = Key::of_strided(&other, column(&side.matrix)?, &[16], &[24], all());
    if wrong.map(drop).map_err(Errno::get) != Err(libc::ENOENT) {
        return Err("a key describes an MR of another protection domain".into());
    }
    println!("a column, a key of it and device memory: by pointers and by numbers of rrddmma");
    Ok(())
}
