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

    for reason in 1..=sys::IB_UVERBS_MKEY_REASON_ALL_MAPPED {
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
    let later = sys::IB_UVERBS_MKEY_REASON_ALL_MAPPED.saturating_add(1);
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
    let blocks = [block(0xfff, 2), block(0x1000, 0x101), block(0x1000, 8)];
    let table = sys::ib_uverbs_mkey_indexed::default();
    let repeat = [3];
    let list = mkey::list(0x7, 4, ranges.as_ptr());
    let strided = mkey::interleaved(0, 1, repeat.as_ptr(), 3, blocks.as_ptr());
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
            "access 0x7 is more than the MR of ranges[0].lkey 0x100 allows",
        ),
        (sys::IB_UVERBS_MKEY_REASON_ADDRESS, 3, 0, Some(&list), "ranges[3]: addr + length exceeds"),
        (sys::IB_UVERBS_MKEY_REASON_ADDRESS, 2, 0, Some(&strided), "blocks[2]: its strides lead"),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            1,
            0x10ff,
            Some(&list),
            "ranges[1].addr 0x1100 is outside the MR of its lkey 0x100, whose last byte is at 0x10ff",
        ),
        (sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF, 2, 0x10ff, Some(&list), "ranges[2].length 8 reaches"),
        (sys::IB_UVERBS_MKEY_REASON_BEFORE_LEAF, 0, 0x1000, Some(&strided), "blocks[0].addr 0xfff"),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            1,
            0x10ff,
            Some(&strided),
            "blocks[1].bytes_count 257 reaches",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            2,
            0x10ff,
            Some(&strided),
            "blocks[2].stride, in a repetition, leads outside the MR of its lkey 0x100, whose last",
        ),
        (
            sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
            5,
            0x10ff,
            Some(&indexed),
            "indices[5] reaches outside its MR",
        ),
    ] {
        let text = sentence(&refused(reason, entry, value), layout);
        assert!(text.starts_with(words), "{text}");
    }
}
