// SPDX-License-Identifier: GPL-2.0

//! The peers that may use a binding, and those that may invalidate it.

use super::{Binding, Extra, Window, PEERS_END};
use crate::{
    kernel_ext::rdma::{mr_key, Mr},
    region::rights::{serves_peers, Peer},
};

impl Window {
    /// Returns `true` if `peer` may use the binding. rxe compares the rkey when a request arrives,
    /// and copies bytes later. By then the window may have another rkey and this binding.
    #[inline]
    fn admits(&self, peer: &Peer) -> bool {
        self.pd == peer.pd && self.rkey == peer.rkey && (self.qp == 0 || self.qp == peer.qp)
    }
}

impl Binding {
    /// Sets the rkey by which peers name the binding. The caller does this before an access can
    /// find the binding.
    pub(crate) fn set_rkey(&mut self, rkey: u32) {
        self.tag = mr_key::tag(rkey);
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

    /// Returns `true` if `peer`, which names the binding by `mr`, may use it.
    #[inline]
    pub(crate) fn admits(&self, mr: &Mr, peer: &Peer) -> bool {
        match self.extra.as_deref() {
            Some(Extra::Window(window)) => window.admits(peer),
            Some(Extra::Registered(registered)) => {
                mr.pd() as usize == peer.pd && registered.key == peer.rkey
            }
            _ => mr.pd() as usize == peer.pd && self.tag == mr_key::tag(peer.rkey),
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "peers_kunit.rs"]
mod kunit;
