// SPDX-License-Identifier: GPL-2.0

//! Rows: pieces of one size at one distance.

use super::Run;

/// Pieces of one leaf and one size. Their distance in memory is constant, and so is their distance
/// in the access.
///
/// Piece `i` is `len` bytes from address `addr + i * stride` on. In the access, these are the bytes
/// from position `at + i * step` on. So the copy of a row is one loop with two constant distances,
/// whatever the layout is. The pieces of a single strided block have `step == len`. Each of several
/// blocks has its own row, whose `step` is the sum of the bytes of all blocks.
///
/// All pieces of a row are within the access and within the extents of the layout. So `addr + i *
/// stride` does not overflow for any piece `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The leaf, as numbered by the caller.
    pub leaf: u32,
    /// Address of the first piece.
    pub addr: u64,
    /// Bytes of each piece; never zero.
    pub len: u64,
    /// Distance in bytes from one piece to the next in memory. It has no meaning if there is one
    /// piece.
    pub stride: i64,
    /// Number of pieces; never zero.
    pub count: u64,
    /// Position of the first piece in the access.
    pub at: u64,
    /// Distance in bytes from one piece to the next in the access. It has no meaning if there is
    /// one piece.
    pub step: u64,
}

impl Row {
    /// Makes a row of one piece, which is the whole access.
    pub fn of(leaf: u32, addr: u64, len: u64) -> Self {
        Self {
            leaf,
            addr,
            len,
            stride: 0,
            count: 1,
            at: 0,
            step: len,
        }
    }

    /// Returns the first piece.
    #[inline]
    pub fn piece(&self) -> Run {
        Run {
            leaf: self.leaf,
            addr: self.addr,
            len: self.len,
        }
    }

    /// Returns the row without its first `count` pieces. The row must have more pieces than that.
    ///
    /// The sums wrap. The results are in range, because they belong to a piece of the row.
    #[inline]
    #[must_use]
    pub fn skip(self, count: u64) -> Self {
        Self {
            addr: self
                .addr
                .wrapping_add((self.stride as u64).wrapping_mul(count)),
            count: self.count.saturating_sub(count),
            at: self.at.wrapping_add(self.step.wrapping_mul(count)),
            ..self
        }
    }

    /// Returns the pieces as one piece, if each continues the one before.
    #[inline]
    pub(super) fn joined(self) -> Self {
        match self.len.checked_mul(self.count) {
            Some(len) if u64::try_from(self.stride) == Ok(self.len) => Self {
                len,
                count: 1,
                step: len,
                ..self
            },
            _ => self,
        }
    }
}

/// The order in which the rows of an access are returned.
///
/// A read may use any order. For a write, the layout defines the result if it reaches a place more
/// than once: the byte with the higher offset stays. The copy of a row visits its pieces in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any order: for an access that reads the layout.
    Any,
    /// Of two bytes at one address of a leaf, the one with the higher position comes later. Rows of
    /// different leaves come in the order of the layout. This order is enough for an access that
    /// writes if no two addresses of a leaf are the same memory.
    Leaf,
    /// Every byte comes after those with lower positions. An access that writes needs this order if
    /// nothing is known about its leaves.
    Strict,
}

/// Returns the distance from address `from` to address `to`, if a stride can have that value.
#[inline]
pub(super) fn distance(from: u64, to: u64) -> Option<i64> {
    let distance = to.wrapping_sub(from) as i64;
    ((distance >= 0) == (to >= from)).then_some(distance)
}
