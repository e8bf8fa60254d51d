// SPDX-License-Identifier: GPL-2.0

//! The driver: claimed MRs with the fields that rxe reads for each packet, in the orders of
//! `backend/rxe/claimed.rs`, and memory of other MRs.

pub(crate) mod pins;

use crate::{
    kernel_ext::rdma::{mr_key, Access, Mr},
    region::Region,
};
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{Arc, ArcBorrow},
};
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
};
use std::{cell::Cell, sync::OnceLock};

pub(crate) const ZOMBIE: u32 = 0;
pub(crate) const FREE: u32 = 1;
pub(crate) const VALID: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToMemory,
    FromMemory,
}

/// A read.
pub(crate) struct Payload<'a> {
    /// The indices of the MRs that it may read.
    pub(crate) expected: &'a [u32],
    /// The index of the MR that it has read.
    pub(crate) seen: &'a Cell<u32>,
}

impl Payload<'_> {
    pub(crate) fn direction(&self) -> Direction {
        Direction::FromMemory
    }
    pub(crate) fn len(&self) -> u64 {
        1
    }
}

#[derive(Clone, Copy)]
pub(crate) struct MrRange {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// A memory of the driver, which a layout may have as a leaf.
pub(crate) struct Memory {
    pub(crate) mr: Mr,
    /// `true` after the deregistration. The lock of the pins protects it.
    suspended: std::sync::atomic::AtomicBool,
    /// `true` after the owner has used the memory for something else.
    used_again: UnsafeCell<bool>,
}

// SAFETY: The explorer finds races.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(index: u32) -> Arc<Self> {
        let memory = Self {
            mr: Mr::new(index << 8),
            suspended: false.into(),
            used_again: UnsafeCell::new(false),
        };
        Arc::new(memory, GFP_KERNEL).unwrap()
    }
    pub(crate) fn index(&self) -> u32 {
        self.mr.index()
    }
    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::Relaxed);
    }
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }
    /// The owner writes other data. No access may be in progress.
    pub(crate) fn use_again(&self) {
        // SAFETY: The explorer finds races.
        self.used_again.with_mut(|used| unsafe { *used = true });
    }
    pub(crate) fn read(&self) {
        // SAFETY: As above.
        let used = self.used_again.with(|used| unsafe { *used });
        assert!(!used, "an access to memory that its owner got back");
    }
}

#[derive(Clone)]
pub(crate) struct BaseMr(pub(crate) Arc<Memory>);

impl BaseMr {
    pub(crate) fn is_on_demand(&self) -> bool {
        false
    }
}

/// A claimed MR.
pub(crate) struct Claimed {
    mr: Mr,
    state: AtomicU32,
    key: AtomicU32,
    access: AtomicU32,
    object: OnceLock<Arc<Region>>,
}

impl Deref for Claimed {
    type Target = Mr;
    fn deref(&self) -> &Mr {
        &self.mr
    }
}

/// A type of objects of MRs.
pub(crate) trait Object: Sized {
    fn of(mr: &Claimed) -> Option<&Arc<Self>>;
}

impl Object for Region {
    fn of(mr: &Claimed) -> Option<&Arc<Self>> {
        mr.object.get()
    }
}

impl Claimed {
    pub(crate) fn new(key: u32) -> Self {
        Self {
            mr: Mr::new(key),
            state: AtomicU32::new(FREE),
            key: AtomicU32::new(key),
            access: AtomicU32::new(0),
            object: OnceLock::new(),
        }
    }
    pub(crate) fn object<T: Object>(&self) -> Option<ArcBorrow<'_, T>> {
        T::of(self).map(ArcBorrow)
    }
    pub(crate) fn set_object(&self, object: &Arc<Region>) {
        assert!(self.object.set(object.clone()).is_ok());
    }
    fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }
    /// The driver deregisters the MR. The caller holds the lock of the pins.
    pub(crate) fn suspend(&self) {
        self.set_state(ZOMBIE);
    }
    fn access(&self) -> Access {
        Access::from_raw(self.access.load(Ordering::Relaxed))
    }
    fn set_access(&self, access: Access) {
        self.access.store(access.into_raw(), Ordering::Relaxed);
    }
    pub(crate) fn narrow(&self, access: Access) {
        self.set_access(self.access() & access);
    }
    pub(crate) fn publish(&self, _: MrRange, access: Access) {
        self.set_access(access);
        self.set_state(VALID);
    }
    pub(crate) fn rekey(&self, key: u32) {
        self.key.store(key, Ordering::Relaxed);
    }
    pub(crate) fn withdraw(&self) {
        self.set_state(FREE);
        self.set_access(Access::empty());
    }
    pub(crate) fn is_open(&self) -> bool {
        self.state() == VALID
    }
    pub(crate) fn is_free(&self) -> bool {
        self.state() == FREE
    }
    pub(crate) fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }
    pub(crate) fn register(&self, key: u32, access: Access) {
        self.set_access(access);
        self.rekey(key);
        self.set_state(VALID);
    }
    pub(crate) fn invalidate(&self) {
        self.set_state(FREE);
    }
    /// Returns `true` if rxe passes a request with `rkey` on when it arrives.
    pub(crate) fn accepts(&self, rkey: u32) -> bool {
        self.is_open() && self.key() == rkey
    }
}
