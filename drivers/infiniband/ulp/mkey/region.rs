// SPDX-License-Identifier: GPL-2.0

//! The regions of this module: keys, MRs over device memory, MRs for fast registration, and MRs over
//! dma-bufs.
//!
//! | file | what |
//! |---|---|
//! | `region/binding.rs` | the binding of a region: a layout over leaves |
//! | `region/flat.rs` | a binding over keys as one list over memory |
//! | `region/rebind.rs` | rebinds of one region, or of several at once |
//! | `region/binding/check.rs` | checks a layout and completes its binding |
//! | `region/binding/rights.rs` | access flags, the origin of a request, the peers of a binding |
//! | `region/binding/room.rs` | the memory that a key keeps for its next short binding |
//! | `region/state.rs` | the part to which pins refer |
//! | `region/table.rs` | the regions of a device |
//! | `region/fast_reg.rs` | regions for fast registration by kernel users |
//! | `region/registration.rs` | their registrations |
//! | `region/staged.rs` | layouts that kernel users stage for a key |
//! | `region/show.rs` | the regions of a device in debugfs |
//! | `region/unbind.rs` | unbinds |
//! | `region/revocable.rs` | keys that the deregistration of a leaf unbinds |
//!
//! # Locking
//!
//! `edit` serialises changes of the binding. It may be held while sleeping (`region/rebind.rs`).
//! A function that takes an [`Edit`] runs under it. The lock of the pins nests in it. The data path
//! takes no lock.
//!
//! # Lifetime
//!
//! A region is in its device's table, by its MR's index, from before the MR is first published
//! until after the MR was deregistered. When the region leaves the table, another MR may already
//! have the index and even the address, so a look-up may find the region of the wrong MR.
//! [`Region::is`] detects that.
//!
//! A count keeps a binding. The region has one reference, and each access in progress has one
//! (`rust/kernel/sync/rcu_arc.rs`). A binding that was replaced is *retired* until its last
//! reference is dropped. `RegionState::retired` counts the retired bindings. A change that must
//! leave no access behind drops the reference of the region, and waits until that count is zero.
//!
//! # Key portions
//!
//! The key portion is the low 8 bits of lkey and rkey (`rust/kernel/rdma/mr_key.rs`).
//! `edit` serialises its changes. After a change, requests with the old lkey or rkey fail. A peer's
//! request with the old rkey fails even if it is in progress: rxe compares the whole rkey when a
//! request arrives, and copies bytes later. A binding therefore has a key portion, which is
//! compared when bytes are copied (`Binding::allows`). The lkey of a request of this node is not
//! compared again, because rxe does not pass it on.
//!
//! A kernel user chooses the key portion of the next bind by `ib_update_fast_reg_key()`, which
//! writes the fields of `ib_mr`. A request that invalidates the key changes the key portion, but
//! not these fields, which the kernel user may write at the same time. So the fields can differ
//! from the key portion although the kernel user has not chosen one. A region therefore records the
//! last key that this module wrote to the fields, or that a request took from them
//! (`Edit::last_written`). If the fields have another value, the kernel user has chosen it since.

pub(crate) mod binding;
pub(crate) mod fast_reg;
pub(crate) mod flat;
pub(crate) mod rebind;
mod registration;
mod revocable;
pub(crate) mod show;
pub(crate) mod staged;
pub(crate) mod state;
pub(crate) mod table;
mod unbind;

pub(crate) use binding::rights;

use crate::{
    backend::Claimed,
    bindings::ib_uverbs_mkey_refused_access as RefusedAccess,
    errors::Refused,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        dma_buf::Import,
        rdma::{mr_key, Mr},
        sched::Process,
        sync::{
            lock::{new_many_mutex, LockMany, Many, ManyMutex},
            pending::Timeout,
            rcu_arc::{RcuArc, RcuCell, RcuUnique},
        },
    },
    layout::Shape,
    limits::{
        cost::{FLAT, KERNELS_KEY, LEAF, REGION},
        owner::OwnerCharge,
    },
    region::{
        binding::{keep, Binding, Flat, Home, Leaf, Room},
        fast_reg::FastReg,
        staged::StagedLayouts,
        state::{Pins, RegionState},
    },
};
use core::{
    mem::{self, size_of},
    ptr,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        lock::Guard,
        Arc, SpinLock,
    },
};

