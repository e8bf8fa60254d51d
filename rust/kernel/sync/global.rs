// SPDX-License-Identifier: GPL-2.0

//! Mutexes in static memory that are initialised when they are locked for the first time.

use kernel::{
    sync::atomic::{ordering, Atomic},
    time::{delay::fsleep, Delta},
};

/// Runs an initialisation once.
pub(crate) struct Once(Atomic<i32>);

impl Once {
    const NEW: i32 = 0;
    const RUNNING: i32 = 1;
    const DONE: i32 = 2;

    /// Makes a value whose initialisation has not run.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(Self::NEW))
    }

    /// Runs `init`, which must be short, or waits until another thread has run it. Sleeps.
    pub(crate) fn run(&self, init: impl FnOnce()) {
        // Pairs with the store of `DONE` in this function.
        if self.0.load(ordering::Acquire) == Self::DONE {
            return;
        }
        if self
            .0
            .cmpxchg(Self::NEW, Self::RUNNING, ordering::Relaxed)
            .is_ok()
        {
            init();
            // Pairs with the loads in this function.
            self.0.store(Self::DONE, ordering::Release);
            return;
        }
        while self.0.load(ordering::Acquire) != Self::DONE {
            fsleep(Delta::from_micros(10));
        }
    }
}

/// Declares a mutex in static memory: `global_mutex!(static NAME: Type = value)`. `NAME::lock()`
/// locks it and returns a guard.
macro_rules! global_mutex {
    ($(#[$attr:meta])* static $name:ident: $ty:ty = $value:expr) => {
        $(#[$attr])*
        #[allow(non_snake_case, reason = "the name of a static")]
        mod $name {
            use super::*;

            ::kernel::sync::global_lock! {
                // SAFETY: Only `lock()` uses it, and initialises it before.
                unsafe(uninit) static MUTEX: Mutex<$ty> = $value;
            }
            static ONCE: $crate::kernel_ext::sync::global::Once =
                $crate::kernel_ext::sync::global::Once::new();

            /// Locks the mutex.
            pub(super) fn lock() -> impl ::core::ops::DerefMut<Target = $ty> {
                // SAFETY: `ONCE` calls this once.
                ONCE.run(|| unsafe { MUTEX.init() });
                MUTEX.lock()
            }
        }
    };
}
pub(crate) use global_mutex;
