// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests the sentences about binds that failed.

use super::{
    search::{
        first_refused,
        outside, //
    },
    *, //
};

const KEY: Key = Key {
    lkey: 0x700,
    max_entries: Some(4),
};

fn range(length: u64) -> Range {
    Range {
        addr: 0x1000,
        length,
        lkey: 0x100,
        comp_mask: 0,
    }
}

fn list(ranges: &[Range]) -> Failed<'_> {
    Failed {
        layout: Layout::List(ranges),
        access: 0,
        count: ranges.len() as u32,
        dims: 0,
    }
}

fn text(errno: c_int, failed: &Failed<'_>) -> String {
    let culprit = Culprit {
        at: 1,
        why: match errno {
            libc::ERANGE => Why::Outside("length"),
            _ => Why::Errno,
        },
    };
    explain(Errno::from_raw(errno), failed, KEY, || Some(culprit))
}

#[test]
fn the_entry_and_the_field_are_named() {
    let good = [range(8), range(8)];
    let zero = [range(8), range(0)];
    let far = [range(8), range(u64::MAX)];
    let own = [
        range(8),
        Range {
            lkey: 0x700,
            ..range(8)
        },
    ];

    assert_eq!(text(libc::EINVAL, &list(&zero)), "ranges[1].length is 0");
    assert_eq!(text(libc::EINVAL, &list(&[])), "num_ranges is 0");
    assert_eq!(text(libc::EFAULT, &list(&[])), "ranges is NULL");
    let block = [Block::default()];
    let blocks = |repeat, blocks| Failed {
        layout: Layout::Interleaved(repeat, blocks),
        access: 0,
        count: 1,
        dims: 1,
    };
    assert_eq!(
        text(libc::EFAULT, &blocks(&[], &block)),
        "repeat_count is NULL"
    );
    assert_eq!(text(libc::EFAULT, &blocks(&[1], &[])), "blocks is NULL");
    assert_eq!(
        text(libc::EOVERFLOW, &list(&far)),
        "ranges[1]: addr + length exceeds 64 bits"
    );
    assert_eq!(
        text(libc::ENOENT, &list(&good)),
        "ranges[1].lkey 0x100 names no MR in the protection domain of mkey"
    );
    assert_eq!(
        text(libc::ERANGE, &list(&good)),
        "ranges[1].length 8 reaches outside the MR of its lkey 0x100"
    );
    assert_eq!(
        text(libc::ELOOP, &list(&own)),
        "ranges[1].lkey 0x700 is mkey itself"
    );
    assert!(text(libc::ENOSPC, &list(&good)).contains("is 2, but the key was created for 4"));
    let writes = Failed {
        access: sys::IBV_ACCESS_REMOTE_WRITE,
        ..list(&good)
    };
    assert!(text(libc::EINVAL, &writes).contains("without IBV_ACCESS_LOCAL_WRITE"));
}

#[test]
fn blocks_are_followed_by_their_strides() {
    let mut block = Block {
        addr: 100,
        bytes_count: 4,
        lkey: 1,
        ..Block::default()
    };
    let failed = |dims, repeat, blocks| Failed {
        layout: Layout::Interleaved(repeat, blocks),
        access: 0,
        count: 1,
        dims,
    };

    block.stride[0] = -60;
    let blocks = [block];
    assert!(text(libc::EOVERFLOW, &failed(1, &[3], &blocks)).starts_with("blocks[0]: its strides"));
    assert!(text(libc::EOVERFLOW, &failed(1, &[2], &blocks)).starts_with("the length"));
    assert_eq!(
        text(libc::EINVAL, &failed(1, &[0], &blocks)),
        "repeat_count[0] is 0"
    );
    assert_eq!(
        text(libc::EINVAL, &failed(9, &[], &blocks)),
        "num_dims is 9, not 1 to 8"
    );
}

/// In this test the MR has 0x100 bytes, from address 0x1000 on.
#[test]
fn the_field_that_leads_outside_is_named() {
    let is_outside = |range: Range| {
        let end = range.addr.saturating_add(range.length);
        range.addr < 0x1000 || end > 0x1100
    };
    let named = |addr, length| {
        let ranges = [
            range(8),
            Range {
                addr,
                ..range(length)
            },
        ];
        let culprit = Culprit {
            at: 1,
            why: Why::Outside(outside(&Layout::List(&ranges), 1, is_outside)),
        };
        explain(Errno::ERANGE, &list(&ranges), KEY, || Some(culprit))
    };

    assert_eq!(
        named(0x1100, 8),
        "ranges[1].addr 0x1100 is outside the MR of its lkey 0x100"
    );
    assert_eq!(
        named(0x10fc, 8),
        "ranges[1].length 8 reaches outside the MR of its lkey 0x100"
    );
    let block = |addr, bytes_count| Block {
        addr,
        bytes_count,
        lkey: 1,
        ..Block::default()
    };
    for (block, field) in [
        (block(0xfff, 2), "addr"),
        (block(0x1000, 0x101), "bytes_count"),
        (block(0x1000, 8), "stride"),
    ] {
        let blocks = [block];
        let layout = Layout::Interleaved(&[9], &blocks);
        assert_eq!(outside(&layout, 0, is_outside), field);
        let failed = Failed {
            layout,
            access: 0,
            count: 1,
            dims: 1,
        };
        let culprit = Culprit {
            at: 0,
            why: Why::Outside(field),
        };
        let text = explain(Errno::ERANGE, &failed, KEY, || Some(culprit));
        assert!(text.starts_with(&format!("blocks[0].{field}")), "{text}");
    }
}

#[test]
fn bisection_finds_the_first_entry() {
    for bad in 0..20 {
        let mut calls = 0;
        let found = first_refused(20, Errno::EINVAL, |count| {
            calls += 1;
            if count > bad {
                Err(Errno::EINVAL)
            } else {
                // With fewer entries the bind fails for another reason.
                Err(Errno::EBUSY)
            }
        });

        assert_eq!(found, Some(bad));
        assert!(calls <= 6, "{calls}");
    }
    assert_eq!(first_refused(3, Errno::EINVAL, |_| Ok(())), None);
    assert_eq!(
        first_refused(0, Errno::EINVAL, |_| Err(Errno::EINVAL)),
        None
    );
}

#[test]
fn each_thread_has_its_own_sentence() {
    // SAFETY: The pointer is to a C string until the next sentence is stored, and the string is
    // copied before.
    let seen = || unsafe { core::ffi::CStr::from_ptr(last()) }.to_owned();

    store_sentence("here");
    let there = std::thread::spawn(seen).join().unwrap_or_default();
    assert!(there.is_empty());
    assert_eq!(seen().as_c_str(), c"here");
}