/// The kind of a region.
pub(crate) enum Kind {
    /// An indirect key, which can be bound and unbound any number of times.
    Key {
        /// The most entries of the key.
        max_entries: u32,
        /// The pins of the device's MRs.
        pins: Arc<Pins>,
        /// `true` if the deregistration of a leaf unbinds the key.
        revocable: bool,
        /// The staged layouts; [`None`] for the key of a process.
        staged: Option<Pin<KBox<StagedLayouts>>>,
    },
    /// A region over device memory, bound once.
    Dm,
    /// A region for fast registration by kernel users. Its binding is the active layout.
    FastReg(Arc<FastReg>),
    /// One of the driver's MRs over a dma-buf, with no binding.
    DmaBuf(Import),
}

/// The values that `Region::edit` protects, besides the binding and the key portion.
pub(crate) struct Edit {
    /// The last rkey in `ib_mr` that a kernel user did not choose (see Key portions above).
    last_written: u32,
    /// `true` if the key was unbound by the deregistration of a leaf. Its key portion changes with
    /// the next bind.
    revoked: bool,
}

impl Edit {
    /// Writes `key` to the fields of `ib_mr`.
    fn write_key(&mut self, mr: &Mr, key: u32) {
        mr.set_key(key);
        self.last_written = key;
    }
}

/// The lock of a region's [`Edit`], while it is held.
type EditGuard<'a> = Guard<'a, Edit, Many>;

/// A region of this module.
#[pin_data]
pub(crate) struct Region {
    /// The address of the MR.
    mr: usize,
    /// `true` while the driver deregisters the MR, and afterwards. Another MR may get its address.
    gone: Atomic<bool>,
    /// The lkey.
    lkey: Atomic<u32>,
    pub(crate) kind: Kind,
    pub(crate) binding: RcuCell<Binding>,
    /// The memory for the next binding.
    #[pin]
    room: SpinLock<Room>,
    /// The part to which pins refer.
    pub(crate) state: Arc<RegionState>,
    /// The reason for which the last work request or call of a kernel user did not bind the region.
    #[pin]
    refused: SpinLock<Refused>,
    /// The last access that was refused.
    #[pin]
    refused_access: SpinLock<RefusedAccess>,
    /// The charge for the kernel's memory of the region, without its bindings.
    pub(crate) charge: OwnerCharge,
    /// The process that made the region; [`None`] for a kernel user.
    pub(crate) maker: Option<Process>,
    #[pin]
    pub(crate) edit: ManyMutex<Edit>,
}

impl Region {
    /// Makes the unbound region of an MR.
    pub(crate) fn new(
        mr: &Mr,
        kind: Kind,
        maker: Option<Process>,
        charge: OwnerCharge,
    ) -> Result<Arc<Self>> {
        let lkey = mr.lkey();
        let state = RegionState::new(mr.index())?;
        let unbound = Edit {
            last_written: mr.rkey(),
            revoked: false,
        };
        let no_access: RefusedAccess = Zeroable::zeroed();
        Arc::pin_init(
            pin_init!(Self {
                mr: ptr::from_ref(mr) as usize,
                gone: Atomic::new(false),
                lkey: Atomic::new(lkey),
                kind,
                binding: RcuCell::empty(),
                room <- new_spinlock!(None, "ib_mkey room"),
                state,
                refused <- new_spinlock!(Refused::NONE, "ib_mkey refused"),
                refused_access <- new_spinlock!(no_access, "ib_mkey refused access"),
                charge,
                maker,
                edit <- new_many_mutex!(unbound, "ib_mkey edit"),
            }),
            GFP_MAYFAIL,
        )
    }

    /// Returns `true` if this is the region of `mr`, an MR that cannot be freed meanwhile.
    #[inline]
    pub(crate) fn is(&self, mr: *const Mr) -> bool {
        self.mr == mr as usize && !self.gone.load(ordering::Relaxed)
    }

