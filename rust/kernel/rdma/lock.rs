// SPDX-License-Identifier: GPL-2.0

//! A spinlock that callers in any context may take; the kernel crate's is for process context.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::bindings;
use kernel::{
    ffi::{c_char, c_ulong},
    sync::lock::{Backend, Lock},
};

/// A spinlock, taken with interrupts off.
pub(crate) type IrqLock<T> = Lock<T, IrqSpin>;

/// Makes an [`IrqLock`].
macro_rules! new_irq_lock {
    ($inner:expr, $name:literal) => {
        $crate::rdma::lock::IrqLock::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_lock;

/// `spin_lock_irqsave()` and its opposite.
pub(crate) struct IrqSpin;

// SAFETY: `spinlock_t` ensures mutual exclusion. What is kept is what `spin_lock_irqsave()` gave
// to the owner; relocking takes it anew.
unsafe impl Backend for IrqSpin {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> c_ulong {
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<c_ulong> {
        let mut flags = 0;
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &c_ulong) {
        // SAFETY: By the safety requirements; `flags` is what locking gave.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
