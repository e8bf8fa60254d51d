// SPDX-License-Identifier: GPL-2.0

//! The granularity of a layout: what is known about where its pieces begin and end.

use super::work::{PACKET, WHOLE};

/// Numbers that bound the places at which the pieces of a layout begin and end. Each binding has
/// one, so it takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Two powers of two, of four bits each. The number of bytes of each piece is a multiple of the
    /// low one, the address of each piece is a multiple of the high one.
    powers: u8,
    /// No piece has more bytes than this power of two.
    pub(super) most: u8,
    /// No piece has fewer bytes; [`u16::MAX`] for a layout that does not cut a packet.
    pub(super) least: u16,
}

impl Granularity {
    /// The granularity of no pieces.
    pub const NONE: Self = Self {
        powers: (WHOLE << 4) | WHOLE,
        most: 0,
        least: u16::MAX,
    };

    /// Returns the granularity of pieces of `len` bytes, from the bits that are set in any of their
    /// addresses.
    #[inline]
    pub(super) fn new(len: u64, addrs: u64) -> Self {
        Self::of_several(len, len.saturating_sub(1), len, addrs)
    }

    /// Returns the granularity of pieces of several lengths, of which `least` is the smallest.
    /// `lens` has the bits that are set in any length, `less` those that are set in any length less
    /// one, and `addrs` those that are set in any address.
    #[inline]
    pub(super) fn of_several(lens: u64, less: u64, least: u64, addrs: u64) -> Self {
        let below = u64::BITS.saturating_sub(less.leading_zeros());
        Self {
            powers: (Self::power(addrs) << 4) | Self::power(lens),
            most: below as u8,
            least: least.clamp(1, PACKET) as u16,
        }
    }

    /// Returns the power of two that divides a number with the bits `bits`, at most [`WHOLE`].
    fn power(bits: u64) -> u8 {
        bits.trailing_zeros().min(WHOLE.into()) as u8
    }

    pub(super) fn len(self) -> u8 {
        self.powers & 0xf
    }

    pub(super) fn addr(self) -> u8 {
        self.powers >> 4
    }

    /// Returns the granularity of the pieces of both.
    #[inline]
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let (addr, len) = (self.addr().min(other.addr()), self.len().min(other.len()));
        Self {
            powers: (addr << 4) | len,
            most: self.most.max(other.most),
            least: self.least.min(other.least),
        }
    }

    /// Returns the granularity of the only piece of a layout.
    #[must_use]
    pub fn alone(self) -> Self {
        Self {
            powers: (self.addr() << 4) | WHOLE,
            most: u8::MAX,
            least: u16::MAX,
        }
    }
}
