// SPDX-License-Identifier: GPL-2.0

//! Shared values that readers find under RCU, and keep by a count.
//!
//! The count of an [`Arc`](kernel::sync::Arc) can be incremented only by code that has a reference.
//! A reader of an [`RcuCell`] has none: it increments the count unless the count is zero. The memory
//! of a value whose count is zero is freed after a grace period of RCU, for which nothing waits. The
//! reader leaves RCU before it uses the value, so it may sleep then.
//!
//! C headers: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h),
//! [`include/linux/refcount.h`](srctree/include/linux/refcount.h)

use super::racing::load_relaxed;
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::{ManuallyDrop, MaybeUninit},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
};
use kernel::{
    alloc::Flags,
    ffi::c_void,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu,
    },
};

/// A value that [`RcuArc`] shares.
pub(crate) trait RcuShared: Send + Sync + Sized {
    /// Gets the value back when its last reference is dropped, in the context of the thread that
    /// drops it.
    fn released(this: RcuUnique<Self>);
}

/// A value, and its count.
#[repr(C)]
struct Inner<T> {
    refs: bindings::refcount_t,
    contents: Contents<T>,
}

/// A value; or, after the value was dropped, the memory by which RCU lists what it frees later.
#[repr(C)]
union Contents<T> {
    value: ManuallyDrop<T>,
    rcu: MaybeUninit<bindings::callback_head>,
}

/// The only reference to a value.
///
/// # Invariants
///
/// The pointer came from [`KBox::into_raw`], the contents are a value, and the count is zero.
pub(crate) struct RcuUnique<T>(NonNull<Inner<T>>);

// SAFETY: This owns a `T`.
unsafe impl<T: Send> Send for RcuUnique<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for RcuUnique<T> {}

impl<T: RcuShared> RcuUnique<T> {
    /// Moves `value` into memory that can be shared.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(value: T, flags: Flags) -> Result<Self> {
        // `value` is dropped if there is no memory, so it is wrapped only after that.
        let memory = KBox::<Inner<T>>::new_uninit(flags)?;
        let inner = Inner {
            refs: bindings::refcount_t::default(),
            contents: Contents {
                value: ManuallyDrop::new(value),
            },
        };
        let inner = NonNull::from(KBox::leak(KBox::write(memory, inner)));
        // INVARIANT: Made above.
        Ok(Self(inner))
    }

    /// Returns the first reference.
    pub(crate) fn share(self) -> RcuArc<T> {
        let inner = ManuallyDrop::new(self).0;
        // A reader that found an earlier use of this memory may increment the count from here on. It
        // sees what was written to the value.
        // SAFETY: By the type invariant.
        unsafe { bindings::refcount_set_release(&raw mut (*inner.as_ptr()).refs, 1) };
        // INVARIANT: The count is that of the result.
        RcuArc(inner)
    }
}

impl<T> Deref for RcuUnique<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariant.
        unsafe { &(*self.0.as_ptr()).contents.value }
    }
}

impl<T> DerefMut for RcuUnique<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariant. A reader of RCU finds the count zero and reads nothing
        // else.
        unsafe { &mut (*self.0.as_ptr()).contents.value }
    }
}

impl<T> Drop for RcuUnique<T> {
    fn drop(&mut self) {
        let inner = self.0.as_ptr();
        // SAFETY: By the type invariant, the contents are a value, which nothing uses any more. The
        // memory is one of `kmalloc()`. Readers of RCU may still read the count until the grace
        // period has passed.
        unsafe {
            ManuallyDrop::drop(&mut (*inner).contents.value);
            let head = &raw mut (*inner).contents.rcu;
            bindings::kvfree_call_rcu(head.cast(), inner.cast());
        }
    }
}

/// A reference to a shared value.
///
/// # Invariants
///
/// The pointer came from [`RcuUnique`], and this owns one of the count.
pub(crate) struct RcuArc<T: RcuShared>(NonNull<Inner<T>>);

// SAFETY: This shares a `T`, and may be the last reference, which owns it.
unsafe impl<T: RcuShared> Send for RcuArc<T> {}
// SAFETY: As above.
unsafe impl<T: RcuShared> Sync for RcuArc<T> {}

impl<T: RcuShared> Deref for RcuArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariant.
        unsafe { &(*self.0.as_ptr()).contents.value }
    }
}

impl<T: RcuShared> Clone for RcuArc<T> {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::refcount_inc(&raw mut (*self.0.as_ptr()).refs) };
        // INVARIANT: Counted above.
        Self(self.0)
    }
}

impl<T: RcuShared> Drop for RcuArc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        if unsafe { bindings::refcount_dec_and_test(&raw mut (*self.0.as_ptr()).refs) } {
            // INVARIANT: The count is zero, so this was the only reference.
            T::released(RcuUnique(self.0));
        }
    }
}

/// An optional shared value, replaced as a whole.
///
/// # Invariants
///
/// `value` is null, or a pointer of an [`RcuArc`] whose count it owns.
pub(crate) struct RcuCell<T: RcuShared> {
    value: Atomic<*const c_void>,
    _owns: PhantomData<RcuArc<T>>,
}

impl<T: RcuShared> RcuCell<T> {
    /// Makes an empty cell.
    pub(crate) const fn empty() -> Self {
        Self {
            value: Atomic::new(ptr::null()),
            _owns: PhantomData,
        }
    }

    /// Returns a reference to the value. Does not sleep, but may drop the last reference to an
    /// earlier value, so the caller holds no lock that [`RcuShared::released`] takes.
    #[inline]
    pub(crate) fn get(&self) -> Option<RcuArc<T>> {
        loop {
            let guard = rcu::read_lock();
            // As in `rcu_dereference()`, reads through the pointer depend on this load.
            let inner = load_relaxed(&self.value).cast_mut().cast::<Inner<T>>();
            let found = NonNull::new(inner)?;
            // SAFETY: The memory is not freed before the critical section ends.
            let refs = unsafe { &raw mut (*inner).refs };
            // SAFETY: The count is part of that memory.
            let counted = unsafe { bindings::refcount_inc_not_zero_acquire(refs) };
            drop(guard);
            // If the count was zero, the value had left the cell before, so the next load finds
            // another one, or none.
            if counted {
                // INVARIANT: Counted above.
                let found = RcuArc(found);
                // The memory may have another value by now, which is not in the cell yet.
                if load_relaxed(&self.value) == inner.cast_const().cast() {
                    return Some(found);
                }
            }
        }
    }

    /// Returns `true` if there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        load_relaxed(&self.value).is_null()
    }

    /// Replaces the value by `new`. Readers may have references to the value that was there.
    pub(crate) fn swap(&self, new: Option<RcuArc<T>>) -> Option<RcuArc<T>> {
        let new = new.map_or(ptr::null(), |new| ManuallyDrop::new(new).0.as_ptr().cast());
        // A full barrier: a reader sees what was written to the new value.
        let old = self.value.xchg(new, ordering::Full);
        // INVARIANT: By the type invariant; the count of the cell is that of the result.
        NonNull::new(old.cast_mut().cast()).map(RcuArc)
    }
}

impl<T: RcuShared> Drop for RcuCell<T> {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rcu_arc_kunit.rs"]
mod kunit;
