// SPDX-License-Identifier: GPL-2.0

//! Memory windows over MRs of this module.
//!
//! rxe looks at a window when a request arrives, and compares the request with the MR's range then,
//! not with the window's. Bytes are copied later, also for requests that are sent again, when the
//! window may be bound to something else. Here a window gets an MR of its own: one range of the MR
//! that it is bound to, with the window's access flags. rxe is told to bind the window to that.
//! What goes through the window is thus an access like others, checked where the bytes are copied,
//! and the MR below is pinned like any leaf.
//!
//! The MR of a window is in a protection domain without QPs: no key can name it.
//!
//! # Locking
//!
//! `Windows::bound` serialises binding and invalidating the windows of a device, with what rxe does
//! for it. It is held while sleeping, but not while an access is waited for.

use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::OwnedMr,
        sync::{
            srcu::Retired,
            users::{Patience, Users},
        },
    },
    region::{binding::Binding, pins::Pins, Region},
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex},
};

/// An MR that rxe has a window bound to.
pub(crate) struct WindowMr {
    mr: OwnedMr,
    region: Arc<Region>,
}

impl WindowMr {
    /// Makes one of a claimed MR and its region, with nothing bound.
    pub(crate) fn new(mr: OwnedMr, region: Arc<Region>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { mr, region }, GFP_KERNEL)?)
    }
}

/// What a window is bound to. Dropping it waits for the accesses through it.
///
/// rxe reads which MR a window has without a lock, and takes a reference then. So a window keeps its
/// MRs for as long as it lives: one is bound while the other may still be looked at.
pub(crate) struct Bindings {
    mw: usize,
    mrs: [Option<Arc<WindowMr>>; 2],
    /// Which of them rxe has the window bound to.
    active: Option<bool>,
}

impl Bindings {
    fn slot(&mut self, which: bool) -> &mut Option<Arc<WindowMr>> {
        let [one, two] = &mut self.mrs;
        if which {
            two
        } else {
            one
        }
    }

    /// Binds the window to `new`, through one of its MRs: `make` gives one that it does not have yet,
    /// and `stock` has the driver bind the window to the MR of an lkey. Returns what the window was
    /// bound to before, if that is of this module.
    ///
    /// # Errors
    ///
    /// Those of `make` and `stock`; `EBUSY` while an access that went through the binding before the
    /// last one waits for a page.
    pub(crate) fn bind(
        &mut self,
        pins: &Pins,
        hw: &Hw,
        new: Arc<Binding>,
        make: impl FnOnce() -> Result<Arc<WindowMr>>,
        stock: impl FnOnce(u32) -> Result,
    ) -> Result<Option<Cleared>> {
        let next = self.active.is_none_or(|which| !which);
        let slot = self.slot(next);
        let hidden = match slot {
            Some(hidden) => hidden.clone(),
            None => slot.insert(make()?).clone(),
        };
        hidden.region.bind_now(pins, hw, &hidden.mr, new)?;
        hw.allow_window(&hidden.mr);
        if let Err(err) = stock(hidden.mr.lkey()) {
            // Nothing has used it: there is nothing to wait for.
            drop(hidden.region.clear(hw, &hidden.mr));
            return Err(err);
        }
        let old = self.clear(hw);
        self.active = Some(next);
        Ok(old)
    }

    /// Takes out what the window is bound to, if that is of this module.
    pub(crate) fn clear(&mut self, hw: &Hw) -> Option<Cleared> {
        let which = self.active.take()?;
        let hidden = self.slot(which).clone()?;
        // The MR was unused when it was bound: nothing is left of an earlier binding.
        let (old, users) = hidden.region.clear(hw, &hidden.mr).ok()?;
        Some(Cleared {
            old,
            users,
            _hidden: hidden,
        })
    }
}

/// What a window was bound to. Dropping it waits for a grace period.
// Fields are dropped in declaration order: the MR after what was bound to it.
pub(crate) struct Cleared {
    old: Retired<Binding>,
    users: Option<Arc<Users>>,
    _hidden: Arc<WindowMr>,
}

impl Cleared {
    /// Waits until no access to it is left. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`].
    pub(crate) fn wait(self, patience: Patience) -> Result {
        drop(self.old.wait());
        self.users.map_or(Ok(()), |users| users.wait(patience))
    }
}

/// The windows of a device.
#[pin_data]
pub(crate) struct Windows {
    #[pin]
    bound: Mutex<RBTree<u32, Bindings>>,
}

impl Windows {
    /// Makes an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            bound <- new_mutex!(RBTree::new(), "ib_mkey windows"),
        })
    }

    /// Runs `change` on what the window `mw`, which has `index`, is bound to. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `change`; `ENOMEM`.
    pub(crate) fn change<T>(
        &self,
        index: u32,
        mw: usize,
        change: impl FnOnce(&mut Bindings) -> Result<T>,
    ) -> Result<T> {
        let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut bound = self.bound.lock();
        // Of a window that had the index before, and is being deallocated.
        let stale = match bound.get(&index) {
            Some(bindings) if bindings.mw == mw => None,
            _ => bound.insert(room.into_node(
                index,
                Bindings {
                    mw,
                    mrs: [None, None],
                    active: None,
                },
            )),
        };
        let result = change(bound.get_mut(&index).ok_or(ENOENT)?);
        drop(bound);
        drop(stale);
        result
    }

    /// Runs `stock`, which invalidates the window at `index`, and takes out what the window was bound
    /// to. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `stock`, with nothing taken out.
    pub(crate) fn invalidate(
        &self,
        hw: &Hw,
        index: u32,
        stock: impl FnOnce() -> Result,
    ) -> Result<Option<Cleared>> {
        let mut bound = self.bound.lock();
        stock()?;
        Ok(bound
            .get_mut(&index)
            .and_then(|bindings| bindings.clear(hw)))
    }

    /// Takes out what the window `mw`, which was deallocated, was bound to.
    pub(crate) fn forget(&self, index: u32, mw: usize) -> Option<Bindings> {
        let mut bound = self.bound.lock();
        // Another window may have the index by now.
        bound.get(&index).filter(|bindings| bindings.mw == mw)?;
        bound.remove(&index)
    }
}
