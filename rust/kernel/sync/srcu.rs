// SPDX-License-Identifier: GPL-2.0

//! Tables and pointers that are read under SRCU.
//!
//! Readers run on the data path: they take no lock and write no shared cache line, which
//! `kernel::xarray` cannot offer, and they may sleep, which `kernel::revocable` forbids. The
//! XArray's lock serialises writers of a [`Table`]; the caller serialises writers of a [`Cell`].
//! Writers wait for a grace period before they drop an entry that they took out. If per-CPU
//! counters show that no reader is active, they do not wait.
//!
//! All tables and cells share one SRCU domain, so any critical section protects any entry. A reader
//! must not wait for user memory, nor for a thread that waits for a writer.
//!
//! C headers: [`include/linux/srcu.h`](srctree/include/linux/srcu.h),
//! [`include/linux/xarray.h`](srctree/include/linux/xarray.h)

use super::racing::load_relaxed;
use crate::bindings;
use core::{iter, marker::PhantomData, ops::Deref, ptr};
use kernel::{
    ffi::{c_ulong, c_void},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
        ArcBorrow, //
    },
    types::{NotThreadSafe, Opaque},
};

/// Enters a critical section.
#[inline]
pub(crate) fn read() -> Guard {
    Guard {
        // SAFETY: The domain is static.
        entered: unsafe { bindings::rdma_table_enter() },
        _not_send: NotThreadSafe,
    }
}

/// Enters a critical section that cannot be preempted: for code that a process runs, and that does
/// not sleep and takes no lock, because a spinlock sleeps on a real-time kernel. The scheduler may leave a process of low priority without a processor for seconds,
/// and all writers of the domain would wait for its section.
pub(crate) fn read_brief() -> BriefGuard {
    // SAFETY: No preconditions. `NoPreemption` pairs the call with its opposite in this thread.
    unsafe { bindings::rdma_preempt_disable() };
    BriefGuard {
        guard: read(),
        _preemption: NoPreemption,
    }
}

/// Waits until all critical sections that began before have ended. Sleeps.
pub(crate) fn synchronize() {
    // SAFETY: The domain is static.
    unsafe { bindings::rdma_table_synchronize() };
}

/// A module's use of the domain. Dropping this waits for the grace periods that
/// [`Retired::is_over`] started and that no caller waited for, because no grace period may outlive
/// the module. By then all critical sections have ended, and none begins.
#[allow(dead_code, reason = "not for ULPs")]
pub(crate) struct InUse(());

#[allow(dead_code, reason = "not for ULPs")]
impl InUse {
    /// Begins the use.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // SAFETY: The domain is static.
        unsafe { bindings::rdma_table_drain() };
    }
}

/// Returns the number of critical sections that were entered since the domain was made.
#[allow(dead_code, reason = "not for ULPs")]
pub(crate) fn sections() -> u64 {
    // SAFETY: The domain is static.
    unsafe { bindings::rdma_table_sections() as u64 }
}

/// A critical section. Entries that it finds stay until it ends.
pub(crate) struct Guard {
    /// The counter of SRCU in which the section is.
    entered: *mut bindings::srcu_ctr,
    _not_send: NotThreadSafe,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `entered` came from `rdma_table_enter()`, in this thread.
        unsafe { bindings::rdma_table_leave(self.entered) };
    }
}

/// A critical section that is not preempted.
pub(crate) struct BriefGuard {
    // The section ends before preemption is enabled: fields are dropped in their order.
    guard: Guard,
    _preemption: NoPreemption,
}

impl Deref for BriefGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Preemption is disabled while this exists. It is a part of [`BriefGuard`], which stays in its
/// thread.
struct NoPreemption;

impl Drop for NoPreemption {
    fn drop(&mut self) {
        // SAFETY: `read_brief()` disabled preemption, in this thread.
        unsafe { bindings::rdma_preempt_enable() };
    }
}

/// Reference-counted values by index.
///
/// # Invariants
///
/// Each entry of `xa` came from [`Arc::into_raw`], and is dropped only a grace period after it
/// left `xa`.
#[pin_data(PinnedDrop)]
pub(crate) struct Table<T: Send + Sync> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    _entries: PhantomData<Arc<T>>,
}

