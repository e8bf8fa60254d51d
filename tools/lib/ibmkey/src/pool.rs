// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A pool of keys: to take one is a lock, to give it back is to unbind it.

use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    mkey, object,
    sys::{
        ibv_mr,
        ibv_pd, //
    },
};

/// `struct ibmkey_pool`, of which a C caller sees the address alone.
pub struct Pool {
    pd: *mut ibv_pd,
    max_entries: u32,
    max_keys: u32,
    state: Mutex<State>,
}

struct State {
    /// Bound to nothing; with room for all keys that there are.
    free: Vec<*mut ibv_mr>,
    /// Keys that there are, given out or not.
    made: u32,
}

impl Pool {
    /// # Safety
    ///
    /// `pd` is NULL or a protection domain that stays until the pool is destroyed.
    pub(crate) unsafe fn new(
        pd: *mut ibv_pd,
        max_entries: u32,
        max_keys: u32,
    ) -> Result<*mut Self> {
        if max_keys == 0 {
            return Err(Errno::EINVAL);
        }
        let pool = Box::new(Self {
            pd,
            max_entries,
            max_keys,
            state: Mutex::new(State {
                free: Vec::new(),
                made: 0,
            }),
        });

        // The first one now: what cannot be had at all is told here.
        // SAFETY: By the caller's promise.
        let first = unsafe { pool.get() }?;
        pool.state().free.push(first);
        Ok(Box::into_raw(pool))
    }

    /// Nothing can panic while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key that is bound to nothing.
    ///
    /// # Safety
    ///
    /// The protection domain is still there.
    pub(crate) unsafe fn get(&self) -> Result<*mut ibv_mr> {
        let mut state = self.state();

        if let Some(key) = state.free.pop() {
            return Ok(key);
        }
        if state.made >= self.max_keys {
            return Err(Errno::EAGAIN);
        }
        // So that giving it back cannot fail.
        let missing = (state.made as usize).saturating_add(1);
        state.free.try_reserve(missing).map_err(|_| Errno::ENOMEM)?;
        state.made = state.made.saturating_add(1);
        drop(state);

        // SAFETY: By the caller's promise.
        unsafe {
            object::new_mr(self.pd, |fd, pd_handle| {
                mkey::create(fd, pd_handle, self.max_entries)
            })
        }
        .inspect_err(|_| {
            let mut state = self.state();
            state.made = state.made.saturating_sub(1);
        })
    }

    /// Unbinds a key and takes it back.
    ///
    /// # Safety
    ///
    /// `key` came from [`Self::get`] and is not used by the caller any more,
    /// unless this fails.
    pub(crate) unsafe fn put(&self, key: *mut ibv_mr) -> Result {
        // SAFETY: By the caller's promise.
        let (fd, handle) = unsafe { object::mr_handle(key) }?;
        mkey::unbind(fd, handle)?;
        // SAFETY: As above; not NULL, or there were no handle.
        unsafe { (&raw mut (*key).length).write(0) };

        self.state().free.push(key);
        Ok(())
    }

    /// Destroys the pool and its keys.
    ///
    /// # Safety
    ///
    /// `pool` came from [`Self::new`] and is not used any more, unless this fails.
    pub(crate) unsafe fn destroy(pool: *mut Self) -> Result {
        // SAFETY: By the caller's promise.
        let this = unsafe { &*pool };
        let mut state = this.state();

        if state.free.len() < state.made as usize {
            return Err(Errno::EBUSY);
        }
        while let Some(key) = state.free.pop() {
            // SAFETY: It came from `new_mr()`, and the pool has the only reference.
            if let Err(errno) = unsafe { object::destroy_mr(key) } {
                state.free.push(key);
                return Err(errno);
            }
            state.made = state.made.saturating_sub(1);
        }
        drop(state);
        // SAFETY: By the caller's promise.
        drop(unsafe { Box::from_raw(pool) });
        Ok(())
    }
}
