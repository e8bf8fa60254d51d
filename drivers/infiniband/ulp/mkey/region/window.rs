// SPDX-License-Identifier: GPL-2.0

//! Memory windows over MRs of this module.
//!
//! rxe looks a window up when a request arrives, and compares the request with the range of the MR,
//! not of the window. It copies bytes later, also for retransmitted requests. By then the window
//! may be bound to other memory. This module therefore makes a hidden MR for each window: one range
//! of the MR below, with the window's access flags. rxe binds the window to the hidden MR. An
//! access through the window is thus an ordinary access, which is checked when the bytes are
//! copied. The MR below is pinned like any leaf.
//!
//! A hidden MR is always in this module's own protection domain, which has no QPs. rxe refuses a
//! request that names an MR of another protection domain, and this module does too. No request can
//! therefore name a hidden MR, although its keys can be guessed. rxe compares the domains of an MR
//! and of the QP that binds a window to it, so the backend binds a window to its hidden MR itself.
//!
//! # Locking
//!
//! `Windows::windows` serialises binds and invalidations of the windows of a device, together with
//! rxe's part of them. It is held while sleeping, but not during a wait for accesses. While no window
//! is bound to a hidden MR, the backend binds windows to rxe's own MRs without this lock
//! (`bind_plain()` in `backend/rxe/redirect_mw.c`).

use crate::{
    backend::{Backend, Hw},
    kernel_ext::{
        rdma::{Mr, OwnedMr},
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

/// The hidden MR to which rxe binds a window.
pub(crate) struct WindowMr {
    mr: OwnedMr,
    region: Arc<Region>,
}

impl WindowMr {
    /// Makes a hidden MR of a claimed MR and its unbound region.
    pub(crate) fn new(mr: OwnedMr, region: Arc<Region>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { mr, region }, GFP_KERNEL)?)
    }
}

/// The hidden MRs of a window. Dropping them waits for the accesses through the window.
///
/// rxe reads the window's MR without a lock, and takes a reference afterwards. A window therefore
/// keeps both hidden MRs while it exists: one is bound, and rxe may still read the other one.
pub(crate) struct Bindings {
    mw: usize,
    mrs: [Option<Arc<WindowMr>>; 2],
    /// The one of `mrs` to which rxe has bound the window.
    active: Option<Active>,
}

/// A window's binding to a hidden MR. The backend has counted it.
struct Active {
    /// The second one of the two MRs.
    second: bool,
    hw: Hw,
}

impl Active {
    /// Counts a window before it is bound.
    fn new(second: bool, hw: Hw) -> Self {
        hw.count_hidden(1);
        Self { second, hw }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.hw.count_hidden(-1);
    }
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

    /// Binds the window to `new`, through one of its hidden MRs. `make` makes a hidden MR that does
    /// not exist yet. `stock` makes the driver bind the window to a hidden MR. Returns the earlier
    /// binding, if it was over an MR of this module.
    ///
    /// # Errors
    ///
    /// Those of `make` and `stock`; `EBUSY` while an access through the binding before the last one
    /// waits for a page.
    pub(crate) fn bind(
        &mut self,
        pins: &Pins,
        hw: &Hw,
        new: Arc<Binding>,
        make: impl FnOnce() -> Result<Arc<WindowMr>>,
        stock: impl FnOnce(&Mr) -> Result,
    ) -> Result<Option<Cleared>> {
        let next = self.active.as_ref().is_none_or(|active| !active.second);
        let slot = self.slot(next);
        let hidden = match slot {
            Some(hidden) => hidden.clone(),
            None => slot.insert(make()?).clone(),
        };
        hidden.region.bind_now(pins, hw, &hidden.mr, &new)?;
        let active = Active::new(next, *hw);
        if let Err(err) = stock(&hidden.mr) {
            // No access has used the hidden MR, so there is none to wait for.
            drop(hidden.region.clear(hw, &hidden.mr));
            return Err(err);
        }
        let old = self.clear(hw);
        self.active = Some(active);
        Ok(old)
    }

