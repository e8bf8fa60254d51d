// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the peers that a binding admits (`rights.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_binding)]
mod tests {
    use super::super::*;

    const PEER: Peer = Peer {
        pd: 0x1000,
        qp: 0x2000,
        rkey: 0x08_0001_42,
    };

    /// A window that [`PEER`] may use.
    const fn window(qp: usize) -> Window {
        Window {
            start: 0,
            pd: PEER.pd,
            qp,
            rkey: PEER.rkey,
            range: None,
        }
    }

    #[test]
    fn a_window_admits_the_peer_of_its_qp() {
        let of_qp = window(PEER.qp);
        assert!(of_qp.admits(&PEER));
        assert!(!of_qp.admits(&Peer { qp: 0x3000, ..PEER }));
        assert!(!of_qp.admits(&Peer { pd: 0x3000, ..PEER }));
    }

    #[test]
    fn a_window_of_type_1_admits_the_peers_of_its_pd() {
        let of_pd = window(0);
        assert!(of_pd.admits(&PEER));
        assert!(of_pd.admits(&Peer { qp: 0x3000, ..PEER }));
        assert!(!of_pd.admits(&Peer { pd: 0x3000, ..PEER }));
    }

    /// A key refuses a request with the rkey of an earlier binding.
    #[test]
    fn a_key_admits_its_tag_alone() {
        for portion in 0..=0xff {
            assert!(admits(PEER.pd, portion, &PEER) == (u32::from(portion) == PEER.rkey & 0xff));
            assert!(!admits(0x3000, portion, &PEER));
        }
    }

    /// A window refuses a request with the rkey of an earlier binding.
    #[test]
    fn a_window_admits_its_rkey_alone() {
        for qp in [0, PEER.qp] {
            for portion in 0..=0xff {
                let rkey = mr_key::with_portion_of(PEER.rkey, portion);
                let admits = window(qp).admits(&Peer { rkey, ..PEER });
                assert!(admits == (rkey == PEER.rkey));
            }
        }
    }
}
