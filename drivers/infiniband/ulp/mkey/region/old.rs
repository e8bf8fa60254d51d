// SPDX-License-Identifier: GPL-2.0

//! Old bindings that accesses may still use.
//!
//! A bind by a work request waits for no access, because the queue waits meanwhile. It leaves the
//! old binding here. A later call drops the old binding: the next bind by a work request, another
//! change of the same key, or the deregistration of a leaf, which the old binding pins.
//!
//! # Locking
//!
//! `OldBindings::list` nests in a region's `edit`. The lock of the pins nests in it. No old binding
//! is dropped under it.

use crate::{
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        sync::{
            srcu::{self, Retired},
            users::{Patience, Users},
        },
    },
    region::binding::Binding,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// An old binding.
struct Old {
    /// The address of its region.
    region: usize,
    binding: Retired<Binding>,
}

impl Old {
    /// Returns the accesses outside of SRCU.
    fn users(&self) -> Option<&Arc<Users>> {
        self.binding.value()?.users.as_ref()
    }

    /// Returns `true` if no access is left.
    fn is_over(&mut self) -> bool {
        self.binding.is_over() && self.users().is_none_or(|users| users.is_idle())
    }

    /// Returns `true` if the binding is one of `which`.
    fn is_of(&self, which: Which) -> bool {
        match which {
            Which::All => true,
            Which::Region(region) => self.region == region,
            Which::Pinning(index) => self
                .binding
                .value()
                .is_some_and(|old| old.leaves.iter().any(|leaf| leaf.lkey >> 8 == index)),
        }
    }
}

/// Some of the old bindings of a device.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    /// All.
    All,
    /// Those of the region at this address.
    Region(usize),
    /// Those that pin the MR at this index.
    Pinning(u32),
}

/// The old bindings of a device.
#[pin_data]
pub(crate) struct OldBindings {
    #[pin]
    list: Mutex<KVVec<Old>>,
}

impl OldBindings {
    /// Makes an empty list.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVVec::new(), "ib_mkey old bindings"),
            }),
            GFP_KERNEL,
        )
    }

    /// Runs `replace`, and keeps the old binding of the region at address `region`, which it
    /// returns.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, before `replace` runs; those of `replace`.
    pub(crate) fn keep(
        &self,
        region: usize,
        replace: impl FnOnce() -> Result<Retired<Binding>>,
    ) -> Result {
        let mut list = self.list.lock();
        list.reserve(1, GFP_MAYFAIL)?;
        let binding = replace()?;
        if binding.value().is_some() {
            // Reserved above: it fits.
            let _ = list.push_within_capacity(Old { region, binding });
        }
        Ok(())
    }

    fn take(&self, is_it: impl FnMut(&mut Old) -> bool) -> Option<Old> {
        let mut list = self.list.lock();
        let at = list.iter_mut().position(is_it)?;
        list.remove(at).ok()
    }

    /// Drops the bindings that no access uses any more. Does not wait for accesses.
    pub(crate) fn reap(&self) {
        while let Some(old) = self.take(Old::is_over) {
            drop(old);
        }
    }

    /// Waits for accesses through `which` bindings, and drops these bindings. Returns `true` if
    /// there were any. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. Then the bindings that accesses use stay.
    pub(crate) fn settle(&self, which: Which, patience: Patience) -> Result<bool> {
        let mut any = false;
        loop {
            // The binding stays in the list meanwhile: another caller must wait for it, too.
            let found = {
                let list = self.list.lock();
                let old = list.iter().find(|old| old.is_of(which));
                old.map(|old| old.users().cloned())
            };
            let Some(users) = found else {
                return Ok(any);
            };
            any = true;
            srcu::synchronize();
            if let Some(users) = users {
                users.wait(patience)?;
            }
            while let Some(old) = self.take(|old| old.is_of(which) && old.is_over()) {
                drop(old);
            }
        }
    }
}
