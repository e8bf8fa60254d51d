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
    backend::Backend,
    bound::{Bound, KLayout, MAX_DEPTH},
    cost,
    device::MkeyDevice,
    layout::{Entry, List},
    object::{Kind, Object},
    rdma::{mr::Right, ops::Running, Access, Device, OwnedMr, Pd},
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::Mutex,
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
}

/// What a window is bound to. Dropping it waits for the accesses through it.
pub(crate) struct Binding {
    mw: usize,
    /// What rxe has the window bound to.
    mr: OwnedMr,
}

/// The windows of a device.
#[pin_data]
pub(crate) struct Windows {
    #[pin]
    bound: Mutex<RBTree<u32, Binding>>,
}

impl Windows {
    /// Makes an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            bound <- new_mutex!(RBTree::new(), "ib_mkey windows"),
        })
    }

    /// Takes out what the window `mw`, which was deallocated, was bound to.
    pub(crate) fn forget(&self, index: u32, mw: usize) -> Option<Binding> {
        let mut bound = self.bound.lock();
        // Another window may have the index by now.
        bound.get(&index).filter(|binding| binding.mw == mw)?;
        bound.remove(&index)
    }
}

impl Binding {
    /// Makes the MR for a window over `region`, an MR of this module.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an MR of another protection domain or without the right to have windows;
    /// `ERANGE`, `EACCES` and others as for the bind of a key; `ENOMEM`.
    fn new(device: &MkeyDevice, pd: &Pd, region: &Object, request: &Request) -> Result<Self> {
        let remote = Right::RemoteRead | Right::RemoteWrite | Right::RemoteAtomic;
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
        // Whoever pays for the MR below pays for the window, which a worker binds.
        let charge = region.charge.beside(cost::BINDING)?;
        let bound = Bound::new(layout, leaves, access, pd, Some(charge))?;
        let mr = OwnedMr::new(&device.pd, 1)?;
        device.hw.claim(&mr);
        let kind = Kind::Window {
            start: request.addr,
        };
        let object = Object::new(&mr, kind, region.charge.beside(cost::REGION)?)?;
        device.objects.insert(mr.index(), object.clone())?;
        object.bind(&device.pins, &device.hw, &mr, bound)?;
        device.hw.allow_window(&mr);
        Ok(Self { mw: request.mw, mr })
    }
}

/// Binds a window for a QP in `pd`. `stock` has the driver bind it to the MR of an lkey. Returns
/// what the window was bound to before, if that is of this module.
///
/// # Errors
///
/// Those of `stock`; for an MR of this module those of `Binding::new` too.
pub(crate) fn bind(
    pd: &Pd,
    request: &Request,
    stock: impl FnOnce(u32) -> Result,
) -> Result<Option<RBTreeNode<u32, Binding>>> {
    let Ok(running) = Running::<MkeyDevice>::on(pd.device()) else {
        return stock(request.lkey).map(|()| None);
    };
    let device = running.data();
    let region = if request.length == 0 {
        None
    } else {
        device.objects.get_arc(request.lkey >> 8)
    };
    let mut lkey = request.lkey;
    let new = match region {
        Some(region) => {
            let binding = Binding::new(&device, pd, &region, request)?;
            lkey = binding.mr.lkey();
            Some(RBTreeNode::new(request.index, binding, GFP_KERNEL)?)
        }
        None => None,
    };
    let mut bound = device.windows.bound.lock();
    stock(lkey)?;
    let old = match new {
        Some(node) => bound.insert(node),
        None => bound.remove_node(&request.index),
    };
    drop(bound);
    // Accesses through the old binding may take as long as a process likes. Removal of another
    // device must not wait for them, nor may the window. This device is not removed while a QP of
    // the process exists.
    Ok(old)
}

/// Invalidates the window at `index`, which `stock` has the driver do. No access through it is left
/// when this returns. Sleeps.
///
/// # Errors
///
/// Those of `stock`.
pub(crate) fn invalidate(device: &Device, index: u32, stock: impl FnOnce() -> Result) -> Result {
    let Ok(running) = Running::<MkeyDevice>::on(device) else {
        return stock();
    };
    let data = running.data();
    let mut bound = data.windows.bound.lock();
    stock()?;
    let gone = bound.remove(&index);
    drop(bound);
    // As in `bind()`, whose caller drops what is gone.
    drop(running);
    drop(gone);
    Ok(())
}
