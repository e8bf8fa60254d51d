// SPDX-License-Identifier: GPL-2.0

//! Memory windows over MRs of this module.
//!
//! rxe looks a window up when a request arrives, and compares the request with the range of the MR,
//! not of the window. It copies bytes later, also for retransmitted requests. By then the window
//! may be bound to other memory. This module therefore makes a shadow MR for each window: one range
//! of the MR below, with the window's access flags. rxe binds the window to the shadow MR. An
//! access through the window is thus an access to the shadow MR, which is checked when the bytes
//! are copied. The MR below is pinned like any leaf.
//!
//! A shadow MR is always in this module's own protection domain, which has no QPs. rxe and this
//! module refuse a request that names an MR of another protection domain. No request can therefore
//! use a shadow MR by its lkey or rkey, although these can be guessed.
//!
//! # Locking
//!
//! The mutex of a `WindowEntry` serialises binds and invalidations of a window that was bound to a
//! shadow MR, together with rxe's part of them. It is held while sleeping, but not during a wait
//! for accesses. A thread waits for it without a reference to the window, so
//! that the deallocation of the window does not wait. The backend therefore looks the window up
//! again, by its index and address ([`DriverWindow`]).
//!
//! `Windows::known` is a spinlock, so that a thread with a low priority does not hold up other
//! processes of the device. The mutex of a `WindowEntry` holds up only processes that use the same
//! window.
//!
//! A window that is not in the table has no shadow MR. Its binds and invalidations take no lock of
//! this module, and search the table once more afterwards.

use crate::{
    backend::{Backend, Claimed, DriverWindow, Hw},
    kernel_ext::{
        rdma::OwnedMr,
        sync::{
            pending::Timeout,
            rcu_arc::{RcuArc, RcuUnique},
        },
    },
    limits::owner::Owner,
    region::{binding::Binding, state::Pins, Region},
};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex, SpinLock},
    time::msecs_to_jiffies,
};

/// The longest time for which a bind waits for accesses through the binding before the last one. A
/// thread that binds the window for another queue pair may be about to drop that binding.
const SHORT_MS: u32 = 200;

/// The shadow MR to which rxe binds a window.
pub(crate) struct WindowMr {
    mr: OwnedMr,
    region: Arc<Region>,
}

impl WindowMr {
    /// Makes a shadow MR of a claimed MR and its unbound region.
    pub(crate) fn new(mr: OwnedMr, region: Arc<Region>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { mr, region }, GFP_KERNEL)?)
    }

    /// Returns the MR.
    ///
    /// # Errors
    ///
    /// None, because the MR is claimed.
    fn claimed(&self) -> Result<&Claimed> {
        Hw::claimed(&self.mr).ok_or(EINVAL)
    }

    /// Takes the binding out.
    fn end(&self) -> Option<EndedBinding> {
        let old = self.region.clear(self.claimed().ok()?)?;
        Some(EndedBinding {
            old,
            region: self.region.clone(),
        })
    }
}

/// The shadow MRs of a window. Dropping them waits for accesses through the window.
///
/// rxe reads the window's MR without a lock, and takes a reference afterwards. A window therefore
/// keeps both shadow MRs while it exists: one is bound, and rxe may still read the other one.
#[derive(Default)]
pub(crate) struct Bindings {
    mrs: [Option<Arc<WindowMr>>; 2],
    /// The shadow MR to which rxe has bound the window: `true` for the second one.
    active: Option<bool>,
    /// The window is about to be deallocated.
    closing: bool,
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

    /// Binds the window to `new`, through one of its shadow MRs. `make` makes a shadow MR that does
    /// not exist yet. `driver` makes the driver bind the window to a shadow MR. Puts the earlier
    /// binding into `ended`, if it was over an MR of this module; on an error of `driver`, puts
    /// `new` there.
    ///
    /// # Errors
    ///
    /// The errors of `make` and `driver`; `EBUSY` while an access through the binding before the
    /// last one waits for a page.
    pub(crate) fn bind(
        &mut self,
        pins: &Pins,
        new: RcuUnique<Binding>,
        make: impl FnOnce() -> Result<Arc<WindowMr>>,
        driver: impl FnOnce(&Claimed) -> Result,
        ended: &mut Option<EndedBinding>,
    ) -> Result {
        let next = !self.active.unwrap_or(false);
        let slot = self.slot(next);
        let shadow = match slot {
            Some(shadow) => shadow.clone(),
            None => slot.insert(make()?).clone(),
        };
        let mr = shadow.claimed()?;
        let short = Timeout::After(msecs_to_jiffies(SHORT_MS));
        shadow.region.state.retired.wait(short)?;
        shadow.region.bind_first(pins, mr, new);
        if let Err(err) = driver(mr) {
            *ended = shadow.end();
            return Err(err);
        }
        *ended = self.clear();
        self.active = Some(next);
        Ok(())
    }

    /// Takes out the window's binding, if it is over an MR of this module.
    fn clear(&mut self) -> Option<EndedBinding> {
        let active = self.active.take()?;
        self.slot(active).as_ref()?.end()
    }

    /// Takes out the window's binding unless `window` is over the shadow MR.
    fn replaced(&mut self, window: &impl DriverWindow) -> Option<EndedBinding> {
        let active = self.active?;
        match self.slot(active) {
            Some(shadow) if window.is_over(&shadow.mr) => None,
            _ => self.clear(),
        }
    }
}

/// The former binding of a window.
pub(crate) struct EndedBinding {
    old: RcuArc<Binding>,
    /// The region of the shadow MR that had the binding.
    region: Arc<Region>,
}

