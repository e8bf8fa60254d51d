// SPDX-License-Identifier: GPL-2.0

//! A place for an unused value.
//!
//! Code that often needs a value, and must not allocate each time, keeps an unused value in such a
//! place. No lock is taken.

use core::{marker::PhantomData, pin::Pin, ptr};
use kernel::{
    ffi::c_void,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
        UniqueArc, //
    },
};

/// A place for an unused value. Any thread may put a value in or take it out.
///
/// # Invariants
///
/// `value` is null, or came from [`Arc::into_raw`] of the only reference to the value.
pub(crate) struct Spare<T: Send + Sync + Unpin> {
    value: Atomic<*const c_void>,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + Unpin> Spare<T> {
    /// Makes an empty place.
    pub(crate) const fn empty() -> Self {
        Self {
            value: Atomic::new(ptr::null()),
            _owns: PhantomData,
        }
    }

    /// Exchanges the value.
    fn exchange(&self, new: *const c_void) -> Option<UniqueArc<T>> {
        // A full barrier: the thread that takes a value out sees what was written to it.
        // INVARIANT: The callers give null or the only reference.
        let old = self.value.xchg(new, ordering::Full);
        if old.is_null() {
            return None;
        }
        // SAFETY: By the type invariant. The pointer was taken out, so this owns the reference.
        let old = unsafe { Arc::from_raw(old.cast::<T>()) };
        Arc::into_unique_or_drop(old).map(Pin::into_inner)
    }

    /// Takes the value out.
    pub(crate) fn take(&self) -> Option<UniqueArc<T>> {
        // This load may miss a value that another thread puts in at the same time. That does no
        // harm.
        if self.value.load(ordering::Relaxed).is_null() {
            return None;
        }
        self.exchange(ptr::null())
    }

    /// Puts `value` in. Returns the value that was there before.
    pub(crate) fn put(&self, value: UniqueArc<T>) -> Option<UniqueArc<T>> {
        self.exchange(Arc::into_raw(Arc::from(value)).cast::<c_void>())
    }
}

impl<T: Send + Sync + Unpin> Drop for Spare<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

not_for_ulps! {
    #[cfg(CONFIG_KUNIT = "y")]
    #[path = "spare_kunit.rs"]
    mod kunit;
}
