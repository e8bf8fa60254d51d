// SPDX-License-Identifier: GPL-2.0

//! Memory windows over MRs of this module.
//!
//! The windows are the driver's. It compares each packet with the window, and ends accesses through
//! a window that ends. Until then the window pins the MR, as a binding pins its leaves. So the
//! binding of the MR stays as this file has compared it with the window.

use super::region_of;
use crate::{
    backend::{Claimed, MrRange},
    kernel_ext::rdma::{mr::Right, Access, Pd},
    limits::{cost, owner::OwnerCharge},
    mkey_core::{Core, Lookup},
    region::binding::{Leaf, MAX_DEPTH},
};
use kernel::prelude::*;

/// A request to bind a window.
pub(crate) struct WindowRequest {
    /// The lkey of the MR to bind it to.
    pub(crate) lkey: u32,
    /// The first address of the window, which is an address of that MR.
    pub(crate) addr: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// Its access flags.
    pub(crate) access: Access,
}

/// The pin of the MR that a window is bound to, and the charge. Dropping this releases the MR.
pub(crate) struct BoundWindow {
    _leaf: Leaf,
    _charge: OwnerCharge,
}

/// Pins `mr`, which `request` names, for a window that a QP in `pd` binds.
///
/// # Errors
///
/// `ENOENT` for an MR of another protection domain, `EINVAL` for an MR without the access flag
/// `MW_BIND`, `EACCES` if the window has an access flag that the MR does not allow, `ERANGE` outside
/// of the MR and for an unbound key; `ENOMEM`.
pub(crate) fn bind(
    mr: &Claimed,
    pd: &Pd,
    request: &WindowRequest,
) -> Result<Pin<KBox<BoundWindow>>> {
    let charge = region_of(mr)?.charge.beside(cost::WINDOW)?;
    let leaf = Core::of(pd.device())?.pin_leaf(request.lkey, pd, MAX_DEPTH, None)?;
    check(leaf.access, request.access)?;
    let (start, len) = (leaf.start, leaf.len);
    if !(MrRange { start, len }).contains(request.addr, request.length) {
        return Err(ERANGE);
    }
    let bound = BoundWindow {
        _leaf: leaf,
        _charge: charge,
    };
    Ok(KBox::pin(bound, GFP_KERNEL)?)
}

/// Checks the access flags of a window over an MR with the flags `mr`. A window may give a peer
/// access that the MR itself does not give, but not write where this node must not.
fn check(mr: Access, window: Access) -> Result {
    if !mr.contains(Right::MwBind) {
        return Err(EINVAL);
    }
    let writes = window.contains_any(Right::RemoteWrite | Right::RemoteAtomic);
    let lacks = |flag: Right| window.contains(flag) && !mr.contains(flag);
    if (writes && !mr.contains(Right::LocalWrite))
        || lacks(Right::FlushGlobal)
        || lacks(Right::FlushPersistent)
    {
        return Err(EACCES);
    }
    Ok(())
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "window_kunit.rs"]
mod kunit;
