// SPDX-License-Identifier: GPL-2.0

//! Strided blocks, interleaved.

use core::borrow::{Borrow, BorrowMut};
use core::mem::size_of;
use core::num::NonZeroU64;
use core::ops::DerefMut;

use super::block::{Block, BlocksWalk};
use super::dims::{Dims, MAX_DIMS};
use super::extent::{Extent, Reach};
use super::grid::{Grid, GridWalk};
use super::pattern::Pattern;
use super::rows::Walk;
use super::run::{Error, Part, Row, Run};

/// The method that finds the bytes of an interleaved layout.
#[derive(Clone, Debug)]
enum Method {
    /// The blocks form one piece, which is repeated.
    Grid(Grid),
    /// The blocks are visited one by one.
    Blocks {
        /// `true` if they are [records](Block::are_records).
        is_records: bool,
    },
}

/// The parts of an interleaved layout besides its blocks.
#[derive(Clone, Debug)]
pub struct Shape {
    dims: Dims,
    /// Bytes of one index tuple.
    group: NonZeroU64,
    /// Bytes of all index tuples.
    length: u64,
    method: Method,
}

// The kernel module allocates a shape separately; this is a common allocation size.
const _: () = assert!(size_of::<Shape>() <= 256);

impl Shape {
    /// The shape of no layout, for [`Interleaved::in_place`](super::Interleaved::in_place).
    pub const UNUSED: Self = Self {
        dims: Dims::UNUSED,
        group: NonZeroU64::MIN,
        length: 0,
        method: Method::Blocks { is_records: false },
    };

    /// Makes the shape of `blocks`, and places them. The errors are those of
    /// [`Interleaved::new`](super::Interleaved::new).
    #[inline]
    fn make(&mut self, repeat_count: &[u64], blocks: &mut [Block]) -> Result<(), Error> {
        let dims = &mut self.dims;
        dims.set(repeat_count)?;
        if let Some(at) = blocks.iter().position(|block| block.bytes_count() == 0) {
            return Err(Error::Zero(Part::entry(at)));
        }
        let too_long = Error::Overflow(Part::All);
        let mut group = 0u64;
        for (at, block) in blocks.iter_mut().enumerate() {
            block.place(group, dims);
            let extent = block.extent(dims);
            extent.ok_or_else(|| Error::Overflow(Part::entry(at)))?;
            group = group.checked_add(block.bytes_count()).ok_or(too_long)?;
        }
        // Blocks have bytes, so only a layout without blocks has a group of zero bytes.
        self.group = NonZeroU64::new(group).ok_or(Error::Zero(Part::All))?;
        self.length = dims
            .product()
            .and_then(|product| product.checked_mul(group))
            .ok_or(too_long)?;
        match Self::piece(&self.dims, blocks, group) {
            Some((piece, stride)) => {
                let counts = self.dims.counts().iter().copied();
                let strides = self.dims.inner_first(stride).copied();
                self.method = Method::Grid(Grid::new(piece, self.group, counts.zip(strides)));
            }
            None => {
                let is_records = Block::are_records(blocks, &self.dims);
                self.method = Method::Blocks { is_records };
            }
        }
        Ok(())
    }

    /// Returns the piece that the blocks form at the first index tuple, and its strides. Returns
    /// [`None`] unless they form one piece.
    fn piece<'a>(
        dims: &Dims,
        blocks: &'a [Block],
        group: u64,
    ) -> Option<(Run, &'a [i64; MAX_DIMS])> {
        let contiguous = blocks
            .iter()
            .zip(blocks.iter().skip(1))
            .all(|(block, next)| block.is_continued_by(next, dims));
        let first = blocks.first().filter(|_| contiguous)?;
        let piece = Run {
            leaf: first.leaf(),
            addr: first.addr(),
            len: group,
        };
        Some((piece, first.stride()))
    }
}

/// Strided blocks, interleaved.
///
/// Dimension 0 is the outermost. Each index tuple gives the bytes of block 0, then those of block
/// 1, and so on. A block starts at its address plus the sum of `index[d] * stride[d]` over all
/// dimensions.
///
/// `S` stores the blocks, `P` the shape: see [`Self::in_place`].
#[derive(Debug)]
pub struct Interleaved<S, P = Shape> {
    blocks: S,
    shape: P,
}

