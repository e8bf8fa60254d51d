// SPDX-License-Identifier: GPL-2.0

//! A shared value whose readers are counted.
//!
//! A reader takes no lock and may sleep. In contrast to a [`srcu::Cell`](super::srcu::Cell), a
//! writer waits only for the readers of this value, and often there are none.

use super::{
    racing::load_relaxed,
    users::{Timeout, Users},
};
use core::{marker::PhantomData, ops::Deref, ptr};
use kernel::{
    ffi::c_void,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
        ArcBorrow, //
    },
};

/// An optional shared value. Its readers are counted.
///
/// # Invariants
///
/// `value` is null or came from [`Arc::into_raw`]. Between the time at which a value leaves `value`
/// and the time at which its reference is dropped, `users` was zero once.
pub(crate) struct CountedCell<T: Send + Sync> {
    value: Atomic<*const c_void>,
    users: Arc<Users>,
    _owns: PhantomData<Arc<T>>,
}

/// A value that is being read.
pub(crate) struct Reader<'a, T: Send + Sync> {
    value: ArcBorrow<'a, T>,
    _user: Entered<'a, T>,
}

/// A reader in the count of a cell.
struct Entered<'a, T: Send + Sync>(&'a CountedCell<T>);

impl<T: Send + Sync> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // A thread that waits has emptied the cell before it looks at the count.
        self.0.users.leave(|| !self.0.is_filled());
    }
}

/// A value that was taken out of a [`CountedCell`]. It may still have readers. Dropping it waits
/// for them, which sleeps.
#[must_use]
pub(crate) struct Taken<T: Send + Sync> {
    value: Option<Arc<T>>,
    users: Arc<Users>,
}

impl<T: Send + Sync> CountedCell<T> {
    /// Makes an empty cell.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            value: Atomic::new(ptr::null()),
            users: Users::new(GFP_KERNEL)?,
            _owns: PhantomData,
        })
    }

    #[inline]
    fn load(&self) -> *const T {
        // Reads through the pointer depend on this load, so it needs no barrier.
        load_relaxed(&self.value).cast::<T>()
    }

    /// Returns `true` if there is a value.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        !self.load().is_null()
    }

    /// Returns the value. It stays until the result is dropped.
    #[inline(always)]
    pub(crate) fn read(&self) -> Option<Reader<'_, T>> {
        // A reader that comes after the value was taken out is not counted, so it does not delay
        // the thread that waits.
        if !self.is_filled() {
            return None;
        }
        // Counting is a full barrier: if the load below finds a value, a writer that takes it out
        // later sees the count.
        self.users.enter();
        let user = Entered(self);
        let value = self.load();
        if value.is_null() {
            return None;
        }
        Some(Reader {
            // SAFETY: By the type invariant, the reference is kept until the count is zero.
            value: unsafe { ArcBorrow::from_raw(value) },
            _user: user,
        })
    }

    /// Puts `value` into the cell, if it is empty. The caller serialises writers. No thread may
    /// wait for readers of an earlier value: the last reader would find the cell filled and would
    /// not wake that thread.
    ///
    /// # Errors
    ///
    /// `value`, if the cell is not empty.
    pub(crate) fn fill(&self, value: Arc<T>) -> Result<(), Arc<T>> {
        if self.is_filled() {
            return Err(value);
        }
        // INVARIANT: The value came from `Arc::into_raw()`. The cell was empty.
        let value = Arc::into_raw(value).cast::<c_void>();
        self.value.store(value, ordering::Release);
        Ok(())
    }

    /// Takes the value out, if there is one. Returns it if the cell has no readers, neither of this
    /// value nor of an earlier one. Does not wait.
    ///
    /// # Errors
    ///
    /// The value that was taken out, if the cell may have readers.
    pub(crate) fn take_unread(&self) -> Result<Option<Arc<T>>, Option<Taken<T>>> {
        let value = self.exchange();
        // INVARIANT: The count is zero after the value left the cell, or `Taken` keeps the
        // reference.
        if self.users.is_unused() {
            Ok(value)
        } else {
            Err(value.map(|value| self.taken(value)))
        }
    }

    /// Empties the cell. The caller keeps the reference until the count was zero.
    #[inline]
    fn exchange(&self) -> Option<Arc<T>> {
        // A full barrier: a reader that found the value was counted before.
        let value = self.value.xchg(ptr::null(), ordering::Full);
        // SAFETY: By the type invariant.
        (!value.is_null()).then(|| unsafe { Arc::from_raw(value.cast::<T>()) })
    }

    fn taken(&self, value: Arc<T>) -> Taken<T> {
        Taken {
            value: Some(value),
            users: self.users.clone(),
        }
    }

    /// Waits until the empty cell has no readers. Sleeps.
    pub(crate) fn wait_for_readers(&self) {
        // An endless wait has no error.
        let _ = self.users.wait_if_used(Timeout::Never);
    }
}

impl<T: Send + Sync> Drop for CountedCell<T> {
    fn drop(&mut self) {
        // `&mut self` shows that there is no reader.
        let value = self.load();
        if !value.is_null() {
            // SAFETY: By the type invariant.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}

impl<T: Send + Sync> Reader<'_, T> {
    /// Returns a reference that stays after the reader.
    pub(crate) fn keep(&self) -> Arc<T> {
        self.value.into()
    }
}

impl<T: Send + Sync> Deref for Reader<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync> Taken<T> {
    /// Waits for the readers and returns the value. Sleeps.
    pub(crate) fn wait(mut self) -> Option<Arc<T>> {
        let _ = self.users.wait_if_used(Timeout::Never);
        self.value.take()
    }
}

impl<T: Send + Sync> Drop for Taken<T> {
    fn drop(&mut self) {
        if self.value.is_some() {
            let _ = self.users.wait_if_used(Timeout::Never);
        }
    }
}

not_for_ulps! {
    #[cfg(CONFIG_KUNIT = "y")]
    #[path = "counted_kunit.rs"]
    mod kunit;
}
