// SPDX-License-Identifier: GPL-2.0

//! Interleaved layouts whose blocks do not form one piece: seek, order and cursor.

use core::num::NonZeroU64;
use core::slice;

use super::dims::{Digits, Dims};
use super::rows::Cursor;
use super::steps::step;
use super::{Block, Pieces, Records, Row};

/// The largest number of blocks that are compared pair by pair.
const MAX_COMPARED: usize = 32;

/// Returns `true` if, in the innermost dimension, all pieces of a block may be visited before those
/// of the next block. Two bytes at one address of a leaf must keep their order.
///
/// The order changes for a piece of a block and the pieces of later blocks at lower indices. The
/// change does not matter if no two such pieces overlap. Blocks of different leaves count as
/// overlapping, because leaves can be the same memory.
pub(super) fn keep_apart(blocks: &[Block], dims: &Dims) -> bool {
    let mut pairs = (1..).zip(blocks).flat_map(|(next, block)| {
        let later = blocks.get(next..).unwrap_or_default();
        later.iter().map(move |other| (block, other))
    });
    dims.inner() == 1
        || (blocks.len() <= MAX_COMPARED && pairs.all(|(one, two)| never_meet(one, two, dims)))
}

/// Returns `true` if no piece of `one` overlaps a piece of `two`, a later block, at a lower index
/// in the innermost dimension and at the same index in all others.
fn never_meet(one: &Block, two: &Block, dims: &Dims) -> bool {
    if one.leaf() != two.leaf() {
        return false;
    }
    let pairs = dims
        .inner_first(one.stride())
        .zip(dims.inner_first(two.stride()));
    let mut outer = pairs.zip(dims.counts()).skip(1);
    if !outer.all(|((a, b), count)| a == b || count.get() == 1) {
        // The distance between the two blocks differs from index to index.
        return match (one.extent(dims), two.extent(dims)) {
            (Ok(a), Ok(b)) => a.last() < b.start() || b.last() < a.start(),
            _ => false,
        };
    }
    let (stride, steps) = (one.inner_stride(dims), dims.inner().saturating_sub(1));
    let (a, b) = (Span::new(one), Span::new(two));
    // One step or more from `one`, all bytes are on the other side of `two`.
    let step = i128::from(stride);
    let is_beyond = (stride > 0 && a.start.saturating_add(step) >= b.end)
        || (stride < 0 && a.end.saturating_add(step) <= b.start);
    (is_beyond && stride == two.inner_stride(dims))
        || a.reach(stride, steps)
            .is_apart(&b.reach(two.inner_stride(dims), steps))
}

/// The smallest distance of pieces that are visited in the order of the layout instead of block by
/// block. At this distance few pieces of one block are in one page, so a visit block by block would
/// visit each page once for each block.
const FAR: u64 = 256;

/// Returns `true` if the blocks are records: pieces of one size, in one leaf, that keep their
/// distances, and are better visited in the order of the layout.
pub(super) fn are_records(blocks: &[Block], dims: &Dims) -> bool {
    let Some(first) = blocks.first() else {
        return false;
    };
    first.inner_stride(dims).unsigned_abs() >= FAR
        && blocks.iter().all(|block| {
            let same = dims
                .inner_first(block.stride())
                .eq(dims.inner_first(first.stride()));
            same && block.leaf() == first.leaf() && block.bytes_count() == first.bytes_count()
        })
}

/// Returns the number of pieces of `bytes` bytes before `offset`, and the number of those in `len`
/// bytes. Returns [`None`] if the range begins or ends within a piece, and if `len` is zero.
#[inline(always)]
pub(super) fn whole(offset: u64, len: u64, bytes: NonZeroU64) -> Option<(u64, u64)> {
    step();
    let (before, count) = (offset / bytes, len / bytes);
    let is_whole = before.wrapping_mul(bytes.get()) == offset
        && count.wrapping_mul(bytes.get()) == len
        && count != 0;
    is_whole.then_some((before, count))
}

/// Returns `count` records from record `first` on, of blocks that are records of one dimension. The
/// records must be within the layout.
#[inline(always)]
pub(super) fn only_records<'a>(
    blocks: &'a [Block],
    dims: &Dims,
    (first, count): (u64, u64),
) -> Option<Records<'a>> {
    let block = blocks.first()?;
    let far = block.inner_stride(dims);
    Some(Records {
        leaf: block.leaf(),
        len: block.bytes_count(),
        at: 0,
        blocks,
        offset: (far as u64).wrapping_mul(first),
        far,
        count,
    })
}

/// Addresses of a block at some index tuples.
struct Span {
    start: i128,
    end: i128,
}

impl Span {
    fn new(block: &Block) -> Self {
        let start = i128::from(block.addr());
        let end = start.saturating_add(i128::from(block.bytes_count()));
        Self { start, end }
    }

    /// Adds `steps` repetitions, `stride` bytes apart.
    fn reach(&self, stride: i64, steps: u64) -> Self {
        let reach = i128::from(stride).saturating_mul(i128::from(steps));
        Self {
            start: self.start.saturating_add(reach.min(0)),
            end: self.end.saturating_add(reach.max(0)),
        }
    }

    fn is_apart(&self, other: &Self) -> bool {
        self.end <= other.start || other.end <= self.start
    }
}

