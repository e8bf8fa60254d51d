// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the access flags of a window (`window.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_window)]
mod tests {
    use super::super::*;

    /// Returns `true` if a window with the flags `window` may be bound to an MR with `MW_BIND` and
    /// the flags `mr`.
    fn may(mr: Access, window: Access) -> bool {
        check(mr | Right::MwBind, window).is_ok()
    }

    #[test]
    fn an_mr_allows_windows_or_not() {
        let access = Right::LocalWrite | Right::RemoteRead;
        assert!(check(access, Right::RemoteRead.into()).err() == Some(EINVAL));
        assert!(may(access, Right::RemoteRead.into()));
    }

    #[test]
    fn a_window_gives_more_than_the_mr() {
        let remote = Right::RemoteRead | Right::RemoteWrite | Right::RemoteAtomic;
        assert!(may(Right::LocalWrite.into(), remote));
        assert!(may(Access::empty(), Right::RemoteRead.into()));
    }

    #[test]
    fn a_window_writes_where_this_node_may() {
        let remote = Right::RemoteRead | Right::RemoteWrite | Right::RemoteAtomic;
        for writes in [Right::RemoteWrite, Right::RemoteAtomic] {
            assert!(!may(remote, writes.into()));
            assert!(may(Right::LocalWrite.into(), writes.into()));
        }
    }

    #[test]
    fn a_window_flushes_what_the_mr_lets_a_peer_flush() {
        for flush in [Right::FlushGlobal, Right::FlushPersistent] {
            assert!(!may(Right::LocalWrite.into(), flush.into()));
            assert!(may(Right::LocalWrite | flush, flush.into()));
        }
    }
}
