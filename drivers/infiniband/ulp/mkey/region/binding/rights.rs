// SPDX-License-Identifier: GPL-2.0

//! The access flags that regions support, the origin of a request, and the peers that may use or
//! invalidate a binding.

use super::{Binding, Extra, PEERS_END};
use crate::{
    errors::Refused,
    kernel_ext::rdma::{mr::Right, mr_key, Access, Mr},
};
use kernel::prelude::*;

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

/// A peer's request.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    /// The address of the protection domain of the QP that serves the peer. It is compared, never
    /// followed.
    pub(crate) pd: usize,
    /// The rkey of the request.
    pub(crate) rkey: u32,
    /// The access flags of the memory window that the rkey names; [`None`] for the rkey of an MR.
    /// The driver has compared the request with the window, which stays bound to the MR until the
    /// access has ended.
    pub(crate) window: Option<Access>,
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

impl Binding {
    /// Sets the rkey by which peers name the binding. The caller does this before an access can
    /// find the binding.
    pub(crate) fn set_rkey(&mut self, rkey: u32) {
        self.portion = mr_key::portion(rkey);
    }

    /// Lets peers invalidate the binding even if it has no remote access flag. The caller does this
    /// before an access can find the binding.
    pub(crate) fn allow_remote_inv(&mut self) {
        self.marks |= PEERS_END;
    }

    /// Returns `true` if a peer may invalidate the binding.
    pub(crate) fn allows_remote_inv(&self) -> bool {
        serves_peers(self.access) || self.marks & PEERS_END != 0
    }

    /// Checks that this node, or `peer`, may do what needs the access flags `needed` with the binding
    /// of `mr`.
    ///
    /// # Errors
    ///
    /// `ACCESS_PD`, `ACCESS_KEY`, `ACCESS_FLAGS`.
    #[inline]
    pub(crate) fn allows(&self, mr: &Mr, peer: Option<&Peer>, needed: Access) -> Result {
        let granted = match peer {
            Some(peer) if mr.pd() as usize != peer.pd => return Err(Refused::ACCESS_PD.into()),
            Some(peer) if !self.admits(peer) => return Err(Refused::ACCESS_KEY.into()),
            peer => peer.and_then(|peer| peer.window).unwrap_or(self.access),
        };
        if granted.contains_all(needed) {
            Ok(())
        } else {
            Err(Refused::ACCESS_FLAGS.into())
        }
    }

    /// Returns `true` if the rkey of `peer` is that of the binding.
    #[inline]
    fn admits(&self, peer: &Peer) -> bool {
        match self.extra.as_deref() {
            Some(Extra::Registered(registered)) => registered.key == peer.rkey,
            _ => admits(self.portion, peer),
        }
    }
}

/// Returns `true` if the rkey of `peer` is that of the binding of a key. A binding that `peer` found
/// by an earlier rkey has another key portion. A memory window keeps the binding as it is.
#[inline]
fn admits(portion: u8, peer: &Peer) -> bool {
    peer.window.is_some() || portion == mr_key::portion(peer.rkey)
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "rights_kunit.rs"]
mod kunit;
