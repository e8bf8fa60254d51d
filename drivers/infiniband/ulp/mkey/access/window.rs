// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind and invalidate memory windows (`region/window.rs`).

use crate::{
    backend::{Backend, Claimed, DriverWindow},
    kernel_ext::{
        rdma::{mr::Right, mr_key, Access, Device, Mr, OwnedMr, Pd},
        sync::{pending::Timeout, rcu_arc::RcuUnique},
    },
    layout::{Entry, List},
    limits::{cost, worker::Worker},
    mkey_core::{Core, Lookup},
    region::{
        binding::{Binding, KLayout, Window, MAX_DEPTH},
        flat::MAX_PIECES,
        window::{ReplacedBinding, WindowMr},
        Kind, Region,
    },
};
use kernel::{prelude::*, sync::Arc};

/// A request to bind a window.
pub(crate) struct WindowRequest {
    /// The rkey that the window gets.
    pub(crate) rkey: u32,
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

/// Makes the unbound shadow MR of a window over `region`.
fn shadow(core: &Core, region: &Region) -> Result<Arc<WindowMr>> {
    // A worker binds windows, so the process that made the MR below is shown.
    let charge = region.charge.beside(cost::REGION)?;
    let (mr, ()) = OwnedMr::new(&core.pd, 1, |new| core.hw.claim(new).map(|_| ()))?;
    let region = core.adopt_of(&mr, Kind::Window, region.maker.clone(), charge)?;
    WindowMr::new(mr, region)
}

/// Pins the MR that a request names, and finds its region. `pin` pins the MR, and also returns its
/// address. `find` looks a region up by the index of the MR. Returns [`None`] for one of the
/// driver's MRs without a region, which is not pinned.
fn named<T>(
    find: impl Fn() -> Option<Arc<Region>>,
    pin: impl FnOnce() -> Result<(T, *const Mr)>,
) -> Result<Option<(Arc<Region>, T)>> {
    // Most windows are bound to MRs without a region.
    if find().is_none() {
        return Ok(None);
    }
    let (pinned, mr) = pin()?;
    // From here on the MR keeps its index and its address, so this finds its region if it has one.
    let region = find().filter(|region| region.is(mr));
    Ok(region.map(|region| (region, pinned)))
}

/// Makes the binding of a window: a range of a region. Returns [`None`] for an MR without a region,
/// to which the driver binds the window.
///
/// # Errors
///
/// `ENOENT` for an MR of another protection domain, `EINVAL` for an MR without the access flag
/// `MW_BIND`; `ERANGE`, `EACCES` and others as for the bind of a key; `ENOMEM`.
fn describe(
    core: &Core,
    pd: &Pd,
    request: &WindowRequest,
) -> Result<Option<(Arc<Region>, RcuUnique<Binding>)>> {
    let remote = Right::RemoteRead
        | Right::RemoteWrite
        | Right::RemoteAtomic
        | Right::FlushGlobal
        | Right::FlushPersistent;
    let find = || core.regions.at(mr_key::index(request.lkey));
    let pin = || core.pin_named(request.lkey, pd, MAX_DEPTH, None);
    let Some((region, leaf)) = named(find, pin)? else {
        return Ok(None);
    };
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
        rkey: request.rkey,
        range: None,
    };
    let binding = Binding::new(
        layout,
        leaves,
        access,
        pd,
        Some(charge),
        Some(window),
        MAX_PIECES,
    )?;
    Ok(Some((region, RcuUnique::new(binding, GFP_KERNEL)?)))
}

/// Binds `window` for a QP in `pd`. `driver` makes the driver bind the window to the given shadow
/// MR, or to the MR of the request if there is none. Puts the earlier binding of the window into
/// `left`, if it was over an MR of this module.
///
/// # Errors
///
/// The errors of `driver`. For an MR of this module also the errors of `describe()`, `EINVAL` for a
/// deallocated window, and `EBUSY` while an access through the binding before the last one waits
/// for a page.
pub(crate) fn bind(
    pd: &Pd,
    window: &impl DriverWindow,
    request: &WindowRequest,
    left: &mut ReplacedBinding,
    driver: impl FnOnce(Option<&Claimed>) -> Result,
) -> Result {
    let core = Core::of(pd.device())?;
    let new = match request.length {
        0 => None,
        _ => describe(core, pd, request)?,
    };
    let Some((region, new)) = new else {
        // The driver binds the window to one of its MRs, or to nothing.
        return core.windows.release(window, left, || driver(None));
    };
    core.windows.bind(window, left, |bindings, ended| {
        let make = || shadow(core, &region);
        let driver = |mr: &Claimed| driver(Some(mr));
        bindings.bind(&core.pins, new, make, driver, ended)
    })
}

/// Waits for accesses through the earlier binding of a window, in a worker of the owner of that
/// binding. Sleeps for some seconds at most.
/// Fails with `EBUSY` if such accesses are left.
pub(crate) fn wait_for_accesses(left: &mut ReplacedBinding) -> Result {
    // The accesses may release the charge of the binding at any time. This reference keeps the
    // owner until the worker is not counted any more.
    let Some(owner) = left.owner() else {
        // Nothing to wait for, or a binding without an owner.
        return left.wait(Timeout::After(0));
    };
    let worker = Worker::of(owner.waits());
    left.wait(worker.timeout)
}

/// Invalidates `window`. `driver` makes the driver do that. No access through the window is left
/// when this returns without an error. Sleeps for some seconds at most.
///
/// # Errors
///
/// The errors of `driver`; `EBUSY` if accesses through the window are left. The window is invalid
/// then.
pub(crate) fn invalidate(
    device: &Device,
    window: &impl DriverWindow,
    driver: impl FnOnce() -> Result,
) -> Result {
    let mut left = ReplacedBinding::default();
    Core::of(device)?
        .windows
        .release(window, &mut left, driver)?;
    wait_for_accesses(&mut left)
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "window_kunit.rs"]
mod kunit;
