// SPDX-License-Identifier: GPL-2.0

//! The regions of this module: keys, MRs over device memory, MRs for fast registration, hidden MRs
//! of memory windows, and MRs over dma-bufs.
//!
//! | file | what |
//! |---|---|
//! | `region/binding.rs` | the binding of a region: a layout over leaves |
//! | `region/flat.rs` | a binding over keys as one list over memory |
//! | `region/rebind.rs` | rebinds of one region, or of several at once |
//! | `region/binding/check.rs` | checks a layout and makes a binding of it |
//! | `region/binding/held.rs` | accesses that leave SRCU and keep their binding |
//! | `region/binding/peers.rs` | the peers that may use a binding |
//! | `region/binding/work.rs` | an upper bound of the work of a packet through a nest |
//! | `region/old.rs` | old bindings that accesses may still use |
//! | `region/rights.rs` | supported access flags, and the origin of a request |
//! | `region/tag.rs` | the tags of keys |
//! | `region/indices.rs` | the storage of the indices of an indexed layout |
//! | `region/fast_reg.rs` | regions for fast registration by kernel users |
//! | `region/staged.rs` | layouts that kernel users stage for a key |
//! | `region/show.rs` | the regions of a device in debugfs |
//! | `region/unbind.rs` | unbinds |
//! | `region/yielding.rs` | keys that the deregistration of a leaf unbinds |
//! | `region/window.rs` | the hidden MRs of memory windows |
//!
//! # Locking
//!
//! `edit` serialises changes of the binding. It may be held while sleeping (`region/rebind.rs`).
//! A function that takes an [`Edit`] runs under it. The lock of the pins nests in it, and so does
//! the list of old bindings (`region/old.rs`). The data path reads `binding` under SRCU
//! (`rust/kernel/sync/srcu.rs`) and takes no lock.
//!
//! # Lifetime
//!
//! A region is in its device's table, by its MR's index, from before the MR is first published
//! until after the MR was deregistered. When the region leaves the table, another MR may already
//! have the index and even the address, so a look-up may find the region of the wrong MR.
//! [`Region::is`] detects that.

pub(crate) mod binding;
pub(crate) mod fast_reg;
pub(crate) mod flat;
pub(crate) mod indices;
pub(crate) mod old;
pub(crate) mod rebind;
pub(crate) mod rights;
pub(crate) mod show;
pub(crate) mod staged;
mod tag;
mod unbind;
pub(crate) mod window;
mod yielding;

use crate::{
    backend::{pins::Pins, Claimed, ClaimedMr},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        dma_buf::Import,
        rdma::{mr_key, Access, Mr},
        sched::Process,
        sync::{
            barrier::smp_rmb,
            lock::{new_many_mutex, LockMany, Many, ManyMutex},
            srcu::{self, Cell, Retired},
            users::{Timeout, Users},
        },
    },
    limits::owner::OwnerCharge,
    region::{
        binding::Binding,
        fast_reg::FastReg,
        old::{OldBindings, Which},
        staged::StagedLayouts,
    },
};
use core::{mem, ptr};
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        lock::Guard,
        Arc, //
    },
};

/// The kind of a region.
pub(crate) enum Kind {
    /// An indirect key, which can be bound and unbound any number of times.
    Key {
        /// The most entries of the key.
        max_entries: u32,
        /// The old bindings of the device's keys.
        old: Arc<OldBindings>,
        /// The pins of the device's MRs.
        pins: Arc<Pins>,
        /// `true` if the deregistration of a leaf unbinds the key.
        yields: bool,
        /// The staged layouts; [`None`] for the key of a process.
        staged: Option<Pin<KBox<StagedLayouts>>>,
    },
    /// A region over device memory, bound once.
    Dm,
    /// A region for fast registration by kernel users. Its bindings are in [`FastReg`]; `binding`
    /// is empty.
    FastReg(Pin<KBox<FastReg>>),
    /// The hidden MR of a memory window over an MR of another kind.
    Window,
    /// One of the driver's MRs over a dma-buf, with no binding.
    DmaBuf {
        /// The memory.
        import: Import,
        /// The access flags of the MR. The driver does not get `MW_BIND`, see `region/window.rs`.
        access: Access,
    },
}

