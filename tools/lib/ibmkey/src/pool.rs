// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A pool of keys. Taking a free key needs only a lock. Returning a key unbinds it.

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
    explain::say,
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
    /// The unbound keys. The vector has room for all keys of the pool.
    free: Vec<*mut ibv_mr>,
    /// All keys that the pool has created, in the order of their addresses. `true` marks a key that
    /// a caller has taken.
    keys: Vec<(*mut ibv_mr, bool)>,
    /// The number of keys of the pool: free, in use, or being created.
    made: u32,
}

impl State {
    /// Marks a key as taken or not. Returns `false` if the key has that mark already, or if it
    /// belongs to another pool.
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
            return Err(say(Errno::EINVAL, "max_keys is 0"));
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

        // Create the first key now, so that this function returns the error if the device is not
        // supported.
        // SAFETY: By the caller's promise.
        let first = unsafe { pool.get() }?;
        let mut state = pool.state();
        state.set_taken(first, false);
        state.free.push(first);
        drop(state);
        Ok(Box::into_raw(pool))
    }

    /// Locks the state. No code panics while the state is locked, so a poisoned lock is valid.
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
            let words = format!("all {} keys of the pool are in use", self.max_keys);
            return Err(say(Errno::EAGAIN, &words));
        }
        // Reserve room in both vectors now, so that `put()` needs no allocation, which could fail.
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
                mkey::create(fd, pd_handle, self.max_entries, 0)
            })
        };
        let mut state = self.state();
        match key {
            // There is room for all keys, so this does not allocate.
            Ok(key) => {
                let at = state.keys.partition_point(|&(other, _)| other < key);
                state.keys.insert(at, (key, true));
            }
            Err(_) => state.made = state.made.saturating_sub(1),
        }
        key
    }

    /// Unbinds a key and adds it to the free keys.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a key that no caller has taken, or an error of the unbind.
    ///
    /// # Safety
    ///
    /// The protection domain still exists. Unless this fails, the caller does not use `key` any
    /// more.
    pub(crate) unsafe fn put(&self, key: *mut ibv_mr) -> Result {
        // Unmark the key before the unbind. During the unbind the key is neither free nor taken, so
        // no other thread can return it or take it.
        if !self.state().set_taken(key, false) {
            let words = "mkey is no key of this pool, or it was given back before";
            return Err(say(Errno::EINVAL, words));
        }
        // SAFETY: The key was marked as taken, so `new_mr()` made it and the pool has not destroyed
        // it.
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
            return Err(say(Errno::EBUSY, "a key of the pool was not given back"));
        }
        while let Some(key) = state.free.pop() {
            // SAFETY: The key came from `new_mr()`. It is free, so the pool has the only reference.
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
