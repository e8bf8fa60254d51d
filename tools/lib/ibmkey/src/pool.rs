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
    /// All keys that were made, in the order of their addresses. `true` marks a key that a caller
    /// took.
    keys: Vec<(*mut ibv_mr, bool)>,
    /// The number of keys of the pool, free or in use, with those that are being made.
    made: u32,
}

impl State {
    /// Marks a key of the pool as taken or not. Returns `false` if it has that mark already, or is
    /// not of this pool.
    fn set_taken(&mut self, key: *mut ibv_mr, taken: bool) -> bool {
        let at = self.keys.partition_point(|&(other, _)| other < key);

        match self.keys.get_mut(at) {
            Some((found, mark)) if *found == key => core::mem::replace(mark, taken) != taken,
            _ => false,
        }
    }
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
                keys: Vec::new(),
                made: 0,
            }),
        });

        // Take the first key now, so that an unsupported device is reported here.
        // SAFETY: By the caller's promise.
        let first = unsafe { pool.get() }?;
        let mut state = pool.state();
        state.set_taken(first, false);
        state.free.push(first);
        drop(state);
        Ok(Box::into_raw(pool))
    }

    /// Returns the number of keys that the pool may have.
    pub(crate) fn max_keys(&self) -> u32 {
        self.max_keys
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
            state.set_taken(key, true);
            return Ok(key);
        }
        if state.made >= self.max_keys {
            return Err(Errno::EAGAIN);
        }
        // Reserve room, so that returning the key cannot fail.
        let missing = (state.made as usize).saturating_add(1);
        let room = missing.saturating_sub(state.free.len());
        state.free.try_reserve(room).map_err(|_| Errno::ENOMEM)?;
        let room = missing.saturating_sub(state.keys.len());
        state.keys.try_reserve(room).map_err(|_| Errno::ENOMEM)?;
        state.made = state.made.saturating_add(1);
        drop(state);

        // SAFETY: By the caller's promise.
        let key = unsafe {
            object::new_mr(self.pd, |fd, pd_handle| {
                mkey::create(fd, pd_handle, self.max_entries)
            })
        };
        let mut state = self.state();
        match key {
            // There is room for all keys that are made, so this does not allocate.
            Ok(key) => {
                let at = state.keys.partition_point(|&(other, _)| other < key);
                state.keys.insert(at, (key, true));
            }
            Err(_) => state.made = state.made.saturating_sub(1),
        }
        key
    }

    /// Unbinds a key and takes it back.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a key that no caller has; those of the unbind.
    ///
    /// # Safety
    ///
    /// The protection domain still exists. Unless this fails, the caller does not use `key` any
    /// more.
    pub(crate) unsafe fn put(&self, key: *mut ibv_mr) -> Result {
        // While it is unbound, the key is neither free nor taken, so no other thread can return it.
        if !self.state().set_taken(key, false) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: It was taken, so it is a key of `new_mr()` that was not destroyed.
        let unbound = unsafe { object::mr_handle(key) }
            .and_then(|(fd, handle)| mkey::unbind(fd, handle))
            // SAFETY: As above.
            .map(|unbound| unsafe { object::set_bound(key, unbound) });
        let mut state = self.state();
        match unbound {
            Ok(()) => state.free.push(key),
            Err(_) => {
                state.set_taken(key, true);
            }
        }
        unbound
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
                let State { free, keys, .. } = &mut *state;
                free.push(key);
                keys.retain(|(left, _)| free.contains(left));
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