/// Identifies a binding of a region. Two values of one region are equal only if they identify the
/// same binding.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct BindingId {
    address: usize,
    replaced: u64,
}

/// The values that `Region::edit` protects, besides the binding and the tag.
pub(crate) struct Edit {
    /// The last rkey in `ib_mr` that a kernel user did not choose (`region/tag.rs`).
    last_written: u32,
    /// `true` if the key was unbound by the deregistration of a leaf. Its tag changes with the next
    /// bind.
    yielded: bool,
    /// The users of an old binding, if a rebind gave up its wait for them.
    left: Option<Arc<Users>>,
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
    pub(crate) binding: Cell<Binding>,
    /// The number of times that the binding was replaced.
    replaced: Atomic<u64>,
    /// `true` if accesses through a binding of this region left SRCU. Deregistration waits for such
    /// accesses.
    pub(crate) was_slow: Atomic<bool>,
    /// The reason of the last work request that could not bind the region: the errno value in the
    /// upper 32 bits, the number of the entry in the lower ones.
    refused: Atomic<u64>,
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
        let unbound = Edit {
            last_written: mr.rkey(),
            yielded: false,
            left: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                mr: ptr::from_ref(mr) as usize,
                gone: Atomic::new(false),
                lkey: Atomic::new(lkey),
                kind,
                binding: Cell::empty(),
                replaced: Atomic::new(0),
                was_slow: Atomic::new(false),
                refused: Atomic::new(0),
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

    /// Returns the lkey.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey.load(ordering::Relaxed)
    }

    /// Records the lkey after a fast registration.
    pub(crate) fn registered_as(&self, lkey: u32) {
        self.lkey.store(lkey, ordering::Relaxed);
    }

