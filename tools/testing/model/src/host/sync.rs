// SPDX-License-Identifier: GPL-2.0

//! Locks, counts, atomics and RCU, which the explorer orders.

use core::{
    marker::{PhantomData, Unsize},
    ops::{CoerceUnsized, Deref, DerefMut},
};
use kernel::{alloc::Flags, error::Result};

/// A counted reference. Counts of this kind are not part of the model.
pub(crate) struct Arc<T: ?Sized>(std::sync::Arc<T>);

impl<T> Arc<T> {
    pub(crate) fn new(value: T, _: Flags) -> Result<Self> {
        Ok(Self(std::sync::Arc::new(value)))
    }
    pub(crate) fn pin_init(value: T, _: Flags) -> Result<Self> {
        Ok(Self(std::sync::Arc::new(value)))
    }
    pub(crate) fn ptr_eq(one: &Self, two: &Self) -> bool {
        std::sync::Arc::ptr_eq(&one.0, &two.0)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<Arc<U>> for Arc<T> {}

/// A borrowed reference.
#[derive(Clone, Copy)]
pub(crate) struct ArcBorrow<'a, T>(pub(crate) &'a Arc<T>);

impl<T> Deref for ArcBorrow<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> From<ArcBorrow<'_, T>> for Arc<T> {
    fn from(borrow: ArcBorrow<'_, T>) -> Self {
        borrow.0.clone()
    }
}

pub(crate) mod lock {
    use super::*;

    pub(crate) struct Lock<T, B>(loom::sync::Mutex<T>, PhantomData<B>);
    pub(crate) struct Guard<'a, T, B>(loom::sync::MutexGuard<'a, T>, PhantomData<B>);

    impl<T, B> Lock<T, B> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value), PhantomData)
        }
        pub(crate) fn lock(&self) -> Guard<'_, T, B> {
            Guard(self.0.lock().unwrap(), PhantomData)
        }
    }

    impl<T, B> Deref for Guard<'_, T, B> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T, B> DerefMut for Guard<'_, T, B> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

pub(crate) struct Spin;
pub(crate) type SpinLock<T> = lock::Lock<T, Spin>;

#[macro_export]
macro_rules! new_spinlock {
    ($inner:expr, $name:literal) => {
        $crate::sync::SpinLock::new($inner)
    };
}

pub(crate) mod atomic {
    use core::ffi::c_void;
    use loom::sync::atomic::{fence, AtomicU64, Ordering};
    use std::sync::OnceLock;

    pub(crate) mod ordering {
        pub(crate) struct Relaxed;
        pub(crate) struct Full;
    }

    /// A type of which the kernel has atomics.
    pub(crate) trait AtomicType: Copy {
        fn to_bits(self) -> u64;
        fn of_bits(bits: u64) -> Self;
    }

    macro_rules! atomic_type {
        ($($t:ty: $bits:ident => $of:expr;)*) => { $(
            impl AtomicType for $t {
                fn to_bits(self) -> u64 { self as u64 }
                fn of_bits($bits: u64) -> Self { $of }
            }
        )* };
    }

    atomic_type! {
        bool: bits => bits != 0;
        u32: bits => bits as u32;
        u64: bits => bits;
        *const c_void: bits => bits as *const c_void;
    }

    /// An atomic value. It is made when it is first used, because the kernel makes it in constants.
    pub(crate) struct Atomic<T>(OnceLock<AtomicU64>, T);

    // SAFETY: The value is not used after the atomic was made.
    unsafe impl<T> Send for Atomic<T> {}
    // SAFETY: As above.
    unsafe impl<T> Sync for Atomic<T> {}

    impl<T: AtomicType> Atomic<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(OnceLock::new(), value)
        }
        fn value(&self) -> &AtomicU64 {
            self.0.get_or_init(|| AtomicU64::new(self.1.to_bits()))
        }
        pub(crate) fn load(&self, _: ordering::Relaxed) -> T {
            T::of_bits(self.value().load(Ordering::Relaxed))
        }
        pub(crate) fn store(&self, value: T, _: ordering::Relaxed) {
            self.value().store(value.to_bits(), Ordering::Relaxed);
        }
        pub(crate) fn fetch_add(&self, by: u64, _: ordering::Relaxed) -> T {
            T::of_bits(self.value().fetch_add(by, Ordering::Relaxed))
        }
        pub(crate) fn xchg(&self, value: T, _: ordering::Full) -> T {
            fence(Ordering::SeqCst);
            let old = self.value().swap(value.to_bits(), Ordering::SeqCst);
            fence(Ordering::SeqCst);
            T::of_bits(old)
        }
    }
}

pub(crate) mod rcu {
    //! RCU. A reader that begins after [`free`] sees what was done before, and memory is marked as free
    //! when all earlier readers have ended. Memory stays allocated until the execution ends, so that a
    //! use of free memory is found and not undefined.

    use crate::bindings::refcount_t;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Mutex;

    #[derive(Default)]
    struct State {
        next: usize,
        readers: Vec<usize>,
        /// Memory, and the readers for which it waits.
        freed: Vec<(usize, Vec<usize>)>,
    }

    struct Rcu {
        began: AtomicUsize,
        state: Mutex<State>,
    }

    loom::lazy_static! {
        static ref RCU: Rcu = Rcu { began: AtomicUsize::new(0), state: Mutex::default() };
    }

    pub(crate) struct Guard(usize);

    pub(crate) fn read_lock() -> Guard {
        RCU.began.fetch_add(0, Ordering::Acquire);
        let mut state = RCU.state.lock().unwrap();
        state.next += 1;
        let reader = state.next;
        state.readers.push(reader);
        Guard(reader)
    }

    impl State {
        fn end_grace_periods(&mut self) {
            self.freed.retain(|(memory, readers)| {
                if readers.is_empty() {
                    // SAFETY: Memory of `RcuUnique` is never freed here.
                    unsafe { (*(*memory as *const refcount_t)).poison() };
                }
                !readers.is_empty()
            });
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let mut state = RCU.state.lock().unwrap();
            state.readers.retain(|reader| *reader != self.0);
            for (_, readers) in &mut state.freed {
                readers.retain(|reader| *reader != self.0);
            }
            state.end_grace_periods();
        }
    }

    pub(crate) fn free(memory: *const refcount_t) {
        RCU.began.fetch_add(1, Ordering::Release);
        let mut state = RCU.state.lock().unwrap();
        let readers = state.readers.clone();
        state.freed.push((memory as usize, readers));
        state.end_grace_periods();
    }
}