// SAFETY: The XArray locks itself; `T` may be used and dropped by any thread.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T: Send + Sync> Table<T> {
    /// Makes an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `xa` points at uninitialised memory of the right size.
            xa <- Opaque::ffi_init(|xa| unsafe { bindings::xa_init_flags(xa, 0) }),
            _entries: PhantomData,
        })
    }

    /// Returns the entry at `index`. It stays until the critical section ends.
    #[inline]
    pub(crate) fn get<'a>(&self, index: u32, _guard: &'a Guard) -> Option<ArcBorrow<'a, T>> {
        // SAFETY: `xa` is initialised.
        let entry = unsafe { bindings::xa_load(self.xa.get(), index as c_ulong) };
        // SAFETY: By the type invariant, the entry came from `Arc::into_raw()`, and is dropped only
        // a grace period after it left the XArray.
        (!entry.is_null()).then(|| unsafe { ArcBorrow::from_raw(entry.cast::<T>()) })
    }

    /// Returns a new reference to the entry at `index`.
    pub(crate) fn get_arc(&self, index: u32) -> Option<Arc<T>> {
        let guard = read_brief();
        self.get(index, &guard).map(Arc::from)
    }

    /// Returns the indices of the entries, in rising order. The caller looks each entry up, and may
    /// find none or another one. So a walk keeps no entry between two critical sections.
    #[allow(dead_code, reason = "not for ULPs")]
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = Some(0);
        iter::from_fn(move || {
            let index = self.first(from?)?;
            from = index.checked_add(1);
            Some(index)
        })
    }

    /// Returns the index of the first entry at `from` or a later index.
    fn first(&self, from: u32) -> Option<u32> {
        let mut index = from as c_ulong;
        // SAFETY: `xa` is initialised; `index` is valid for writes.
        let entry = unsafe {
            bindings::xa_find(
                self.xa.get(),
                &mut index,
                u32::MAX as c_ulong,
                bindings::XA_PRESENT,
            )
        };
        if entry.is_null() {
            return None;
        }
        u32::try_from(index).ok()
    }

    /// Puts `value` at `index`. Drops the entry that was there, after a grace period. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn insert(&self, index: u32, value: Arc<T>) -> Result {
        let new = Arc::into_raw(value).cast_mut().cast::<c_void>();
        // SAFETY: `xa` is initialised; `new` is an allocation, so it is aligned as XArray needs.
        let old = unsafe {
            bindings::xa_store(self.xa.get(), index as c_ulong, new, bindings::GFP_KERNEL)
        };
        // SAFETY: `old` was returned by `xa_store()`.
        let errno = unsafe { bindings::xa_err(old) };
        if errno != 0 {
            // SAFETY: `new` came from `Arc::into_raw()` above and was not stored.
            drop(unsafe { Arc::from_raw(new.cast::<T>()) });
            return Err(Error::from_errno(errno));
        }
        self.retire(old);
        Ok(())
    }

    /// Removes the entry at `index` if it is `value`, and drops it after a grace period. Sleeps.
    pub(crate) fn remove(&self, index: u32, value: &T) {
        let value: *const T = value;
        // SAFETY: `xa` is initialised. A pointer to an `Arc`'s value is what `insert()` stored.
        let old = unsafe {
            bindings::xa_remove_if(
                self.xa.get(),
                index as c_ulong,
                value.cast_mut().cast::<c_void>(),
            )
        };
        self.retire(old);
    }

    /// Drops `old` after a grace period.
    fn retire(&self, old: *mut c_void) {
        if old.is_null() {
            return;
        }
        synchronize();
        // SAFETY: By the type invariant, `old` came from `Arc::into_raw()`. It left the XArray, and
        // all readers that found it have ended.
        drop(unsafe { Arc::from_raw(old.cast::<T>()) });
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut index: c_ulong = 0;
        loop {
            // SAFETY: `xa` is initialised; `index` is valid for writes.
            let entry = unsafe {
                bindings::xa_find(
                    self.xa.get(),
                    &mut index,
                    c_ulong::MAX,
                    bindings::XA_PRESENT,
                )
            };
            if entry.is_null() {
                break;
            }
            // SAFETY: `xa` is initialised.
            self.retire(unsafe { bindings::xa_erase(self.xa.get(), index) });
        }
        // SAFETY: `xa` is initialised and empty.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// Returns `true` if a [`Cell`] with this pointer has a value.
#[inline(always)]
fn has_value(value: *const c_void) -> bool {
    !value.is_null() && value.addr() < PAGE_MASKS
}

/// The numbers from here on are no addresses of allocations: on x86-64 the last 2 GiB have the
/// kernel's image and modules.
const PAGE_MASKS: usize = usize::MAX << 31;

/// An optional shared value, replaced as a whole.
///
/// A cell may be in memory that a driver uses for a page mask after this module has emptied the cell
/// for the last time. The cell is still empty then.
///
/// # Invariants
///
/// `value` is null, or not less than [`PAGE_MASKS`], or came from [`Arc::into_raw`] and is dropped
/// only a grace period after it was taken out.
pub(crate) struct Cell<T: Send + Sync> {
    value: Atomic<*const c_void>,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync> Cell<T> {
    /// Makes an empty cell.
    pub(crate) const fn empty() -> Self {
        Self {
            value: Atomic::new(ptr::null()),
            _owns: PhantomData,
        }
    }

    /// Returns the value. It stays until the critical section ends.
    #[inline]
    pub(crate) fn get<'a>(&'a self, _guard: &'a Guard) -> Option<ArcBorrow<'a, T>> {
        // As in `srcu_dereference()`, reads through the pointer depend on this load, so it needs no
        // barrier.
        let value = load_relaxed(&self.value);
        // SAFETY: By the type invariant.
        has_value(value).then(|| unsafe { ArcBorrow::from_raw(value.cast::<T>()) })
    }

    /// Returns `true` if there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        !has_value(self.value.load(ordering::Relaxed))
    }

    /// Replaces the value by `new`. Does not wait for the readers of the old value.
    pub(crate) fn swap(&self, new: Option<Arc<T>>) -> Retired<T> {
        let new = new.map_or(ptr::null(), Arc::into_raw);
        let old = self.value.xchg(new.cast::<c_void>(), ordering::Full);
        Retired {
            value: has_value(old).then(|| {
                // SAFETY: By the type invariant; `Retired` waits for a grace period before it
                // releases the value.
                unsafe { Arc::from_raw(old.cast::<T>()) }
            }),
            // SAFETY: The domain is static. The value was taken out before, so readers that begin
            // now do not find it.
            era: unsafe { bindings::rdma_table_era() },
            over: Atomic::new(false),
        }
    }
}

impl<T: Send + Sync> Drop for Cell<T> {
    fn drop(&mut self) {
        let value = self.value.load(ordering::Relaxed);
        if has_value(value) {
            // SAFETY: By the type invariant; `&mut self` shows that there is no reader.
            drop(unsafe { Arc::from_raw(value.cast::<T>()) });
        }
    }
}

/// A value that was taken out of a [`Cell`]. It may still have readers.
pub(crate) struct Retired<T: Send + Sync> {
    value: Option<Arc<T>>,
    /// The state of the SRCU domain after the value was taken out.
    era: c_ulong,
    /// `true` if it is known that no reader is left.
    over: Atomic<bool>,
}

impl<T: Send + Sync> Retired<T> {
    /// Returns the value.
    pub(crate) fn value(&self) -> Option<&Arc<T>> {
        self.value.as_ref()
    }

    /// Returns `true` if no reader is left. Otherwise starts a grace period. Does not sleep.
    pub(crate) fn is_over(&self) -> bool {
        if self.over.load(ordering::Relaxed) {
            return true;
        }
        // SAFETY: The domain is static. The value was taken out before.
        let over = self.has_passed() || unsafe { bindings::rdma_table_unused() };
        if over {
            self.over.store(true, ordering::Relaxed);
        }
        over
    }

    /// Waits for the readers and returns the value. Does not sleep if a grace period has passed
    /// since the value was taken out.
    pub(crate) fn wait(mut self) -> Option<Arc<T>> {
        self.wait_for_readers();
        self.value.take()
    }

    fn wait_for_readers(&self) {
        let over = self.value.is_none() || self.over.load(ordering::Relaxed);
        if !over && !self.has_passed() {
            synchronize();
        }
    }

    /// Returns `true` if a grace period has passed since the value was taken out.
    fn has_passed(&self) -> bool {
        // SAFETY: The domain is static, and `era` came from it.
        unsafe { bindings::rdma_table_passed(self.era) }
    }
}

impl<T: Send + Sync> Drop for Retired<T> {
    fn drop(&mut self) {
        self.wait_for_readers();
    }
}

not_for_ulps! {
    #[cfg(CONFIG_KUNIT = "y")]
    #[path = "srcu_kunit.rs"]
    mod kunit;
}