    /// Takes `edit`, and waits for it as long as `timeout` allows. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` after the time of [`Timeout::After`].
    fn lock<'a>(&'a self, many: &LockMany, timeout: Timeout) -> Result<EditGuard<'a>> {
        match timeout {
            Timeout::After(jiffies) => many.lock_within(&self.edit, jiffies).ok_or(EBUSY),
            _ => Ok(many.lock(&self.edit)),
        }
    }

    /// Returns the lkey and rkey that a bind gives the region: `chosen`, or those that it has.
    fn key_of_bind(&self, edit: &mut Edit, mr: &Claimed, chosen: Option<u32>) -> u32 {
        let yielded = mem::take(&mut edit.yielded);
        let key = tag::of_bind(mr.key(), mr.rkey(), edit.last_written);
        match chosen {
            Some(chosen) => chosen,
            None if yielded => mr_key::next(key),
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

    /// Waits until no access through the old binding is left. Returns the binding, and the result
    /// of the wait.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. Then the accesses that are left keep the old binding, and the next
    /// rebind waits for them.
    pub(crate) fn wait_for_accesses(
        &self,
        edit: &mut Edit,
        old: Retired<Binding>,
        timeout: Timeout,
    ) -> (Option<Arc<Binding>>, Result) {
        let old = old.wait();
        let waited = match old.as_ref().and_then(|old| old.users.as_ref()) {
            None => Ok(()),
            Some(users) => users.wait(timeout).inspect_err(|_| {
                edit.left = Some(users.clone());
            }),
        };
        (old, waited)
    }

    /// Waits for accesses if an earlier rebind gave up its wait for them.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. A bounded wait returns `EBUSY` at once, because an earlier bounded
    /// wait has already failed.
    pub(crate) fn wait_for_left(&self, edit: &mut Edit, timeout: Timeout) -> Result {
        self.wait_for_replaced(timeout)?;
        let Some(users) = &edit.left else {
            return Ok(());
        };
        match timeout {
            Timeout::After(_) => users.is_idle().then_some(()).ok_or(EBUSY)?,
            _ => users.wait(timeout)?,
        }
        edit.left = None;
        Ok(())
    }

    /// Waits for accesses through bindings that work requests replaced. Without `edit`, the wait
    /// leaves out bindings that are replaced meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`].
    pub(crate) fn wait_for_replaced(&self, timeout: Timeout) -> Result {
        if let Kind::Key { old, .. } = &self.kind {
            old.wait_and_drop(Which::Region(self.address()), timeout)?;
        }
        Ok(())
    }

    /// Waits for accesses through old bindings that pin the MR of this region, at `index`.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`].
    pub(crate) fn wait_for_pinning(&self, index: u32, timeout: Timeout) -> Result {
        match &self.kind {
            Kind::Key { old, .. } => old.wait_and_drop(Which::Pinning(index), timeout),
            _ => Ok(()),
        }
    }

    /// Replaces the binding. Does not wait for accesses. The caller holds `edit`.
    fn exchange_binding(&self, new: Option<Arc<Binding>>) -> Retired<Binding> {
        // A reader that finds the new binding also finds the new number: see `binding_id()`.
        let number = self.replaced.load(ordering::Relaxed);
        self.replaced
            .store(number.wrapping_add(1), ordering::Relaxed);
        self.binding.swap(new)
    }

    /// Returns the identity of `binding`, which the caller found in this region. Bindings before
    /// and after it may have the same address.
    pub(crate) fn binding_id(&self, binding: &Binding) -> BindingId {
        // The binding was read first. Pairs with the full barrier of the exchange in
        // `exchange_binding()`.
        smp_rmb();
        BindingId {
            address: ptr::from_ref(binding) as usize,
            replaced: self.replaced.load(ordering::Relaxed),
        }
    }

    /// Returns a value that differs from that of all other regions.
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self) as usize
    }

    /// Records why a work request was refused, and which entry of its description was the reason.
    pub(crate) fn refuse(&self, error: Error, entry: u32) {
        let errno = u64::from(error.to_errno().unsigned_abs());
        self.refused
            .store(errno << 32 | u64::from(entry), ordering::Relaxed);
    }

    /// Returns the errno value and the entry of the last work request that was refused.
    pub(crate) fn refused(&self) -> (u32, u32) {
        let refused = self.refused.load(ordering::Relaxed);
        ((refused >> 32) as u32, refused as u32)
    }

    /// Returns `true` if an access may be in progress that can take arbitrarily long.
    pub(crate) fn may_be_slow(&self) -> bool {
        self.was_slow.load(ordering::Relaxed)
    }

    /// Waits for accesses outside of SRCU, after the MR was suspended or its binding was taken out.
    /// Sleeps, at most as long as `timeout` allows.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. Accesses are left then.
    pub(crate) fn wait(&self, timeout: Timeout) -> Result {
        // A rebind or unbind in progress holds `edit`, and waits itself for accesses through the
        // old binding. A later one finds the binding that is read here, or none.
        let many = LockMany::new();
        let edit = many.lock(&self.edit);
        let users = {
            let guard = srcu::read_brief();
            self.binding
                .get(&guard)
                .and_then(|binding| binding.users.clone())
        };
        let left = edit.left.clone();
        drop(edit);
        drop(many);
        // An access that found the MR before it was suspended has become a user when this returns.
        srcu::synchronize();
        for users in [users, left].iter().flatten() {
            users.wait(timeout)?;
        }
        self.wait_for_replaced(timeout)
    }

    /// Takes the binding out, without waiting for accesses. No access begins after this returns.
    /// The caller waits for accesses in progress: it drops the first value, and calls
    /// [`Users::wait`] on the second value. Until these accesses have ended, the next rebind fails.
    ///
    /// # Errors
    ///
    /// `EBUSY` while accesses through an earlier binding are left.
    pub(crate) fn clear(&self, mr: &Claimed) -> Result<(Retired<Binding>, Option<Arc<Users>>)> {
        let many = LockMany::new();
        let mut edit = many.lock(&self.edit);
        self.wait_for_left(&mut edit, Timeout::After(0))?;
        mr.withdraw();
        let users = {
            let guard = srcu::read_brief();
            self.binding
                .get(&guard)
                .and_then(|binding| binding.users.clone())
        };
        edit.left = users.clone();
        Ok((self.exchange_binding(None), users))
    }

    /// Returns the access flags of the region. `leaf` are the access flags that the region has as a
    /// leaf.
    pub(crate) fn rights(&self, leaf: Access) -> Access {
        match &self.kind {
            Kind::DmaBuf { access, .. } => *access,
            _ => leaf,
        }
    }
}