/// The place of an offset.
pub(super) struct Found<'a> {
    pub(super) block: &'a Block,
    /// The blocks after that one.
    rest: &'a [Block],
    /// The number of bytes in the block before the offset.
    pub(super) pos: u64,
    pub(super) digits: Digits,
}

/// Returns the block that contains `offset`.
#[inline]
pub(super) fn seek<'a>(
    blocks: &'a [Block],
    dims: &Dims,
    group: NonZeroU64,
    offset: u64,
) -> Option<Found<'a>> {
    step();
    let tuple = offset / group;
    let pos = offset.wrapping_sub(tuple.wrapping_mul(group.get()));
    let after = blocks.partition_point(|block| {
        step();
        block.start() <= pos
    });
    // Block 0 starts at 0, so at least one block starts at or before the offset.
    let (block, rest) = blocks.get(after.checked_sub(1)?..)?.split_first()?;
    Some(Found {
        block,
        rest,
        pos: pos.wrapping_sub(block.start()),
        digits: dims.digits(tuple),
    })
}

/// An endless cursor over repeated blocks.
///
/// It advances by batches. A batch is a number of index tuples of the innermost dimension; each
/// block gives one row in it.
#[derive(Clone, Debug)]
pub(super) struct BlocksWalk<'a> {
    blocks: &'a [Block],
    /// The blocks that are left in this batch.
    rest: slice::Iter<'a, Block>,
    dims: &'a Dims,
    group: NonZeroU64,
    /// `true` if a batch may have more than one tuple.
    columns: bool,
    /// `true` if the blocks are records.
    records: bool,
    /// The first tuple of the batch.
    digits: Digits,
    /// The number of its tuples.
    times: u64,
    /// Position in the access where the batch starts. If the access starts within the batch, the
    /// position is negative and wraps.
    base: u64,
    /// The number of bytes of the next block that are not part of the access.
    skip: u64,
    /// Bytes of the access.
    end: u64,
}

impl<'a> BlocksWalk<'a> {
    pub(super) fn new(
        blocks: &'a [Block],
        dims: &'a Dims,
        group: NonZeroU64,
        (columns, records): (bool, bool),
        found: &Found<'a>,
        end: u64,
    ) -> Self {
        // The first batch is the tuple of the offset alone, from the block of the offset on.
        let index = blocks
            .len()
            .saturating_sub(found.rest.len())
            .saturating_sub(1);
        let pos = found.block.start().wrapping_add(found.pos);
        let mut walk = Self {
            blocks,
            rest: blocks.get(index..).unwrap_or_default().iter(),
            dims,
            group,
            columns,
            records,
            digits: found.digits,
            times: 1,
            base: 0u64.wrapping_sub(pos),
            skip: found.pos,
            end,
        };
        if pos == 0 {
            walk.times = 0;
            walk.rest = [].iter();
        }
        walk
    }

    /// Returns the next row.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Row> {
        let block = match self.rest.next() {
            Some(block) => block,
            None => {
                self.next_batch(self.columns);
                self.rest.next()?
            }
        };
        step();
        let at = self
            .base
            .wrapping_add(block.start())
            .wrapping_add(self.skip);
        let left = self.end.checked_sub(at).filter(|left| *left != 0)?;
        let piece = block.piece(self.dims, &self.digits).skip(self.skip);
        self.skip = 0;
        Some(Row {
            leaf: piece.leaf,
            addr: piece.addr,
            len: piece.len.min(left),
            stride: block.inner_stride(self.dims),
            count: self.times,
            at,
            step: self.group.get(),
        })
    }

    /// Advances to the next batch: a group or a part of one, or all whole groups that are left if
    /// there may be `many`.
    fn next_batch(&mut self, many: bool) {
        let bytes = self.group.get().wrapping_mul(self.times);
        self.base = self.base.wrapping_add(bytes);
        if self.times != 0 {
            self.dims.advance(&mut self.digits, self.times);
        }
        self.times = 1;
        if many {
            let [index, ..] = self.digits;
            let groups = self.end.saturating_sub(self.base) / self.group;
            self.times = groups.clamp(1, self.dims.inner().saturating_sub(index));
        }
        self.rest = self.blocks.iter();
    }
}

impl Iterator for BlocksWalk<'_> {
    type Item = Row;

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        self.next_row()
    }
}

impl<'a> Cursor<'a> for BlocksWalk<'a> {
    #[inline(always)]
    fn next_pieces(&mut self) -> Option<Pieces<'a>> {
        if !self.records || !self.rest.as_slice().is_empty() {
            return self.next_row().map(Pieces::Row);
        }
        self.next_batch(true);
        if self.end.saturating_sub(self.base) < self.group.get() {
            return self.next_row().map(Pieces::Row);
        }
        step();
        self.rest = [].iter();
        let first = self.blocks.first()?;
        let piece = first.piece(self.dims, &self.digits);
        Some(Pieces::Records(Records {
            leaf: piece.leaf,
            len: piece.len,
            at: self.base,
            blocks: self.blocks,
            offset: piece.addr.wrapping_sub(first.addr()),
            far: first.inner_stride(self.dims),
            count: self.times,
        }))
    }
}
