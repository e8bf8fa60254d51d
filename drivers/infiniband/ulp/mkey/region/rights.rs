// SPDX-License-Identifier: GPL-2.0

//! The access flags that regions support, and the origin of a request: this node or a peer.

use crate::kernel_ext::rdma::{mr::Right, Access};

/// The origin of an invalidation of an MR.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A call of the owner of the MR.
    Call,
    /// A work request of this node.
    Local,
    /// A peer, or an unknown caller.
    Remote,
}

/// The QP of this node that serves a peer, and the peer's request. The addresses are compared,
/// never followed.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    /// The protection domain of the QP.
    pub(crate) pd: usize,
    /// The QP.
    pub(crate) qp: usize,
    /// The rkey of the request.
    pub(crate) rkey: u32,
}

/// Returns `true` if a region can have the access flags `access`. Optional access flags are
/// accepted and have no effect.
pub(crate) fn supported(access: Access) -> bool {
    let known = Right::LocalWrite
        | Right::RemoteWrite
        | Right::RemoteRead
        | Right::RemoteAtomic
        | Right::MwBind
        | Right::ZeroBased
        | Right::FlushGlobal
        | Right::FlushPersistent;
    let optional = crate::bindings::ib_access_flags_IB_ACCESS_OPTIONAL;
    access.into_raw() & !(known.into_raw() | optional) == 0
}

/// Returns `true` if `access` has a remote access flag. Only then may a peer invalidate the MR.
pub(crate) fn serves_peers(access: Access) -> bool {
    access.contains_any(Right::RemoteRead | Right::RemoteWrite | Right::RemoteAtomic)
}
