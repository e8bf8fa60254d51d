// SPDX-License-Identifier: GPL-2.0

//! Repeated blocks that do not form one piece: seek and cursor.

use core::mem::size_of;
use core::num::NonZeroU64;
use core::slice;

use super::dims::{Digits, Dims, MAX_DIMS};
use super::extent::Extent;
use super::run::{step, Run};

/// A repeated block of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    leaf: u32,
    addr: u64,
    bytes_count: u64,
    stride: [i64; MAX_DIMS],
    /// Offset of the first byte among those of one index tuple. Set when the layout is made.
    start: u64,
}

// The documentation gives this size as the memory that a block takes.
const _: () = assert!(size_of::<Block>() <= 128);

impl Block {
    /// Describes `bytes_count` bytes of `leaf`. `addr` is their address at index zero of every
    /// dimension.
    ///
    /// `stride` is the distance from the start of one block to the next, for each dimension,
    /// outermost first. Strides of dimensions that the layout lacks are ignored.
    pub fn new(leaf: u32, addr: u64, bytes_count: u64, stride: [i64; MAX_DIMS]) -> Self {
        Self {
            leaf,
            addr,
            bytes_count,
            stride,
            start: 0,
        }
    }

    /// Returns the leaf's number, as the caller gave it.
    pub fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Returns the address of the first byte at index zero of every dimension.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the number of bytes of one repetition.
    pub fn bytes_count(&self) -> u64 {
        self.bytes_count
    }

    /// Returns the strides, outermost dimension first.
    pub fn stride(&self) -> &[i64; MAX_DIMS] {
        &self.stride
    }

    /// Returns the repetition at the index tuple `digits`.
    ///
    /// Intermediate sums may leave the address space although the result does not. So all address
    /// arithmetic of an accepted layout wraps.
    pub(super) fn piece(&self, dims: &Dims, digits: &Digits) -> Run {
        let mut addr = self.addr;
        for (stride, digit) in dims.inner_first(&self.stride).zip(digits) {
            addr = addr.wrapping_add((*stride as u64).wrapping_mul(*digit));
        }
        Run {
            leaf: self.leaf,
            addr,
            len: self.bytes_count,
        }
    }

    /// Returns the offset of the first byte among those of one index tuple.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the bytes of all repetitions; [`None`] if an address does not fit 64 bits.
    pub(super) fn extent(&self, dims: &Dims) -> Option<Extent> {
        let mut extent = Extent::new(self.leaf, self.addr, self.bytes_count)?;
        for (stride, count) in dims.inner_first(&self.stride).zip(dims.counts()) {
            extent = extent.repeat(count.get(), *stride)?;
        }
        Some(extent)
    }

    /// Sets the offset of the first byte among those of one index tuple, and the strides beyond
    /// `dims` to zero.
    pub(super) fn place(&mut self, start: u64, dims: &Dims) {
        self.start = start;
        for unused in self.stride.iter_mut().skip(dims.used()) {
            *unused = 0;
        }
    }

    /// Returns `true` if `next` always begins where this block ends.
    pub(super) fn is_continued_by(&self, next: &Self, dims: &Dims) -> bool {
        self.leaf == next.leaf
            && self.addr.checked_add(self.bytes_count) == Some(next.addr)
            && self.moves_as(next, dims)
    }

    /// Returns `true` if the distance between this block and `other` is the same at each index tuple.
    pub(super) fn moves_as(&self, other: &Self, dims: &Dims) -> bool {
        let strides = dims.inner_first(&self.stride);
        strides
            .zip(dims.inner_first(&other.stride))
            .zip(dims.counts())
            .all(|((a, b), count)| a == b || count.get() == 1)
    }
}

/// An endless cursor over the pieces of repeated blocks.
#[derive(Clone, Debug)]
pub(super) struct BlocksWalk<'a> {
    blocks: &'a [Block],
    dims: &'a Dims,
    /// The index tuple of the next piece, and the number of its block.
    digits: Digits,
    next: usize,
    /// The size of all blocks, if they have one size, one leaf and the same strides.
    even: Option<NonZeroU64>,
}