    /// Takes out the window's binding, if it is over an MR of this module.
    pub(crate) fn clear(&mut self, hw: &Hw) -> Option<Cleared> {
        let active = self.active.take()?;
        let hidden = self.slot(active.second).clone()?;
        // `bind_now` refused to bind an MR with accesses of an earlier binding, so `clear`
        // succeeds.
        let (old, users) = hidden.region.clear(hw, &hidden.mr).ok()?;
        Some(Cleared {
            old,
            users,
            _hidden: hidden,
        })
    }
}

impl Bindings {
    /// Takes out the window's binding unless the window `is_over` the hidden MR.
    fn replaced(&mut self, hw: &Hw, is_over: impl FnOnce(&Mr) -> bool) -> Option<Cleared> {
        let second = self.active.as_ref()?.second;
        match self.slot(second) {
            Some(hidden) if is_over(&hidden.mr) => None,
            _ => self.clear(hw),
        }
    }
}

/// The former binding of a window. Dropping it waits for a grace period.
// Fields drop in declaration order: the binding drops before its hidden MR.
pub(crate) struct Cleared {
    old: Retired<Binding>,
    users: Option<Arc<Users>>,
    _hidden: Arc<WindowMr>,
}

impl Cleared {
    /// Waits until no access through the binding is left. Sleeps.
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
    windows: Mutex<RBTree<u32, Bindings>>,
}

impl Windows {
    /// Makes an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            windows <- new_mutex!(RBTree::new(), "ib_mkey windows"),
        })
    }

    /// Runs `change` on the hidden MRs of the window `mw`, whose index is `index`. Sleeps.
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
        let mut windows = self.windows.lock();
        // The entry of a window that had the index before and is being deallocated.
        let stale = match windows.get(&index) {
            Some(bindings) if bindings.mw == mw => None,
            _ => windows.insert(room.into_node(
                index,
                Bindings {
                    mw,
                    mrs: [None, None],
                    active: None,
                },
            )),
        };
        let result = change(windows.get_mut(&index).ok_or(ENOENT)?);
        drop(windows);
        drop(stale);
        result
    }

    /// Runs `stock`, which makes the driver bind the window `mw`, at `index`, to one of its own MRs or to
    /// nothing, and takes out the window's binding. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `stock`, with nothing taken out.
    pub(crate) fn release(
        &self,
        hw: &Hw,
        index: u32,
        mw: usize,
        stock: impl FnOnce() -> Result,
    ) -> Result<Option<Cleared>> {
        let mut windows = self.windows.lock();
        stock()?;
        let bindings = windows.get_mut(&index).filter(|known| known.mw == mw);
        Ok(bindings.and_then(|bindings| bindings.clear(hw)))
    }

    /// Takes out the binding of the window `mw`, at `index`, unless the window `is_over` its hidden MR.
    /// Sleeps.
    pub(crate) fn replaced(
        &self,
        hw: &Hw,
        index: u32,
        mw: usize,
        is_over: impl FnOnce(&Mr) -> bool,
    ) -> Option<Cleared> {
        let mut windows = self.windows.lock();
        let bindings = windows.get_mut(&index).filter(|known| known.mw == mw)?;
        bindings.replaced(hw, is_over)
    }

    /// Runs `stock`, which invalidates the window at `index`, and takes out the window's binding.
    /// Sleeps.
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
        let mut windows = self.windows.lock();
        stock()?;
        Ok(windows
            .get_mut(&index)
            .and_then(|bindings| bindings.clear(hw)))
    }

    /// Takes out the hidden MRs of the window `mw`, which was deallocated.
    pub(crate) fn forget(&self, index: u32, mw: usize) -> Option<Bindings> {
        let mut windows = self.windows.lock();
        // Another window may have the index by now.
        windows.get(&index).filter(|bindings| bindings.mw == mw)?;
        windows.remove(&index)
    }
}
