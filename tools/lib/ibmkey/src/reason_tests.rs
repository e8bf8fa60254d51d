// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests the sentences for the kernel's reasons.

use super::*;
use crate::mkey;

const NONE: u32 = sys::IB_MKEY_NO_ENTRY;

fn refused(reason: u32, entry: u32, value: u64) -> Refused {
    Refused {
        entry,
        value,
        ..of(reason)
    }
}

#[test]
fn each_reason_has_a_sentence_of_its_own() {
    let mut all = Vec::new();

    for reason in 1..=sys::IB_UVERBS_MKEY_REASON_ACCESS_BASE {
        let text = sentence(&refused(reason, 3, 4), None);
        assert!(
            !text.contains("this library does not know"),
            "{reason}: {text}"
        );
        all.push(text);
    }
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
    let later = sys::IB_UVERBS_MKEY_REASON_ACCESS_BASE.saturating_add(1);
    let unknown = sentence(&refused(later, NONE, 0), None);
    assert!(unknown.contains("this library does not know"), "{unknown}");
}

#[test]
fn the_entry_and_the_field_are_named() {
    let range = |addr, length| Range {
        addr,
        length,
        lkey: 0x100,
        comp_mask: 0,
    };
    let ranges = [
        range(0x1000, 8),
        range(0x1100, 8),
        range(0x10fc, 8),
        range(u64::MAX, 2),
    ];
    let block = |addr, bytes_count| Block {
        addr,
        bytes_count,
        lkey: 0x100,
        ..Block::default()
    };
    let mut blocks = [block(0xfff, 2), block(0x1000, 2), block(0x1000, 8)];
    blocks[1].stride[..2].copy_from_slice(&[0x90, -8]);
    let ids = [3u32, 64];
    let table = Indexed {
        addr: 0x1000,
        unit: 8,
        bytes_count: 8,
        indices: ids.as_ptr() as u64,
        num_indices: 2,
        index_bytes: 4,
        lkey: 0x100,
        comp_mask: 0,
    };
    let repeat = [3, 5];
    let list = mkey::list(0x7, 4, ranges.as_ptr());
    let strided = mkey::interleaved(0, 2, repeat.as_ptr(), 3, blocks.as_ptr());
    let no_blocks = mkey::interleaved(0, 1, repeat.as_ptr(), 3, core::ptr::null());
    let no_repeat = mkey::interleaved(0, 1, core::ptr::null(), 3, blocks.as_ptr());
    let indexed = mkey::indexed(0, &table);
    let at = repeat.as_ptr() as u64;

    // In these tests the MR has 0x100 bytes, from address 0x1000 on.
    for (reason, entry, value, layout, words) in [
        (sys::IB_UVERBS_MKEY_REASON_NO_BYTES, 1, 0, Some(&list), "ranges[1].length is 0"),
        (sys::IB_UVERBS_MKEY_REASON_NO_BYTES, 1, 0, Some(&strided), "blocks[1].bytes_count is 0"),
        (sys::IB_UVERBS_MKEY_REASON_NO_BYTES, 0, 0, Some(&indexed), "bytes_count is 0"),
        (sys::IB_UVERBS_MKEY_REASON_EMPTY, NONE, 0, Some(&list), "num_ranges is 0"),
        (sys::IB_UVERBS_MKEY_REASON_TOO_MANY, NONE, 3, Some(&list), "num_ranges is 4, but the key"),
        (sys::IB_UVERBS_MKEY_REASON_FAULT, NONE, 0, Some(&list), "ranges is NULL"),
        (sys::IB_UVERBS_MKEY_REASON_FAULT, NONE, 0, Some(&no_blocks), "blocks is NULL"),
        (sys::IB_UVERBS_MKEY_REASON_FAULT, NONE, 0, Some(&no_repeat), "repeat_count is NULL"),
        (sys::IB_UVERBS_MKEY_REASON_FAULT, NONE, at, Some(&strided), "repeat_count cannot be read"),
        (sys::IB_UVERBS_MKEY_REASON_FAULT, NONE, 8, Some(&indexed), "indices cannot be read"),
        (
            sys::IB_UVERBS_MKEY_REASON_LKEY,
            1,
            0x100,
            Some(&list),
            "ranges[1].lkey 0x100 names no MR in the protection domain of mkey",
        ),
        (sys::IB_UVERBS_MKEY_REASON_LKEY, NONE, 0x100, Some(&indexed), "lkey 0x100 names no MR"),
        (sys::IB_UVERBS_MKEY_REASON_LKEY, 1, 0x100, None, "entries[1].lkey 0x100 names no MR"),
        (sys::IB_UVERBS_MKEY_REASON_ITSELF, 1, 7, Some(&list), "ranges[1].lkey 0x7 is mkey itself"),
        (
            sys::IB_UVERBS_MKEY_REASON_LEAF_ACCESS,
            0,
            0x100,
            Some(&list),
            "the MR of ranges[0].lkey 0x100 was registered without IBV_ACCESS_LOCAL_WRITE",
        ),
        (sys::IB_UVERBS_MKEY_REASON_ADDRESS, 3, 0, Some(&list), "ranges[3]: addr + length exceeds"),
        (sys::IB_UVERBS_MKEY_REASON_ADDRESS, 2, 0, Some(&strided), "blocks[2] leads to an address"),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            1,
            0x10ff,
            Some(&list),
            "ranges[1], the bytes 0x1100 to 0x1107, is outside the MR of its lkey 0x100, whose last \
             byte is at 0x10ff",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEFORE_LEAF,
            0,
            0x1000,
            Some(&strided),
            "blocks[0], the bytes 0xfff to 0x1000, is outside the MR of its lkey 0x100, which begins \
             at 0x1000",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            1,
            0x10ff,
            Some(&strided),
            "blocks[1] in repetition [2, 0], the bytes 0x1120 to 0x1121, is outside",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEFORE_LEAF,
            1,
            0x1000,
            Some(&strided),
            "blocks[1] in repetition [0, 4], the bytes 0xfe0 to 0xfe1, is outside",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            1,
            0x10ff,
            Some(&indexed),
            "indices[1] is 64: the block, the bytes 0x1200 to 0x1207, is outside the MR of its lkey \
             0x100, whose last byte is at 0x10ff",
        ),
        (sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF, 5, 0x10ff, None, "entries[5] reaches outside its MR"),
        (sys::IB_UVERBS_MKEY_REASON_ACCESS, NONE, 0x41, None, "access has a flag that a key cannot"),
    ] {
        let text = sentence(&refused(reason, entry, value), layout);
        assert!(text.starts_with(words), "{text}");
    }
}

