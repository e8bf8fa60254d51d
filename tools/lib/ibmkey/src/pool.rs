// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A pool of keys: taking a key takes a lock, returning a key unbinds it.

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

/// `struct ibmkey_pool`. C callers see only its address.
pub struct Pool {
    pd: *mut ibv_pd,
    max_entries: u32,
    max_keys: u32,
    state: Mutex<State>,
}

struct State {
    /// Unbound keys. It has room for all keys of the pool.
    free: Vec<*mut ibv_mr>,
    /// The number of keys of the pool, free or in use.
    made: u32,
}

impl Pool {
    /// # Safety
    ///
    /// `pd` is NULL or a protection domain that outlives the pool.
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

        // Take the first key now, so that an unsupported device is reported here.
        // SAFETY: By the caller's promise.
        let first = unsafe { pool.get() }?;
        pool.state().free.push(first);
        Ok(Box::into_raw(pool))
    }

    /// Locks the state. No code panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an unbound key.
    ///
    /// # Safety
    ///
    /// The protection domain still exists.
    pub(crate) unsafe fn get(&self) -> Result<*mut ibv_mr> {
        let mut state = self.state();

        if let Some(key) = state.free.pop() {
            return Ok(key);
        }
        if state.made >= self.max_keys {
            return Err(Errno::EAGAIN);
        }
        // Reserve room, so that returning the key cannot fail.
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
    /// `key` came from [`Self::get`]. Unless this fails, the caller does not use it any more.
    pub(crate) unsafe fn put(&self, key: *mut ibv_mr) -> Result {
        // SAFETY: By the caller's promise.
        let (fd, handle) = unsafe { object::mr_handle(key) }?;
        mkey::unbind(fd, handle)?;
        // SAFETY: As above; it is not NULL, because it has a handle.
        unsafe { (&raw mut (*key).length).write(0) };

        self.state().free.push(key);
        Ok(())
    }

    /// Destroys the pool and its keys.
    ///
    /// # Safety
    ///
    /// `pool` came from [`Self::new`]. Unless this fails, there are no more references to it.
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
