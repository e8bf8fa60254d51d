// SPDX-License-Identifier: GPL-2.0

//! MRs. `backend.rs` has the fields that rxe reads.

pub(crate) mod mr_key;

use crate::bindings::ib_pd;
use core::ops::{BitAnd, BitOr, Deref};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access(u32);

impl Access {
    pub(crate) const fn empty() -> Self {
        Self(0)
    }
    pub(crate) const fn from_raw(bits: u32) -> Self {
        Self(bits)
    }
    pub(crate) const fn into_raw(self) -> u32 {
        self.0
    }
    pub(crate) fn contains(self, right: mr::Right) -> bool {
        self.contains_any(right.into())
    }
    pub(crate) fn contains_all(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }
    pub(crate) fn contains_any(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

impl From<mr::Right> for Access {
    fn from(right: mr::Right) -> Self {
        Self(1 << right as u32)
    }
}

impl<T: Into<Access>> BitOr<T> for Access {
    type Output = Self;
    fn bitor(self, other: T) -> Self {
        Self(self.0 | other.into().0)
    }
}

impl BitOr for mr::Right {
    type Output = Access;
    fn bitor(self, other: Self) -> Access {
        Access::from(self) | other
    }
}

impl BitAnd for Access {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

pub(crate) mod mr {
    #[derive(Clone, Copy)]
    pub(crate) enum Right {
        LocalWrite,
        RemoteWrite,
        RemoteRead,
        RemoteAtomic,
        MwBind,
        ZeroBased,
        FlushGlobal,
        FlushPersistent,
    }
}

pub(crate) mod scatterlist {
    #[derive(Debug)]
    pub(crate) struct MappedElements {
        pub(crate) count: usize,
        pub(crate) start: u64,
        pub(crate) length: u64,
    }
}

pub(crate) mod device {
    pub(crate) struct NewDevice<'a>(pub(crate) &'a super::Device);

    impl core::ops::Deref for NewDevice<'_> {
        type Target = super::Device;
        fn deref(&self) -> &super::Device {
            self.0
        }
    }
}

pub(crate) struct Device(u8);

/// The only device.
pub(crate) static DEVICE: Device = Device(0);

pub(crate) struct Pd(pub(crate) usize);

impl Pd {
    pub(crate) fn as_raw(&self) -> *mut ib_pd {
        self.0 as *mut ib_pd
    }
}

/// The fields of `ib_mr`. Only the thread that changes the key uses them.
pub(crate) struct Mr {
    key: AtomicU32,
    pub(crate) iova: AtomicU64,
}

impl Mr {
    pub(crate) fn new(key: u32) -> Self {
        Self {
            key: key.into(),
            iova: 0.into(),
        }
    }
    pub(crate) fn device(&self) -> &Device {
        &DEVICE
    }
    pub(crate) fn lkey(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }
    pub(crate) fn rkey(&self) -> u32 {
        self.lkey()
    }
    pub(crate) fn set_key(&self, key: u32) {
        self.key.store(key, Ordering::Relaxed);
    }
    pub(crate) fn index(&self) -> u32 {
        mr_key::index(self.lkey())
    }
    pub(crate) fn iova(&self) -> u64 {
        self.iova.load(Ordering::Relaxed)
    }
    pub(crate) fn pd(&self) -> *mut ib_pd {
        8 as *mut ib_pd
    }
}