/// The shadow MRs of a window that was bound to one; [`None`] once the window was deallocated.
type WindowEntry = Mutex<Option<Bindings>>;

/// The binding that a change of a window ended, for the caller to drop without a lock.
#[derive(Default)]
pub(crate) struct ReplacedBinding {
    ended: Option<EndedBinding>,
}

impl ReplacedBinding {
    /// Waits until no access through the old binding is left. Sleeps.
    pub(crate) fn wait(&mut self, timeout: Timeout) -> Result {
        let Some(EndedBinding { old, region }) = self.ended.take() else {
            return Ok(());
        };
        drop(old);
        region.state.retired.wait(timeout)
    }

    /// Returns the owner of the binding for whose accesses [`Self::wait`] waits; [`None`] if there
    /// is no such binding.
    pub(crate) fn owner(&self) -> Option<Arc<Owner>> {
        self.ended.as_ref()?.old.owner().cloned()
    }
}

/// The windows of a device that were bound to shadow MRs, by their addresses. The index does not
/// identify a window, because rxe reuses it before the window has released its MR.
#[pin_data]
pub(crate) struct Windows {
    #[pin]
    known: SpinLock<RBTree<usize, Arc<WindowEntry>>>,
}

impl Windows {
    /// Makes an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            known <- new_spinlock!(RBTree::new(), "ib_mkey windows"),
        })
    }

    fn find(&self, window: &impl DriverWindow) -> Option<Arc<WindowEntry>> {
        self.known.lock().get(&window.address()).cloned()
    }

    /// Returns the entry of `window`, and makes it if there is none.
    /// Fails with `EINVAL` if the window was deallocated, and with `ENOMEM`.
    fn entry(&self, window: &impl DriverWindow) -> Result<Arc<WindowEntry>> {
        if let Some(known) = self.find(window) {
            return Ok(known);
        }
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let new = new_mutex!(Some(Bindings::default()), "ib_mkey window");
        let new: Arc<WindowEntry> = Arc::pin_init(new, GFP_KERNEL)?;
        // The reference keeps the window from being deallocated, so `forget` is called after the
        // insertion.
        let _held = window.hold().ok_or(EINVAL)?;
        let mut known = self.known.lock();
        if let Some(known) = known.get(&window.address()) {
            return Ok(known.clone());
        }
        known.insert(node.into_node(window.address(), new.clone()));
        Ok(new)
    }

    /// Runs `bind` on the shadow MRs of `window`. `bind` may put a binding that ended into its
    /// second argument. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `bind`; `EINVAL` if the window was deallocated; `ENOMEM`.
    pub(crate) fn bind(
        &self,
        window: &impl DriverWindow,
        left: &mut ReplacedBinding,
        bind: impl FnOnce(&mut Bindings, &mut Option<EndedBinding>) -> Result,
    ) -> Result {
        let entry = self.entry(window)?;
        let mut bindings = entry.lock();
        let bindings = (*bindings).as_mut().filter(|bindings| !bindings.closing);
        bind(bindings.ok_or(EINVAL)?, &mut left.ended)
    }

    /// Runs `driver`, which makes the driver bind `window` to one of its own MRs or to nothing, and
    /// takes out the window's binding. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `driver`, with nothing taken out; `EINVAL` if the window was deallocated
    /// meanwhile.
    pub(crate) fn release(
        &self,
        window: &impl DriverWindow,
        left: &mut ReplacedBinding,
        driver: impl FnOnce() -> Result,
    ) -> Result {
        let Some(known) = self.find(window) else {
            driver()?;
            // Another QP may have bound the window to a shadow MR since the search above.
            self.replaced(window, left);
            return Ok(());
        };
        let mut bindings = known.lock();
        // Another window may have the address by now.
        let bindings = (*bindings).as_mut().ok_or(EINVAL)?;
        driver()?;
        left.ended = bindings.clear();
        Ok(())
    }

    /// Takes out the binding of `window` if the driver has replaced it. Sleeps.
    pub(crate) fn replaced(&self, window: &impl DriverWindow, left: &mut ReplacedBinding) {
        if let Some(known) = self.find(window) {
            let mut bindings = known.lock();
            left.ended = (*bindings).as_mut().and_then(|of| of.replaced(window));
        }
    }

    /// Ends the binding of the window with this address, which is about to be deallocated, and waits
    /// for accesses through the window. Sleeps, at most as long as `timeout` allows.
    ///
    /// # Errors
    ///
    /// The errors of [`ReplacedBinding::wait`]. Accesses are left then. None begins any more,
    /// because the window cannot be bound to an MR of this module again.
    pub(crate) fn close(&self, address: usize, timeout: Timeout) -> Result {
        let Some(known) = self.known.lock().get(&address).cloned() else {
            return Ok(());
        };
        let (ended, shadow) = {
            let mut bindings = known.lock();
            let Some(bindings) = (*bindings).as_mut() else {
                return Ok(());
            };
            bindings.closing = true;
            (bindings.clear(), bindings.mrs.clone())
        };
        drop(ended);
        shadow
            .iter()
            .flatten()
            .try_for_each(|mr| mr.region.state.retired.wait(timeout))
    }

    /// Takes out the shadow MRs of the window with this address, which was deallocated. Sleeps.
    ///
    /// A change of the window that is in progress keeps none of them.
    pub(crate) fn forget(&self, address: usize) -> Option<Bindings> {
        let known = self.known.lock().remove(&address)?;
        let bindings = known.lock().take();
        bindings
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "window_kunit.rs"]
mod kunit;