impl<'a> BlocksWalk<'a> {
    /// Returns a cursor at the piece of `offset`, and the position in the piece. There are `group`
    /// bytes for each index tuple. `even` is the size of all blocks, if they have one size, one leaf
    /// and the same strides.
    pub(super) fn seek(
        blocks: &'a [Block],
        dims: &'a Dims,
        (group, even): (NonZeroU64, Option<NonZeroU64>),
        offset: u64,
    ) -> Option<(Self, u64)> {
        step();
        let tuple = offset / group;
        let pos = offset.wrapping_sub(tuple.wrapping_mul(group.get()));
        let after = blocks.partition_point(|block| {
            step();
            block.start <= pos
        });
        // Block 0 starts at 0, so at least one block starts at or before the offset.
        let next = after.checked_sub(1)?;
        let walk = Self {
            blocks,
            dims,
            digits: dims.digits(tuple),
            next,
            even,
        };
        Some((walk, pos.wrapping_sub(blocks.get(next)?.start)))
    }

    /// Returns the next piece, without an advance.
    pub(super) fn piece(&self) -> Option<Run> {
        let block = self.blocks.get(self.next)?;
        Some(block.piece(self.dims, &self.digits))
    }

    /// Returns the next piece and the number of pieces in `bytes` bytes, if all pieces have one leaf
    /// and one size, and all blocks have the same strides.
    pub(super) fn even(&self, bytes: u64) -> Option<(Run, usize)> {
        let size = self.even?;
        let count = usize::try_from(bytes / size).ok()?;
        (count > 1).then_some((self.piece()?, count))
    }

    /// Takes the next `count` pieces, which are [`even`](Self::even).
    pub(super) fn take(&mut self, count: usize) -> BlockAddrs<'_, 'a> {
        let rest = self.blocks.get(self.next..).unwrap_or_default().iter();
        let after = self.next.wrapping_add(count);
        self.next = after.checked_rem(self.blocks.len()).unwrap_or(0);
        let mut strides = self
            .blocks
            .iter()
            .flat_map(|block| self.dims.inner_first(&block.stride));
        BlockAddrs {
            moved: self.moved(),
            stride: strides.next().copied().unwrap_or(0),
            rest,
            count,
            walk: self,
        }
    }

    /// Returns the distance from each block at index zero to its repetition at the index tuple of the
    /// next piece, if all blocks have the same strides.
    fn moved(&self) -> u64 {
        let first = self.blocks.first();
        first.map_or(0, |block| {
            let piece = block.piece(self.dims, &self.digits);
            piece.addr.wrapping_sub(block.addr)
        })
    }

    /// Returns the next piece, and advances.
    pub(super) fn next_piece(&mut self) -> Option<Run> {
        step();
        let piece = self.piece()?;
        self.next = self.next.wrapping_add(1);
        if self.next >= self.blocks.len() {
            self.next = 0;
            self.dims.advance(&mut self.digits);
        }
        Some(piece)
    }
}

/// The addresses of successive pieces of repeated blocks that have the same strides.
#[derive(Debug)]
pub struct BlockAddrs<'r, 'a> {
    /// The blocks of the present index tuple that are left.
    rest: slice::Iter<'a, Block>,
    /// The distance from each block at index zero to its repetition at this index tuple.
    moved: u64,
    /// The stride of the innermost dimension.
    stride: i64,
    /// The number of pieces that are left.
    count: usize,
    /// The cursor. Its block is that of the first piece after these.
    walk: &'r mut BlocksWalk<'a>,
}

impl BlockAddrs<'_, '_> {
    /// Advances to the next index tuple.
    fn next_tuple(&mut self) {
        self.rest = self.walk.blocks.iter();
        let (dims, digits) = (self.walk.dims, &mut self.walk.digits);
        match (dims.counts(), digits.first_mut()) {
            ([count, ..], Some(digit)) if digit.wrapping_add(1) < count.get() => {
                *digit = digit.wrapping_add(1);
                self.moved = self.moved.wrapping_add(self.stride as u64);
            }
            _ => {
                dims.advance(digits);
                self.moved = self.walk.moved();
            }
        }
    }
}

impl Iterator for BlockAddrs<'_, '_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let addr = self.rest.next()?.addr.wrapping_add(self.moved);
        if self.rest.as_slice().is_empty() {
            self.next_tuple();
        }
        Some(addr)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for BlockAddrs<'_, '_> {}