    /// Called with `true` before the driver deregisters the MR, and with `false` if that failed.
    ///
    /// A thread that finds another MR at the same address finds that the region is gone: the driver
    /// frees the MR after this call, and what the thread found was written after that.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.gone.store(gone, ordering::Relaxed);
    }

    /// Returns the index of the MR.
    pub(crate) fn index(&self) -> u32 {
        self.state.index
    }

    /// Returns the lkey.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey.load(ordering::Relaxed)
    }

    /// Records the lkey after a fast registration.
    pub(crate) fn registered_as(&self, lkey: u32) {
        self.lkey.store(lkey, ordering::Relaxed);
    }

    /// Takes `edit`, and waits for it as long as `timeout` allows. Sleeps.
    /// Fails with `EBUSY` after the time of [`Timeout::After`].
    fn lock<'a>(&'a self, many: &LockMany, timeout: Timeout) -> Result<EditGuard<'a>> {
        match timeout {
            Timeout::After(jiffies) => many.lock_within(&self.edit, jiffies).ok_or(EBUSY),
            _ => Ok(many.lock(&self.edit)),
        }
    }

    /// Returns the lkey and rkey that a bind gives the region: `chosen`, or those that it has.
    fn key_of_bind(&self, edit: &mut Edit, mr: &Claimed, chosen: Option<u32>) -> u32 {
        let revoked = mem::take(&mut edit.revoked);
        let (now, field) = (mr.key(), mr.rkey());
        let is_chosen = field != edit.last_written && mr_key::is_same_index(now, field);
        let key = if is_chosen { field } else { now };
        match chosen {
            Some(chosen) => chosen,
            None if revoked => mr_key::next(key),
            None => key,
        }
    }

    /// Makes `key` the lkey and the rkey by which accesses find the region.
    fn rekey(&self, _: &mut Edit, mr: &Claimed, key: u32) {
        if mr.key() != key {
            mr.rekey(key);
            self.lkey.store(key, ordering::Relaxed);
        }
    }

    /// Takes the memory for the next binding out.
    pub(crate) fn take_room(&self) -> Room {
        self.room.lock().take()
    }

    /// Replaces the binding. The result keeps the old binding, as accesses in progress do. The
    /// caller holds `edit`, or the lock of a new region or of a fast registration. It also holds
    /// the lock of the pins if another key may refer to this one.
    fn exchange_binding(
        self: &Arc<Self>,
        new: Option<RcuUnique<Binding>>,
    ) -> Option<RcuArc<Binding>> {
        let number = new.as_ref().map_or(0, |new| new.number);
        let new = new.map(|mut new| {
            let home: Arc<dyn Home> = self.clone();
            new.home = Some(home);
            new.share()
        });
        // A pin of the old binding is never one that has yet to be bound.
        if !self.binding.is_empty() {
            self.state.retired.add();
        }
        self.state.set_bound(number);
        self.binding.swap(new)
    }

    /// Takes the binding out, and waits until no access through it is left. No access begins any
    /// more, because the MR was suspended. Sleeps, at most as long as `timeout` allows.
    ///
    /// # Errors
    ///
    /// The errors of [`crate::kernel_ext::sync::pending::Pending::wait`]. Accesses are left then.
    pub(crate) fn end(self: &Arc<Self>, timeout: Timeout) -> Result {
        let many = LockMany::new();
        // A rebind or unbind in progress holds `edit`.
        let edit = many.lock(&self.edit);
        let old = self.exchange_binding(None);
        drop(edit);
        drop(many);
        drop(old);
        self.state.retired.wait(timeout)
    }

    /// Records why a bind was refused.
    pub(crate) fn refuse(&self, why: Refused) {
        *self.refused.lock() = why;
    }

    /// Returns why the last recorded bind was refused.
    pub(crate) fn refused(&self) -> Refused {
        *self.refused.lock()
    }

    /// Records a refused access.
    pub(crate) fn refuse_access(&self, refused: RefusedAccess) {
        let mut last = self.refused_access.lock();
        // Another thread may have recorded a later one.
        if last.number < refused.number {
            *last = refused;
        }
    }

    /// Returns the last refused access.
    pub(crate) fn refused_access(&self) -> RefusedAccess {
        let last = self.refused_access.lock();
        RefusedAccess { ..*last }
    }
}

impl Home for Region {
    fn released(&self, binding: RcuUnique<Binding>) {
        match &self.kind {
            Kind::FastReg(fast) => fast.put_back(binding),
            _ => {
                // The leaves are unpinned before a thread that waits for that is woken.
                let room = keep(binding);
                let before = mem::replace(&mut *self.room.lock(), room);
                drop(before);
            }
        }
        self.state.retired.end();
    }
}

// The charges are at least the sizes of the structures.
const _: () = {
    // Lockdep makes locks larger.
    assert!(cfg!(CONFIG_LOCKDEP) || size_of::<Region>() <= 256);
    assert!(cfg!(CONFIG_LOCKDEP) || size_of::<StagedLayouts>() <= (KERNELS_KEY - REGION) as usize);
    assert!(2 * size_of::<Leaf>() + 64 <= LEAF as usize);
    assert!(size_of::<Flat>() + size_of::<usize>() + size_of::<Shape>() <= FLAT as usize);
};