#[test]
fn a_refused_access_is_described() {
    let refused = RefusedAccess {
        number: 1,
        addr: 0x7f10,
        length: 32,
        value: 32,
        key: 0x3a3e,
        reason: sys::IB_UVERBS_MKEY_REASON_ACCESS_RANGE,
        ..RefusedAccess::default()
    };
    let all = [
        (
            refused,
            "key 0x3a3e refused a local read of 32 bytes at its address 0x7f10: it has 32 bytes, \
             whose addresses begin at 0",
        ),
        (
            RefusedAccess {
                reason: sys::IB_UVERBS_MKEY_REASON_ACCESS_FLAGS,
                value: 5,
                access: sys::IBV_ACCESS_REMOTE_WRITE,
                remote: 1,
                ..refused
            },
            "key 0x3a3e refused a peer's write of 32 bytes at its address 0x7f10: its access flags \
             are IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ",
        ),
        (
            RefusedAccess {
                reason: sys::IB_UVERBS_MKEY_REASON_ACCESS_FLAGS,
                value: 0,
                access: sys::IBV_ACCESS_LOCAL_WRITE,
                ..refused
            },
            "key 0x3a3e refused a local write of 32 bytes at its address 0x7f10: its access flags \
             are 0x0",
        ),
    ];

    for (refused, text) in all {
        assert_eq!(access_sentence(&refused), text);
    }
}

#[test]
fn a_refusal_by_the_peer_is_not_one_of_this_node() {
    let none = RefusedAccess::default();
    let local = RefusedAccess {
        number: 3,
        reason: sys::IB_UVERBS_MKEY_REASON_ACCESS_UNBOUND,
        ..none
    };
    let remote = RefusedAccess { remote: 1, ..local };
    let (flushed, denied) = (
        Some(sys::IBV_WC_WR_FLUSH_ERR),
        Some(sys::IBV_WC_REM_ACCESS_ERR),
    );
    let all = [
        (flushed, none, "no key of this process"),
        (None, none, "no key of this process"),
        (flushed, local, "a local read"),
        (flushed, remote, "a peer's"),
        (denied, none, "the peer refused"),
        (denied, local, "the peer refused"),
        (denied, remote, "a peer's"),
    ];

    for (status, last, part) in all {
        let text = why(status, &last);
        assert!(text.contains(part), "{status:?}, {}: {text}", last.remote);
    }
}
