// SPDX-License-Identifier: GPL-2.0

//! The locks of `rust/kernel/sync/lock.rs`.

use super::pending::Timeout;
use kernel::sync::lock::{Guard, Lock};

pub(crate) struct IrqSpin;
pub(crate) type IrqLock<T> = Lock<T, IrqSpin>;
pub(crate) struct Many;
pub(crate) type ManyMutex<T> = Lock<T, Many>;

macro_rules! new_lock {
    ($inner:expr, $name:literal) => {
        ::kernel::sync::lock::Lock::new($inner)
    };
}
pub(crate) use new_lock as new_irq_lock;
pub(crate) use new_lock as new_many_mutex;

pub(crate) struct LockMany;

impl LockMany {
    pub(crate) fn new() -> Self {
        Self
    }
    pub(crate) fn lock<'a, T>(&self, mutex: &'a ManyMutex<T>) -> Guard<'a, T, Many> {
        mutex.lock()
    }
    pub(crate) fn lock_within<'a, T>(
        &self,
        mutex: &'a ManyMutex<T>,
        _: u64,
    ) -> Option<Guard<'a, T, Many>> {
        Some(mutex.lock())
    }
}
