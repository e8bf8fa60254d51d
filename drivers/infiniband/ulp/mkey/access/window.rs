// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind and invalidate memory windows (`region/window.rs`).

use crate::{
    backend::Backend,
    kernel_ext::rdma::{mr::Right, Access, Device, Mr, OwnedMr, Pd},
    layout::{Entry, List},
    limits::{cost, worker::Worker},
    mkey_core::{Core, Lookup},
    region::{
        binding::{Binding, KLayout, Room, Window, MAX_DEPTH},
        window::{Cleared, WindowMr},
        Kind, Region,
    },
};
use kernel::{prelude::*, sync::Arc};

/// A request to bind a window.
pub(crate) struct WindowRequest {
    /// The address of the window, which is not freed during the call. It tells the window from
    /// later windows at the same index.
    pub(crate) mw: usize,
    /// The index by which rkeys name the window.
    pub(crate) index: u32,
    /// The MR to bind it to.
    pub(crate) lkey: u32,
    /// The first address of the window, which is an address of that MR.
    pub(crate) addr: u64,
    /// Its length in bytes; 0 to bind a window of type 1 to nothing.
    pub(crate) length: u64,
    /// Its access flags.
    pub(crate) access: Access,
    /// The QP that may use the window; 0 for a window of type 1.
    pub(crate) qp: usize,
}

/// Makes the unbound hidden MR of a window over `region`.
fn hidden(core: &Core, region: &Region) -> Result<Arc<WindowMr>> {
    // A worker binds windows, so the owner of the MR below is charged instead of the current
    // process.
    let charge = region.charge.beside(cost::REGION)?;
    let mr = OwnedMr::new(&core.pd, 1)?;
    core.hw.claim(&mr);
    let region = core.adopt(&mr, Kind::Window, charge)?;
    WindowMr::new(mr, region)
}

/// Makes the binding of a window: a range of `region`.
///
/// # Errors
///
/// `ENOENT` for an MR of another protection domain, `EINVAL` for an MR without the access flag
/// `MW_BIND`; `ERANGE`, `EACCES` and others as for the bind of a key; `ENOMEM`.
fn describe(
    core: &Core,
    pd: &Pd,
    region: &Region,
    request: &WindowRequest,
) -> Result<Arc<Binding>> {
    let remote = Right::RemoteRead
        | Right::RemoteWrite
        | Right::RemoteAtomic
        | Right::FlushGlobal
        | Right::FlushPersistent;
    let leaf = core.pin_leaf(pd.device(), request.lkey, pd, MAX_DEPTH)?;
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
    let (charge, window, room) = (Some(charge), Some(window), Room::default());
    Binding::new(layout, leaves, access, pd, charge, window, room)
}

/// Binds a window for a QP in `pd`. `stock` makes the driver bind the window to the given hidden MR,
/// or to the MR of the request if there is none. Returns the earlier binding of the window, if it
/// was over an MR of this module.
///
/// # Errors
///
/// Those of `stock`. For an MR of this module those of `describe()` too, and `EBUSY` while an
/// access through the binding before the last one waits for a page.
pub(crate) fn bind(
    pd: &Pd,
    request: &WindowRequest,
    stock: impl FnOnce(Option<&Mr>) -> Result,
) -> Result<Option<Cleared>> {
    let Ok(core) = Core::running(pd.device()) else {
        return stock(None).map(|()| None);
    };
    let region = if request.length == 0 {
        None
    } else {
        core.regions.get_arc(request.lkey >> 8)
    };
    let new = match &region {
        Some(region) => Some((describe(&core, pd, region, request)?, region)),
        None => None,
    };
    let (windows, hw) = (&core.windows, &core.hw);
    let Some((new, region)) = new else {
        // The driver binds the window to one of its MRs, or to nothing.
        return windows.release(hw, request.index, request.mw, || stock(None));
    };
    windows.change(request.index, request.mw, |bindings| {
        let make = || hidden(&core, region);
        bindings.bind(&core.pins, hw, new, make, |mr| stock(Some(mr)))
    })
}

/// Takes out the binding of the window `mw` at `index` if the driver has replaced it: if the window is
/// not bound to the hidden MR any more, as `is_over` tells.
pub(crate) fn replaced(
    device: &Device,
    index: u32,
    mw: usize,
    is_over: impl FnOnce(&Mr) -> bool,
) -> Option<Cleared> {
    let core = Core::running(device).ok()?;
    core.windows.replaced(&core.hw, index, mw, is_over)
}

/// Invalidates the window at `index`. `stock` makes the driver do that. No access through the
/// window is left when this returns without an error. Sleeps for some seconds at most.
///
/// # Errors
///
/// Those of `stock`; `EBUSY` if accesses through the window are left. The window is invalid then.
pub(crate) fn invalidate(device: &Device, index: u32, stock: impl FnOnce() -> Result) -> Result {
    let Ok(core) = Core::running(device) else {
        return stock();
    };
    let gone = core.windows.invalidate(&core.hw, index, stock)?;
    // Accesses through the window can take arbitrarily long, and removal of another device must not
    // wait for them. This device is not removed while a QP of the process exists.
    drop(core);
    let worker = Worker::new();
    gone.map_or(Ok(()), |gone| gone.wait(worker.patience))
}
