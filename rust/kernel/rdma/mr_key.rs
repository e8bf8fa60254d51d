// SPDX-License-Identifier: GPL-2.0

//! The form of an lkey and of an rkey. The upper 24 bits are the index by which the device finds
//! the MR or the memory window. The lower 8 bits are the key portion, which the owner may change
//! (`ib_inc_rkey()`).

/// The bits of the key portion.
const PORTION: u32 = 0xff;

/// The number of these bits.
const PORTION_BITS: u32 = PORTION.count_ones();

/// Returns the index in `key`.
pub(crate) const fn index(key: u32) -> u32 {
    key >> PORTION_BITS
}

/// Returns the key portion of `key`.
pub(crate) const fn portion(key: u32) -> u8 {
    (key & PORTION) as u8
}

/// Returns `true` if two keys have the same index. Their key portions may differ.
pub(crate) const fn is_same_index(one: u32, two: u32) -> bool {
    (one ^ two) & !PORTION == 0
}

/// Returns `key` with the key portion of `other`.
pub(crate) const fn with_portion_of(key: u32, other: u32) -> u32 {
    (key & !PORTION) | (other & PORTION)
}

/// Returns `key` with the next key portion, as `ib_inc_rkey()` does.
pub(crate) const fn next(key: u32) -> u32 {
    with_portion_of(key, key.wrapping_add(1))
}
