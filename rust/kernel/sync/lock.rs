// SPDX-License-Identifier: GPL-2.0

//! Locks that the `kernel` crate lacks: a spinlock that callers in any context may take, and a
//! mutex class of which a thread may hold several.
//!
//! C headers: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h),
//! [`include/linux/mutex.h`](srctree/include/linux/mutex.h)

use crate::{bindings, kernel_ext::sched};
use kernel::{
    ffi::{c_char, c_ulong},
    sync::lock::{Backend, Guard, Lock},
    time::Jiffies,
    types::NotThreadSafe,
};

/// A spinlock that disables interrupts while it is held.
pub(crate) type IrqLock<T> = Lock<T, IrqSpin>;

/// Makes an [`IrqLock`].
macro_rules! new_irq_lock {
    ($inner:expr, $name:literal) => {
        $crate::kernel_ext::sync::lock::IrqLock::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_lock;

/// The backend of [`IrqLock`]: `spin_lock_irqsave()` and `spin_unlock_irqrestore()`.
pub(crate) struct IrqSpin;

// SAFETY: `spinlock_t` ensures mutual exclusion. The guard keeps the flags that
// `spin_lock_irqsave()` returned to the owner; relocking takes new ones.
unsafe impl Backend for IrqSpin {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) -> c_ulong {
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<c_ulong> {
        let mut flags = 0;
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut Self::State, flags: &c_ulong) {
        // SAFETY: By the safety requirements; locking returned `flags`.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// A mutex of which a thread may hold several at once. The users define the order.
pub(crate) type ManyMutex<T> = Lock<T, Many>;

/// Makes a [`ManyMutex`].
macro_rules! new_many_mutex {
    ($inner:expr, $name:literal) => {
        $crate::kernel_ext::sync::lock::ManyMutex::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_many_mutex;

/// Lets a thread hold several [`ManyMutex`]es, and tells lockdep. It is dropped after their guards.
/// It excludes no other thread.
pub(crate) struct LockMany(NotThreadSafe);

impl LockMany {
    pub(crate) fn new() -> Self {
        // SAFETY: No preconditions.
        unsafe { bindings::rdma_many_begin() };
        Self(NotThreadSafe)
    }

    /// Locks one of the mutexes. Sleeps.
    pub(crate) fn lock<'a, T>(&self, mutex: &'a ManyMutex<T>) -> Guard<'a, T, Many> {
        mutex.lock()
    }
}

impl LockMany {
    /// Locks one of the mutexes. Returns [`None`] if others hold it for `jiffies` jiffies. Sleeps.
    ///
    /// A `struct mutex` has no wait with a limit, so this tries once in each jiffy. Threads in
    /// [`Self::lock`] may always be faster. That suits callers that rarely compete with another
    /// thread, and that may give up.
    pub(crate) fn lock_within<'a, T>(
        &self,
        mutex: &'a ManyMutex<T>,
        jiffies: Jiffies,
    ) -> Option<Guard<'a, T, Many>> {
        for _ in 0..jiffies {
            if let Some(guard) = mutex.try_lock() {
                return Some(guard);
            }
            sched::sleep_one_jiffy();
        }
        mutex.try_lock()
    }
}

impl Drop for LockMany {
    fn drop(&mut self) {
        // SAFETY: This thread called `rdma_many_begin()` in `new()`.
        unsafe { bindings::rdma_many_end() };
    }
}

/// The backend of [`ManyMutex`]: `mutex_lock_nest_lock()` and `mutex_unlock()`.
pub(crate) struct Many;

// SAFETY: `struct mutex` ensures mutual exclusion.
unsafe impl Backend for Many {
    type State = bindings::mutex;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::__mutex_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::rdma_many_lock(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: By the safety requirements.
        (unsafe { bindings::mutex_trylock(ptr) } != 0).then_some(())
    }

    unsafe fn unlock(ptr: *mut Self::State, (): &()) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::mutex_unlock(ptr) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::mutex_assert_is_held(ptr) }
    }
}
