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
    device::MkeyDevice,
    kernel_ext::{
        rdma::{mr::Right, ops::Running, Access, Device, OwnedMr, Pd},
        sync::{
            srcu::Retired,
            users::{Patience, Users},
        },
    },
    key::Worker,
    layout::{Entry, List},
    limits::cost,
    region::{
        binding::{Binding, KLayout, Window, MAX_DEPTH},
        Kind, Region,
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex},
};

/// A request to bind a window.
pub(crate) struct Request {
    /// The window, which stays during the call. Its address tells it from its successors.
    pub(crate) mw: usize,
    /// The index by which rkeys name it.
    pub(crate) index: u32,
    /// The MR to bind it to.
    pub(crate) lkey: u32,
    /// Its first address, an address of that MR.
    pub(crate) addr: u64,
    /// Its length in bytes; 0 to bind a window of type 1 to nothing.
    pub(crate) length: u64,
    /// Its access flags.
    pub(crate) access: Access,
    /// The QP that it is for; 0 for a window of type 1.
    pub(crate) qp: usize,
}

/// An MR that rxe has a window bound to.
struct Hidden {
    mr: OwnedMr,
    object: Arc<Region>,
}

impl Hidden {
    /// Makes one that is bound to nothing, for a window over `region`.
    fn new(device: &MkeyDevice, region: &Region) -> Result<Arc<Self>> {
        // A worker binds windows. The owner of the MR below is charged for them.
        let charge = region.charge.beside(cost::REGION)?;
        let mr = OwnedMr::new(&device.pd, 1)?;
        device.hw.claim(&mr);
        let object = Region::new(&mr, Kind::Window, charge)?;
        device.objects.insert(mr.index(), object.clone())?;
        Ok(Arc::new(Self { mr, object }, GFP_KERNEL)?)
    }
}

/// What a window is bound to. Dropping it waits for the accesses through it.
///
/// rxe reads which MR a window has without a lock, and takes a reference then. So a window keeps its
/// MRs for as long as it lives: one is bound while the other may still be looked at.
pub(crate) struct Bindings {
    mw: usize,
    mrs: [Option<Arc<Hidden>>; 2],
    /// Which of them rxe has the window bound to.
    active: Option<bool>,
}

impl Bindings {
    fn slot(&mut self, which: bool) -> &mut Option<Arc<Hidden>> {
        let [one, two] = &mut self.mrs;
        if which {
            two
        } else {
            one
        }
    }