impl<S: DerefMut<Target = [Block]>> Interleaved<S> {
    /// Makes a layout that repeats `blocks`.
    ///
    /// `repeat_count` has one count for each dimension, outermost first.
    ///
    /// # Errors
    ///
    /// - [`Error::Zero`] if there are no dimensions or no blocks, or if a
    ///   count or byte count is zero.
    /// - [`Error::TooManyDims`] if there are more than [`MAX_DIMS`].
    /// - [`Error::Overflow`] if the sum of the bytes, or the address of a byte, does not fit 64
    ///   bits.
    #[inline]
    pub fn new(repeat_count: &[u64], blocks: S) -> Result<Self, Error> {
        Self::in_place(repeat_count, blocks, Shape::UNUSED)
    }
}

impl<S: DerefMut<Target = [Block]>, P: BorrowMut<Shape>> Interleaved<S, P> {
    /// Makes a layout that repeats `blocks`, as [`Interleaved::new`] does. Its shape takes the
    /// place of `shape`. That can be a box, because the shape is the large part of this type.
    ///
    /// # Errors
    ///
    /// The errors of [`Interleaved::new`].
    #[inline]
    pub fn in_place(repeat_count: &[u64], mut blocks: S, mut shape: P) -> Result<Self, Error> {
        shape.borrow_mut().make(repeat_count, &mut blocks)?;
        Ok(Self { blocks, shape })
    }
}

impl<S, P> Interleaved<S, P> {
    /// Returns the storage of the blocks and the shape.
    pub fn into_parts(self) -> (S, P) {
        (self.blocks, self.shape)
    }

    /// Returns the storage of the blocks.
    pub fn storage(&self) -> &S {
        &self.blocks
    }
}

impl<S: DerefMut<Target = [Block]>, P: Borrow<Shape>> Interleaved<S, P> {
    /// Returns the number of bytes; never zero.
    pub fn length(&self) -> u64 {
        self.shape.borrow().length
    }

    fn dims(&self) -> &Dims {
        &self.shape.borrow().dims
    }

    /// Returns the number of repetitions in each dimension, outermost first.
    pub fn repeat_counts(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.dims().counts().iter().rev().map(|count| count.get())
    }

    /// Returns the blocks as they were given. Strides of dimensions that the layout lacks are zero.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the extent of block `index`, if there is one.
    pub(super) fn extent(&self, index: usize) -> Option<Extent> {
        self.blocks.get(index)?.extent(self.dims())
    }

    /// Returns the pieces of block `index` and their extent, if there is one. Blocks that form one
    /// piece are block 0.
    pub(super) fn reach(&self, index: usize) -> Option<Reach> {
        let shape = self.shape.borrow();
        if let Method::Grid(grid) = &shape.method {
            return if index == 0 { grid.reach() } else { None };
        }
        let block = self.blocks.get(index)?;
        Some(Reach {
            extent: block.extent(&shape.dims)?,
            count: self.repeat_counts().fold(1, u64::saturating_mul),
        })
    }

    /// Returns the layout as a pattern.
    pub(super) fn pattern(&self) -> Pattern<'_> {
        let Shape {
            dims,
            group,
            method,
            ..
        } = self.shape.borrow();
        match method {
            Method::Grid(grid) => grid.pattern(),
            Method::Blocks { .. } => {
                let mut counts = [1; MAX_DIMS];
                for (own, count) in counts.iter_mut().zip(dims.counts()) {
                    *own = count.get();
                }
                Pattern::of_blocks(group.get(), counts, (&self.blocks, dims.used()))
            }
        }
    }

    /// Returns the only row of an access, see [`Layout::only_row`](super::Layout::only_row).
    #[inline]
    pub(super) fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        match &self.shape.borrow().method {
            Method::Grid(grid) => grid.only_row(offset, len),
            Method::Blocks { .. } => None,
        }
    }

    /// Returns a cursor at the piece of `offset`, and the position in the piece.
    pub(super) fn seek(&self, offset: u64) -> Option<(Walk<'_>, u64)> {
        let shape = self.shape.borrow();
        match &shape.method {
            Method::Grid(grid) => {
                let (walk, pos) = GridWalk::seek(grid, offset);
                Some((Walk::Grid(walk), pos))
            }
            Method::Blocks { .. } => {
                let (walk, pos) = self.seek_block(offset)?;
                Some((Walk::Blocks(walk), pos))
            }
        }
    }

    /// Returns the repetition of a block that `offset` is in, and the position in it.
    pub(super) fn piece(&self, offset: u64) -> Option<(Run, u64)> {
        let (walk, pos) = self.seek_block(offset)?;
        Some((walk.piece()?, pos))
    }

    fn seek_block(&self, offset: u64) -> Option<(BlocksWalk<'_>, u64)> {
        let shape = self.shape.borrow();
        let is_records = matches!(shape.method, Method::Blocks { is_records: true });
        BlocksWalk::seek(&self.blocks, &shape.dims, (shape.group, is_records), offset)
    }
}
