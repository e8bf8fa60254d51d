// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The memory and the MRs that the library frees together with an MR.
//!
//! The structure of an MR of `ibv_reg_mr()` has no field for this. So the MRs are listed here by
//! the addresses of their structures.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        MutexGuard,
        PoisonError, //
    },
};

use crate::{
    alloc::Memory,
    sys, //
};

/// The things that `ibmkey_dereg()` frees together with an MR. Dropping this frees the memory.
#[derive(Default)]
pub(crate) struct Owned {
    /// The memory, or `None` if it is the program's, or if the MR is a key.
    pub(crate) memory: Option<Memory>,
    /// MRs that this one replaced.
    pub(crate) former: Vec<Former>,
}

/// An MR that a key has replaced, and that is still registered.
pub(crate) struct Former {
    pub(crate) handle: u32,
    /// The memory, or `None` if it is the program's.
    pub(crate) _memory: Option<Memory>,
}

impl Owned {
    /// Returns the owner of memory alone.
    pub(crate) fn of(memory: Option<Memory>) -> Self {
        Self {
            memory,
            former: Vec::new(),
        }
    }
}

/// An MR and what it owns.
///
/// If the program deregisters an MR by `ibv_dereg_mr()`, the MR stays in the list, and a later MR
/// can have the same structure. That one has another address, or another index in its lkey.
struct Entry {
    addr: usize,
    index: u32,
    owned: Owned,
}

static ENTRIES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

fn entries() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address and the index of an MR. The low 8 bits of an lkey are the key portion, which
/// changes.
///
/// # Safety
///
/// `mr` is an MR.
unsafe fn identity(mr: *mut sys::ibv_mr) -> (usize, u32) {
    // SAFETY: By the caller's promise.
    unsafe { ((*mr).addr as usize, (*mr).lkey >> 8) }
}

/// Takes what an MR owns out of the list. Returns `None` if the MR is not listed.
///
/// # Safety
///
/// `mr` is an MR.
pub(crate) unsafe fn take(mr: *mut sys::ibv_mr) -> Option<Owned> {
    // SAFETY: By the caller's promise.
    let is = unsafe { identity(mr) };
    let mut entries = entries();

    match entries.get(&(mr as usize)) {
        Some(entry) if (entry.addr, entry.index) == is => {
            entries.remove(&(mr as usize)).map(|entry| entry.owned)
        }
        _ => None,
    }
}

/// Calls `call` with what an MR owns. Returns `None` if the MR is not listed.
///
/// # Safety
///
/// `mr` is an MR.
pub(crate) unsafe fn with<T>(mr: *mut sys::ibv_mr, call: impl FnOnce(&Owned) -> T) -> Option<T> {
    // SAFETY: By the caller's promise.
    let is = unsafe { identity(mr) };

    match entries().get(&(mr as usize)) {
        Some(entry) if (entry.addr, entry.index) == is => Some(call(&entry.owned)),
        _ => None,
    }
}

/// Lists an MR and what it owns.
///
/// # Safety
///
/// `mr` is an MR.
pub(crate) unsafe fn set(mr: *mut sys::ibv_mr, owned: Owned) {
    // SAFETY: By the caller's promise.
    let (addr, index) = unsafe { identity(mr) };
    let entry = Entry { addr, index, owned };

    if let Some(stale) = entries().insert(mr as usize, entry) {
        // ibv_dereg_mr() has deregistered this MR, and the program may still use the memory.
        core::mem::forget(stale);
    }
}