    /// Takes out what the window is bound to, if that is of this module.
    fn clear(&mut self, hw: &Hw) -> Option<Cleared> {
        let which = self.active.take()?;
        let hidden = self.slot(which).clone()?;
        // The MR was unused when it was bound: nothing is left of an earlier binding.
        let (old, users) = hidden.object.clear(hw, &hidden.mr).ok()?;
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
    _hidden: Arc<Hidden>,
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

    /// Takes out what the window `mw`, which was deallocated, was bound to.
    pub(crate) fn forget(&self, index: u32, mw: usize) -> Option<Bindings> {
        let mut bound = self.bound.lock();
        // Another window may have the index by now.
        bound.get(&index).filter(|bindings| bindings.mw == mw)?;
        bound.remove(&index)
    }
}

/// Describes what a window is to be bound to: a range of `region`, an MR of this module.
///
/// # Errors
///
/// `ENOENT` for an MR of another protection domain, `EINVAL` for one without the right to have
/// windows; `ERANGE`, `EACCES` and others as for the bind of a key; `ENOMEM`.
fn describe(
    device: &MkeyDevice,
    pd: &Pd,
    region: &Region,
    request: &Request,
) -> Result<Arc<Binding>> {
    let remote = Right::RemoteRead
        | Right::RemoteWrite
        | Right::RemoteAtomic
        | Right::FlushGlobal
        | Right::FlushPersistent;
    let leaf = device.pin_leaf(pd.device(), request.lkey, pd, MAX_DEPTH)?;
    if !region.rights(leaf.access).contains(Right::MwBind) {
        return Err(EINVAL);
    }
    let access = (request.access & remote) | (leaf.access & Right::LocalWrite);
    let mut entries = KVVec::with_capacity(1, GFP_KERNEL)?;
    entries.push(Entry::new(0, request.addr, request.length), GFP_KERNEL)?;
    let mut leaves = KVVec::with_capacity(1, GFP_KERNEL)?;
    leaves.push(leaf, GFP_KERNEL)?;
    let layout = KLayout::List(List::new(entries)?);
    let charge = region.charge.beside(cost::BINDING)?;
    let window = Window {
        start: request.addr,
        pd: pd.as_raw() as usize,
        qp: request.qp,
    };
    let window = KBox::new(window, GFP_KERNEL)?;
    Binding::new(layout, leaves, access, pd, Some(charge), Some(window))
}

/// Binds a window for a QP in `pd`. `stock` has the driver bind it to the MR of an lkey. Returns
/// what the window was bound to before, if that is of this module.
///
/// # Errors
///
/// Those of `stock`. For an MR of this module those of `describe()` too, and `EBUSY` while an access
/// that went through the binding before the last one waits for a page.
pub(crate) fn bind(
    pd: &Pd,
    request: &Request,
    stock: impl FnOnce(u32) -> Result,
) -> Result<Option<Cleared>> {
    let Ok(running) = Running::<MkeyDevice>::on(pd.device()) else {
        return stock(request.lkey).map(|()| None);
    };
    let device = running.data();
    let region = if request.length == 0 {
        None
    } else {
        device.objects.get_arc(request.lkey >> 8)
    };
    let new = match &region {
        Some(region) => Some(describe(&device, pd, region, request)?),
        None => None,
    };
    let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
    let mut bound = device.windows.bound.lock();
    // Of a window that had the index before, and is being deallocated.
    let stale = match bound.get(&request.index) {
        Some(bindings) if bindings.mw == request.mw => None,
        _ => bound.insert(room.into_node(
            request.index,
            Bindings {
                mw: request.mw,
                mrs: [None, None],
                active: None,
            },
        )),
    };
    let bindings = bound.get_mut(&request.index).ok_or(ENOENT)?;
    let result = exchange(&device, bindings, region.as_deref(), request, new, stock);
    drop(bound);
    drop(stale);
    result
}

/// Binds a window to `new`, or to what the request names if that is an MR of the driver's own.
fn exchange(
    device: &MkeyDevice,
    bindings: &mut Bindings,
    region: Option<&Region>,
    request: &Request,
    new: Option<Arc<Binding>>,
    stock: impl FnOnce(u32) -> Result,
) -> Result<Option<Cleared>> {
    let (Some(new), Some(region)) = (new, region) else {
        stock(request.lkey)?;
        return Ok(bindings.clear(&device.hw));
    };
    let next = bindings.active.is_none_or(|which| !which);
    let slot = bindings.slot(next);
    let hidden = match slot {
        Some(hidden) => hidden.clone(),
        None => slot.insert(Hidden::new(device, region)?).clone(),
    };
    hidden
        .object
        .bind_now(&device.pins, &device.hw, &hidden.mr, new)?;
    device.hw.allow_window(&hidden.mr);
    if let Err(err) = stock(hidden.mr.lkey()) {
        // Nothing has used it: there is nothing to wait for.
        drop(hidden.object.clear(&device.hw, &hidden.mr));
        return Err(err);
    }
    let old = bindings.clear(&device.hw);
    bindings.active = Some(next);
    Ok(old)
}

/// Invalidates the window at `index`, which `stock` has the driver do. No access through it is left
/// when this returns without an error. Sleeps, for some seconds at most.
///
/// # Errors
///
/// Those of `stock`; `EBUSY` if accesses through the window are left, though none begins any more.
pub(crate) fn invalidate(device: &Device, index: u32, stock: impl FnOnce() -> Result) -> Result {
    let Ok(running) = Running::<MkeyDevice>::on(device) else {
        return stock();
    };
    let data = running.data();
    let mut bound = data.windows.bound.lock();
    stock()?;
    let gone = bound
        .get_mut(&index)
        .and_then(|bindings| bindings.clear(&data.hw));
    drop(bound);
    // Accesses through the window may take as long as a process likes. Removal of another device
    // must not wait for them. This device is not removed while a QP of the process exists.
    drop(running);
    let worker = Worker::new();
    gone.map_or(Ok(()), |gone| gone.wait(worker.patience))
}
