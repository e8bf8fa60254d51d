// SPDX-License-Identifier: GPL-2.0

//! The promises of `concepts.rst`, each in all orders of the threads.

use crate::{
    access,
    backend::{pins::Unpinned, Claimed, Memory, Payload},
    bindings,
    kernel_ext::{
        rdma::{device::NewDevice, mr::Right, Access, Pd, DEVICE},
        sync::pending::Timeout,
    },
    limits::owner::OwnerCharge,
    mkey_core::Core,
    region::{
        binding::{Binding, Leaf, LeafPlace},
        fast_reg::FastReg,
        rebind::QueuedBind,
        rights::{Origin, Peer},
        state::Pins,
        table::Regions,
        Kind, Region,
    },
};
use kernel::{
    error::{Error, Result, EBUSY, ENOENT},
    prelude::GFP_KERNEL,
    sync::Arc,
};
use loom::{model::Builder, thread};
use std::cell::Cell;

const PD: Pd = Pd(8);
/// The first lkey and rkey of the key.
const FIRST: u32 = 0x100;
/// The indices of the memory.
const ONE: u32 = 11;
const TWO: u32 = 12;
const THREE: u32 = 13;

/// Runs `test` in all orders of its threads, with at most `preemptions` preemptions.
fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// A key, and memory for its layouts.
struct World {
    core: Core,
    mr: Claimed,
    region: Arc<Region>,
    one: Arc<Memory>,
    two: Arc<Memory>,
    three: Arc<Memory>,
}

impl World {
    fn new(revocable: bool) -> std::sync::Arc<Self> {
        Self::of(|pins| Kind::Key {
            max_entries: 4,
            pins: pins.clone(),
            revocable,
            staged: None,
        })
    }

    fn of(kind: impl FnOnce(&Arc<Pins>) -> Kind) -> std::sync::Arc<Self> {
        bindings::prepare();
        let pins = Pins::new(NewDevice(&DEVICE)).unwrap();
        let mr = Claimed::new(FIRST);
        let region = Region::new(&mr, kind(&pins), None, OwnerCharge::new()).unwrap();
        mr.set_object(&region);
        std::sync::Arc::new(Self {
            core: Core {
                pins,
                regions: Regions(vec![region.clone()]),
            },
            mr,
            region,
            one: Memory::new(ONE),
            two: Memory::new(TWO),
            three: Memory::new(THREE),
        })
    }

    /// A key that is bound to the first memory.
    fn bound(revocable: bool) -> std::sync::Arc<Self> {
        let world = Self::new(revocable);
        world.bind(&world.one).unwrap();
        world
    }

    /// A bind by a call.
    fn bind(&self, memory: &Arc<Memory>) -> Result {
        let mut new = Some(Binding::over(&self.region, &self.core.pins, &[memory])?);
        let pins = &self.core.pins;
        let bound = self
            .region
            .bind_as(pins, &self.mr, &mut new, None, Timeout::Never);
        drop(new);
        bound
    }

    /// A bind by a work request, from the rkey `old` to the rkey `new_key`.
    fn request(&self, memory: &Arc<Memory>, old: u32, new_key: u32) -> Result {
        let mut new = Some(Binding::over(&self.region, &self.core.pins, &[memory])?);
        let queued = QueuedBind {
            key: Some(old),
            any_portion: false,
            new_key,
            timeout: Timeout::After(1),
        };
        let bound = self
            .region
            .bind_from_queue(&queued, &self.core.pins, &self.mr, &mut new);
        drop(new);
        bound
    }

    /// A peer's READ with `rkey`. Reads the memory `expected`, or fails.
    fn read(&self, rkey: u32, expected: u32) -> bool {
        self.mr.accepts(rkey) && self.copy(rkey, &[expected]).is_ok()
    }

    /// The copy for a READ that arrived earlier. Reads one of `expected`, and returns its index.
    fn copy(&self, rkey: u32, expected: &[u32]) -> Result<u32> {
        let peer = Peer {
            pd: PD.0,
            rkey,
            window: None,
        };
        let seen = &Cell::new(0);
        access::copy(&self.mr, 0, Payload { expected, seen }, Some(&peer))?;
        Ok(seen.get())
    }

    fn local_inv(&self, key: u32) -> Result {
        access::invalidate(&self.mr, &PD, key, Origin::Local)
    }

    /// Deregisters an MR and uses its memory again. Does not wait for a binding.
    fn dereg(&self, memory: &Memory) -> Result {
        let suspended = self
            .core
            .pins
            .if_unpinned(memory.index(), |_| memory.suspend());
        suspended.map_err(Error::from)?;
        memory.use_again();
        Ok(())
    }

    /// Destroys the key. The driver has no request in progress afterwards.
    fn destroy(&self) {
        self.core.pins.exclude(|_| self.mr.suspend());
        self.region.end(Timeout::Never).unwrap();
    }

    fn nothing_is_pinned(&self) {
        for memory in [&self.one, &self.two, &self.three] {
            assert_eq!(self.core.pins.count(memory.index()), 0);
        }
    }
}

/// Starts a thread of a test.
fn spawn<T: 'static>(
    world: &std::sync::Arc<World>,
    run: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || run(&world))
}

/// After the completion of LOCAL_INV no access is in progress and none begins, and the leaves can be
/// deregistered.
#[test]
fn local_inv() {
    explore(4, || {
        let world = World::bound(false);
        let reader = spawn(&world, |world| world.read(FIRST, ONE));
        world.local_inv(FIRST).unwrap();
        world.dereg(&world.one).unwrap();
        assert!(!world.read(FIRST, ONE));
        reader.join().unwrap();
        world.nothing_is_pinned();
    });
}

