// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the peers that a binding admits (`rights.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_binding)]
mod tests {
    use super::super::*;

    const PEER: Peer = Peer {
        pd: 0x1000,
        rkey: 0x08_0001_42,
        window: None,
    };

    /// A key refuses a request with the rkey of an earlier binding.
    #[test]
    fn a_key_admits_its_portion_alone() {
        for portion in 0..=0xff {
            assert!(admits(portion, &PEER) == (u32::from(portion) == PEER.rkey & 0xff));
        }
    }

    /// The rkey of a window has its own key portion.
    #[test]
    fn a_key_admits_windows() {
        let window = Some(Access::empty());
        let peer = Peer { window, ..PEER };
        for portion in 0..=0xff {
            assert!(admits(portion, &peer));
        }
    }
}
