// SPDX-License-Identifier: GPL-2.0

//! Repeated blocks that do not form one piece: seek and cursor.

use core::mem::size_of;
use core::num::NonZeroU64;
use core::slice;

use super::dims::{Digits, Dims, MAX_DIMS};
use super::extent::Extent;
use super::run::{step, Row, Run};

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
    fn moves_as(&self, other: &Self, dims: &Dims) -> bool {
        let strides = dims.inner_first(&self.stride);
        strides
            .zip(dims.inner_first(&other.stride))
            .zip(dims.counts())
            .all(|((a, b), count)| a == b || count.get() == 1)
    }

    /// Returns `true` if `blocks` are the fields of records of one leaf: at one index of all dimensions
    /// but the innermost, the bytes of each record are in order, and no two records share bytes.
    pub(super) fn are_records(blocks: &[Self], dims: &Dims) -> bool {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return false;
        };
        let in_order = |(block, next): (&Self, &Self)| {
            block.leaf == next.leaf
                && block.moves_as(next, dims)
                && matches!(next.addr.checked_sub(block.addr), Some(far) if far >= block.bytes_count)
        };
        // The addresses rise, so this is the length of a record.
        let length = last
            .addr
            .saturating_sub(first.addr)
            .saturating_add(last.bytes_count);
        let stride = dims.inner_first(&first.stride).next();
        blocks.iter().zip(blocks.iter().skip(1)).all(in_order)
            && stride.is_some_and(|stride| stride.unsigned_abs() >= length)
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
    /// Bytes of an index tuple.
    group: NonZeroU64,
    /// `true` if the blocks are [records](Block::are_records).
    is_records: bool,
}

impl<'a> BlocksWalk<'a> {
    /// Returns a cursor at the piece of `offset`, and the position in the piece. There are `group`
    /// bytes for each index tuple. `is_records` is the value of [`Block::are_records`].
    pub(super) fn seek(
        blocks: &'a [Block],
        dims: &'a Dims,
        (group, is_records): (NonZeroU64, bool),
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
            group,
            is_records,
        };
        Some((walk, pos.wrapping_sub(blocks.get(next)?.start)))
    }

    /// Returns the next piece, without an advance.
    pub(super) fn piece(&self) -> Option<Run> {
        let block = self.blocks.get(self.next)?;
        Some(block.piece(self.dims, &self.digits))
    }

    /// Returns the bytes and the number of the whole records in the first `bytes` bytes that differ in
    /// the innermost index alone, if the next piece begins a record, and if there are several.
    pub(super) fn records(&self, bytes: u64) -> Option<(u64, u64)> {
        let ([count, ..], [digit, ..]) = (self.dims.counts(), &self.digits) else {
            return None;
        };
        let count = count.get().checked_sub(*digit)?.min(bytes / self.group);
        let found = self.is_records && self.next == 0 && count > 1;
        found.then(|| (self.group.get().wrapping_mul(count), count))
    }

    /// Takes the next `count` [records](Self::records), from position `at` of the access on.
    pub(super) fn take(&mut self, count: u64, at: u64) -> RecordRows<'a> {
        let mut row = Row {
            count,
            at,
            step: self.group.get(),
            ..Row::of(0, 0, 0)
        };
        if let Some(first) = self.blocks.first() {
            let piece = first.piece(self.dims, &self.digits);
            let mut strides = self.dims.inner_first(&first.stride);
            row.leaf = first.leaf;
            row.addr = piece.addr.wrapping_sub(first.addr);
            row.stride = strides.next().copied().unwrap_or(0);
        }
        let [digit, ..] = &mut self.digits;
        *digit = digit.wrapping_add(count).wrapping_sub(1);
        self.dims.advance(&mut self.digits);
        RecordRows {
            fields: self.blocks.iter(),
            row,
        }
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

/// A row for each field of some records; an iterator over [`Row`]. The pieces of a row do not follow
/// one another in the access: its [`step`](Row::step) is the size of a record.
#[derive(Clone, Debug)]
pub struct RecordRows<'a> {
    fields: slice::Iter<'a, Block>,
    /// The row of a field without bytes at address zero.
    row: Row,
}

impl RecordRows<'_> {
    /// Returns the leaf.
    pub fn leaf(&self) -> u32 {
        self.row.leaf
    }
}

impl Iterator for RecordRows<'_> {
    type Item = Row;

    #[inline]
    fn next(&mut self) -> Option<Row> {
        let field = self.fields.next()?;
        Some(Row {
            addr: self.row.addr.wrapping_add(field.addr),
            len: field.bytes_count,
            at: self.row.at.wrapping_add(field.start),
            ..self.row
        })
    }
}
