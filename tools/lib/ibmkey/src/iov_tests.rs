// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests which ranges of an iovec become pieces and MRs.

use super::*;
use crate::explain::last_text;

fn range(start: u64, end: u64) -> Range {
    Range { start, end }
}

fn element(start: u64, length: usize) -> sys::iovec {
    sys::iovec {
        iov_base: start as *mut core::ffi::c_void,
        iov_len: length,
    }
}

#[test]
fn elements_that_continue_each_other_are_one_piece() {
    let iov = [
        element(100, 10),
        element(110, 5),
        element(0, 0),
        element(115, 1),
        element(90, 10),
        element(100, 10),
    ];

    assert_eq!(pieces(&iov), Ok(vec![range(100, 116), range(90, 110)]));
    assert_eq!(pieces(&[]), Err(Errno::EINVAL));
    assert_eq!(pieces(&[element(100, 0)]), Err(Errno::EINVAL));
    assert_eq!(pieces(&[element(u64::MAX, 1)]), Err(Errno::EOVERFLOW));
    assert_eq!(pieces(&[element(100, usize::MAX)]), Err(Errno::EOVERFLOW));
}

#[test]
fn each_page_is_registered_once() {
    let ranges = |pieces: &[Range]| to_register(pieces, 100);

    // Pieces in one page, in two pages that follow each other, and in pages with another page
    // between.
    assert_eq!(
        ranges(&[range(150, 160), range(110, 120)]),
        Ok(vec![range(110, 160)])
    );
    assert_eq!(
        ranges(&[range(110, 120), range(299, 300)]),
        Ok(vec![range(110, 300)])
    );
    assert_eq!(
        ranges(&[range(300, 301), range(110, 200)]),
        Ok(vec![range(110, 200), range(300, 301)])
    );
    // A piece within another one, and two equal pieces.
    assert_eq!(
        ranges(&[
            range(100, 900),
            range(200, 300),
            range(100, 900),
            range(1001, 1002)
        ]),
        Ok(vec![range(100, 900), range(1001, 1002)])
    );
    assert_eq!(
        ranges(&[range(u64::MAX - 9, u64::MAX)]),
        Ok(vec![range(u64::MAX - 9, u64::MAX)])
    );
}

#[test]
fn peers_have_no_rights_to_the_mrs_of_a_key() {
    let local = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_RELAXED_ORDERING;

    assert_eq!(of_leaves(local), local);
    assert_eq!(
        of_leaves(local | FOR_PEERS | sys::IBV_ACCESS_ZERO_BASED),
        local
    );
}

#[test]
fn a_piece_finds_its_mr() {
    let leaf = |start, end, lkey| Leaf {
        range: range(start, end),
        handle: 0,
        lkey,
    };
    // Do not drop the leaves: there is no device from which they could be deregistered.
    let leaves = core::mem::ManuallyDrop::new(Leaves {
        fd: -1,
        all: vec![leaf(100, 200, 1), leaf(400, 500, 2)],
    });

    assert_eq!(leaves.lkey_of(range(100, 150)), Ok(1));
    assert_eq!(leaves.lkey_of(range(199, 200)), Ok(1));
    assert_eq!(leaves.lkey_of(range(400, 500)), Ok(2));
    assert_eq!(leaves.lkey_of(range(99, 100)), Err(Errno::EINVAL));
}

#[test]
fn an_error_of_a_registration_comes_through() {
    let result = Leaves::register(-1, 0, &[range(100, 200)], 0);

    let refused = Err((Errno::EBADF, Some(range(100, 200))));
    assert_eq!(result.map(|_| ()), refused);

    let iov = [
        element(0, 0),
        element(100, 50),
        element(50, 1),
        element(150, 50),
    ];
    unregistered(&iov, Errno::EFAULT, Some(range(100, 200)));
    assert!(last_text().starts_with("iov[1] to iov[3], 100 bytes from 0x64 on: not mapped"));
}
