// SPDX-License-Identifier: GPL-2.0

//! Misuse of the verbs for ULPs, and the errors that the compiler finds.
//!
//! `make lint` compiles this file twice: as it is, without an error, and with `--cfg misuse`, where
//! each line that ends with a code has that error, and no other line has one. So each misuse has a
//! twin that compiles, and differs from it by one step.

use kernel::{
    dma::DataDirection,
    prelude::*,
    sync::{Arc, SpinLock},
};
use kernel_ext::{
    rdma::ulp::{
        Access, Active, Bound, Connected, Depth, DevicePd, Done, Endpoint, FastMr, HostBuffer,
        Invalidated, Layout, LeafBlock, LeafMemory, Link, Mkey, NoPages, Op, Pages, Passive, Queue,
        Request, Requested, Right, ScatterList, Unbound, Wr,
    },
    thread::Thread,
};

#[path = "../../rust/bindings/mod.rs"]
mod bindings;
#[allow(dead_code, unused_imports, unused_macros, reason = "a part is used")]
#[path = "../../rust/kernel/for_ulp.rs"]
mod kernel_ext;

module! {
    type: Misuse,
    name: "mkey_ulp_rust",
    authors: ["The ib_mkey authors"],
    description: "Not for loading",
    license: "GPL",
}

struct Misuse;

impl kernel::Module for Misuse {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Err(ENODEV)
    }
}

struct Work;

impl Request for Work {
    type Session = ();
    type Pages = NoPages;

    fn done(_wr: KBox<Wr<Self>>, _qp: &Queue<()>, _done: Done<'_>) {}
}

// --- connections -----------------------------------------------------------

pub(crate) fn post_before_connected(link: Link<(), Active>, wr: KBox<Wr<Work>>) -> Result {
    #[cfg(not(misuse))]
    let link = link.connect(&[])?;
    Ok(link.post(wr, Op::Send)?) // E0599
}

pub(crate) fn post_before_answered(link: Link<(), Requested>, wr: KBox<Wr<Work>>) -> Result {
    #[cfg(not(misuse))]
    let link = link.wait()?;
    Ok(link.post(wr, Op::Send)?) // E0599
}

pub(crate) fn active_side_accepts(link: Link<(), Active>) -> Result {
    #[cfg(not(misuse))]
    link.connect(&[])?;
    #[cfg(misuse)]
    link.accept(&[])?; // E0599
    Ok(())
}

pub(crate) fn connects_twice(link: Link<(), Active>) -> Result {
    link.request(&[])?.wait()?;
    #[cfg(misuse)]
    link.request(&[])?; // E0382
    Ok(())
}

pub(crate) fn rejects_accepted(
    endpoint: Endpoint<Passive>,
    pd: &Arc<DevicePd>,
    depth: &Depth,
) -> Result {
    Link::new(endpoint, pd, depth, ())?.accept(&[])?;
    #[cfg(misuse)]
    endpoint.reject(&[])?; // E0382
    Ok(())
}

pub(crate) fn completion_queue_before_queue_pair(link: Link<(), Connected>) {
    #[cfg(not(misuse))]
    drop(link);
    #[cfg(misuse)]
    drop(link.inner.cq); // E0616
}

pub(crate) fn link_of_another_thread(link: Link<(), Connected>) -> Result<Thread> {
    #[cfg(not(misuse))]
    let link = link.queue();
    Thread::spawn(c"misuse", move || drop(link)) // E0277
}

pub(crate) fn queue_after_completion(qp: &Queue<()>) -> Result {
    #[cfg(not(misuse))]
    qp.fail();
    #[cfg(misuse)]
    Thread::spawn(c"misuse", move || qp.fail())?; // E0521
    Ok(())
}

struct Own;

impl Request for Own {
    #[cfg(not(misuse))]
    type Session = SpinLock<u32>;
    // A completion could drop the link, which waits for the completion.
    #[cfg(misuse)]
    type Session = SpinLock<Option<Link<(), Connected>>>; // E0277
    type Pages = NoPages;

    fn done(_wr: KBox<Wr<Self>>, _qp: &Queue<Self::Session>, _done: Done<'_>) {}
}

struct Racing;

impl Request for Racing {
    #[cfg(not(misuse))]
    type Session = u32;
    #[cfg(misuse)]
    type Session = core::cell::Cell<u32>; // E0277
    type Pages = NoPages;

