// SPDX-License-Identifier: GPL-2.0

//! The peers that may use a binding, and those that may invalidate it.

use super::{Binding, Window, PEERS_END};
use crate::{
    kernel_ext::{
        rdma::{mr_key, Mr},
        sync::racing::load_relaxed,
    },
    region::rights::{serves_peers, Peer},
};
use kernel::sync::atomic::ordering;

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
    pub(crate) fn set_rkey(&self, rkey: u32) {
        self.tag.store(mr_key::tag(rkey), ordering::Relaxed);
    }

    /// Lets peers invalidate the binding even if it has no remote access flag. The caller does this
    /// before an access can find the binding.
    pub(crate) fn allow_remote_inv(&self) {
        let marks = self.marks.load(ordering::Relaxed);
        self.marks.store(marks | PEERS_END, ordering::Relaxed);
    }

    /// Returns `true` if a peer may invalidate the binding.
    pub(crate) fn allows_remote_inv(&self) -> bool {
        serves_peers(self.access) || self.marks.load(ordering::Relaxed) & PEERS_END != 0
    }

    /// Returns `true` if `peer`, which names the binding by `mr`, may use it.
    #[inline(always)]
    pub(crate) fn admits(&self, mr: &Mr, peer: &Peer) -> bool {
        match self.window() {
            None => {
                mr.pd() as usize == peer.pd && load_relaxed(&self.tag) == mr_key::tag(peer.rkey)
            }
            Some(window) => window.admits(peer),
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "peers_kunit.rs"]
mod kunit;