/// The thread that waits is woken, whichever of two accesses ends last.
#[test]
fn local_inv_with_two_accesses() {
    explore(3, || {
        let world = World::bound(false);
        let one = spawn(&world, |world| world.read(FIRST, ONE));
        let two = spawn(&world, |world| world.read(FIRST, ONE));
        world.local_inv(FIRST).unwrap();
        world.dereg(&world.one).unwrap();
        one.join().unwrap();
        two.join().unwrap();
    });
}

/// Of two invalidations by the same rkey one succeeds.
#[test]
fn two_invalidations() {
    explore(4, || {
        let world = World::bound(false);
        let other = spawn(&world, |world| world.local_inv(FIRST).is_ok());
        let own = world.local_inv(FIRST).is_ok();
        assert!(own != other.join().unwrap());
        world.dereg(&world.one).unwrap();
    });
}

/// A bind by a call waits for the accesses through the old binding.
#[test]
fn bind_by_call() {
    explore(3, || {
        let world = World::bound(false);
        // The key portion stays, so the access finds either binding.
        let reader = spawn(&world, |world| world.copy(FIRST, &[ONE, TWO]));
        world.bind(&world.two).unwrap();
        world.dereg(&world.one).unwrap();
        assert!(world.read(FIRST, TWO));
        reader.join().unwrap().unwrap();
    });
}

/// Of two accesses the later one sees the same binding as the earlier one, or a newer one. The memory
/// of the first binding is that of the third one.
#[test]
fn bindings_in_order() {
    explore(3, || {
        let world = World::bound(false);
        let reader = spawn(&world, |world| {
            let all = &[ONE, TWO, THREE];
            let first = world.copy(FIRST, all).unwrap();
            assert!(world.copy(FIRST, all).unwrap() >= first);
        });
        world.bind(&world.two).unwrap();
        world.bind(&world.three).unwrap();
        reader.join().unwrap();
    });
}

/// A request with the rkey of an earlier binding reads the memory of that binding alone, also if a
/// later binding has the memory of the structure.
#[test]
fn old_portion() {
    explore(3, || {
        let world = World::bound(false);
        let reader = spawn(&world, |world| world.read(FIRST, ONE));
        world.request(&world.two, FIRST, FIRST + 1).unwrap();
        world.request(&world.three, FIRST + 1, FIRST + 2).unwrap();
        assert!(world.read(FIRST + 2, THREE));
        assert!(world.copy(FIRST, &[ONE]).is_err());
        reader.join().unwrap();
        world.dereg(&world.one).unwrap();
        world.dereg(&world.two).unwrap();
    });
}

/// A LOCAL_INV waits for the accesses through bindings that requests replaced, too.
#[test]
fn local_inv_after_request() {
    explore(3, || {
        let world = World::bound(false);
        let reader = spawn(&world, |world| world.read(FIRST, ONE));
        world.request(&world.two, FIRST, FIRST + 1).unwrap();
        world.local_inv(FIRST + 1).unwrap();
        world.dereg(&world.one).unwrap();
        world.dereg(&world.two).unwrap();
        reader.join().unwrap();
    });
}

/// A leaf is deregistered while a key is bound to it: one of both fails.
#[test]
fn bind_and_dereg() {
    explore(4, || {
        let world = World::new(false);
        let dereg = spawn(&world, |world| world.dereg(&world.one));
        match world.bind(&world.one) {
            Ok(()) => assert!(world.read(FIRST, ONE)),
            Err(error) => assert_eq!(error, ENOENT),
        }
        let is_bound = world.mr.is_open();
        assert_eq!(
            dereg.join().unwrap(),
            if is_bound { Err(EBUSY) } else { Ok(()) }
        );
    });
}

/// The deregistration of a leaf unbinds a revocable key, and waits for its accesses.
#[test]
fn revoke() {
    explore(3, || {
        let world = World::bound(true);
        let reader = spawn(&world, |world| world.read(FIRST, ONE));
        let suspend = |_: &Unpinned<'_>| Ok(world.one.suspend());
        world
            .core
            .if_free_or_revocable(&world.one.mr, suspend)
            .unwrap();
        world.one.use_again();
        assert!(!world.read(FIRST, ONE));
        reader.join().unwrap();
        world.nothing_is_pinned();
    });
}

/// A request binds a key that is destroyed: nothing stays pinned.
#[test]
fn destroy() {
    explore(3, || {
        let world = World::bound(false);
        let request = spawn(&world, |world| world.request(&world.two, FIRST, FIRST + 1));
        world.destroy();
        world.dereg(&world.one).unwrap();
        let _ = request.join().unwrap();
        assert!(!world.mr.is_open() && world.region.binding.is_empty());
        world.nothing_is_pinned();
    });
}

/// LOCAL_INV of a fast registration ends the accesses, and the layout is free for the next mapping.
#[test]
fn fast_registration() {
    explore(3, || {
        let memory = Memory::new(ONE);
        let base = crate::backend::BaseMr(memory.clone());
        let world = World::of(|pins| {
            Kind::FastReg(FastReg::new(&PD, base.clone(), 2, pins.clone()).unwrap())
        });
        let Kind::FastReg(fast) = &world.region.kind else {
            unreachable!()
        };
        let map = || fast.map(core::iter::once((0, 1)), 4096).unwrap();
        let access = Access::from(Right::RemoteRead);
        map();
        access::register(&world.mr, &PD, FIRST, access).unwrap();
        let reader = spawn(&world, |world| world.read(FIRST, ONE));
        map();
        world.local_inv(FIRST).unwrap();
        memory.use_again();
        assert!(!world.read(FIRST, ONE));
        map();
        access::register(&world.mr, &PD, FIRST + 1, access).unwrap();
        reader.join().unwrap();
    });
}