    fn done(_wr: KBox<Wr<Self>>, _qp: &Queue<Self::Session>, _done: Done<'_>) {}
}

// --- requests --------------------------------------------------------------

pub(crate) fn changes_posted(qp: &Queue<()>, mut wr: KBox<Wr<Work>>) -> Result {
    wr.fence = true;
    qp.post(wr, Op::Send)?;
    #[cfg(misuse)]
    wr.clear(); // E0382
    Ok(())
}

pub(crate) fn posts_twice(qp: &Queue<()>, wr: KBox<Wr<Work>>) -> Result {
    qp.post(wr, Op::Send)?;
    #[cfg(misuse)]
    qp.post(wr, Op::Send)?; // E0382
    Ok(())
}

pub(crate) fn posts_to_another_ulp(
    #[cfg(not(misuse))] qp: &Queue<()>,
    #[cfg(misuse)] qp: &Queue<u8>,
    wr: KBox<Wr<Work>>,
) -> Result {
    Ok(qp.post(wr, Op::Send)?) // E0271
}

pub(crate) fn reference_to_what_a_device_writes(buffer: &HostBuffer, bytes: &mut [u8]) -> Result {
    #[cfg(not(misuse))]
    buffer.read(0, bytes)?;
    #[cfg(misuse)]
    bytes.copy_from_slice(&buffer.memory); // E0616
    Ok(())
}

pub(crate) fn proof_after_completion(done: Done<'_>) -> Result {
    #[cfg(not(misuse))]
    drop(done.invalidated);
    #[cfg(misuse)]
    Thread::spawn(c"misuse", move || drop(done.invalidated))?; // E0521
    Ok(())
}

pub(crate) fn forges_proof(mut proof: Invalidated<'_>, wr: &mut Wr<Work>) -> bool {
    #[cfg(misuse)]
    {
        proof.rkey = wr.rkey(); // E0616
    }
    wr.invalidated(&proof)
}

// --- pages and keys --------------------------------------------------------

struct Lent;

// SAFETY: There are no pages.
unsafe impl Pages for Lent {
    fn direction(&self) -> DataDirection {
        DataDirection::ToDevice
    }

    fn fill(&self, _list: &mut ScatterList) -> Result<u32> {
        Err(EINVAL)
    }
}

pub(crate) fn takes_lent_pages(mr: &mut FastMr<Lent>, pages: Lent) -> Result<Option<Lent>> {
    mr.map(pages).map_err(|(_, error)| error)?;
    #[cfg(misuse)]
    drop(pages); // E0382
    Ok(mr.release())
}

pub(crate) fn binds_twice(key: Mkey<Unbound>, layout: Layout<'_>) -> Result {
    let access = Access::from(Right::RemoteRead);
    key.bind(access, layout)?;
    #[cfg(misuse)]
    key.bind(access, layout)?; // E0382
    Ok(())
}

pub(crate) fn access_as_a_number(key: Mkey<Unbound>, layout: Layout<'_>) -> Result {
    #[cfg(not(misuse))]
    let access = Access::from(Right::RemoteRead);
    #[cfg(misuse)]
    let access = 4;
    key.bind(access, layout)?; // E0308
    Ok(())
}

pub(crate) fn unbound_key_as_leaf(
    #[cfg(not(misuse))] key: &Arc<Mkey<Bound>>,
    #[cfg(misuse)] key: &Arc<Mkey<Unbound>>,
) -> LeafMemory {
    LeafMemory::from(key) // E0277
}

pub(crate) fn unbinds_leaf(key: Arc<Mkey<Bound>>) -> Result<LeafBlock> {
    let block = LeafBlock::new(&key, 0, 8);
    #[cfg(misuse)]
    key.unbind()?; // E0507
    Ok(block)
}

pub(crate) fn posts_unbound_key(key: Mkey<Unbound>, layout: Layout<'_>) -> Result {
    #[cfg(not(misuse))]
    let key = key.stage(layout)?;
    Wr::with_key(Work, key)?; // E0277
    #[cfg(misuse)]
    let _ = layout;
    Ok(())
}

pub(crate) fn unbinds_posted_key(key: Mkey<Bound>) -> Result {
    Wr::with_key(Work, key)?;
    #[cfg(misuse)]
    key.unbind()?; // E0382
    Ok(())
}
