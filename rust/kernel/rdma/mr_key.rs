// SPDX-License-Identifier: GPL-2.0

//! The form of an lkey and of an rkey. The upper 24 bits are the index by which the device finds
//! the MR or the memory window. The lower 8 bits are the tag, which the owner may change
//! (`ib_inc_rkey()`).

/// The bits of the tag.
const TAG: u32 = 0xff;

/// The number of these bits.
const TAG_BITS: u32 = TAG.count_ones();

/// Returns the index in `key`.
pub(crate) const fn index(key: u32) -> u32 {
    key >> TAG_BITS
}

/// Returns the tag of `key`.
pub(crate) const fn tag(key: u32) -> u8 {
    (key & TAG) as u8
}

/// Returns `true` if two keys have the same index. Their tags may differ.
pub(crate) const fn is_same_index(one: u32, two: u32) -> bool {
    (one ^ two) & !TAG == 0
}

/// Returns `key` with the tag of `other`.
pub(crate) const fn with_tag_of(key: u32, other: u32) -> u32 {
    (key & !TAG) | (other & TAG)
}

/// Returns `key` with the next tag, as `ib_inc_rkey()` does.
pub(crate) const fn next(key: u32) -> u32 {
    with_tag_of(key, key.wrapping_add(1))
}
