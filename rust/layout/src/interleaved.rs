// SPDX-License-Identifier: GPL-2.0

//! Strided blocks, interleaved.

use core::borrow::{Borrow, BorrowMut};
use core::ops::DerefMut;

use super::blocks::{self, BlocksWalk};
use super::compose::Pattern;
use super::dims::Dims;
use super::rows::{check_range, Chain, IntoRows, Rows, Walker};
use super::shape::Method;
use super::{Block, Error, Extent, Order, Pieces, Reach, Row, Run, Runs, Shape, MAX_DIMS};

/// Strided blocks, interleaved.
///
/// Dimension 0 is the outermost. Each index tuple gives the bytes of block 0, then those of block
/// 1, and so on. A block starts at its address plus the sum of `index[d] * stride[d]` over all
/// dimensions.
///
/// `S` stores the blocks, `P` the shape: see [`Self::in_place`].
#[derive(Debug)]
pub struct Interleaved<S, P = Shape> {
    pub(super) blocks: S,
    pub(super) shape: P,
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
    /// - [`Error::TooManyDims`] if there are more than [`MAX_DIMS`](super::MAX_DIMS).
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
    /// Those of [`Interleaved::new`].
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
    pub fn extent(&self, index: usize) -> Option<Extent> {
        self.blocks.get(index)?.extent(self.dims()).ok()
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
            extent: block.extent(&shape.dims).ok()?,
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

    /// See [`Layout::rows`](super::Layout::rows).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::rows`](super::Layout::rows).
    #[inline(always)]
    pub fn rows(&self, offset: u64, len: u64, order: Order) -> Result<Rows<'_>, Error> {
        let shape = self.shape.borrow();
        check_range(offset, len, shape.length)?;
        if len == 0 {
            return Ok(Rows::EMPTY);
        }
        self.walk(offset, len, order, IntoRows).ok_or(Error::Range)
    }

    /// Makes the cursor over a range, which must not be empty and must be within the layout.
    /// Returns the result of `walker`.
    #[inline(always)]
    pub(super) fn walk<'a, A: Walker<'a>>(
        &'a self,
        offset: u64,
        len: u64,
        order: Order,
        walker: A,
    ) -> Option<A::Output> {
        let shape = self.shape.borrow();
        let (columns, records) = match &shape.method {
            Method::Grid(grid) => return Some(walker.walk(Chain::new(len, grid.seek(offset)))),
            Method::Blocks { columns, records } => (*columns, *records),
        };
        let columns = match order {
            Order::Any => true,
            Order::Leaf => columns,
            Order::Strict => false,
        };
        let found = self.seek(offset)?;
        let (dims, group) = (&shape.dims, shape.group);
        let ways = (columns, records);
        let walk = BlocksWalk::new(&self.blocks, dims, group, ways, &found, len);
        Some(walker.walk(walk))
    }

    /// See [`Layout::only_row`](super::Layout::only_row).
    #[inline(always)]
    pub fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        check_range(offset, len, self.length()).ok()?;
        match &self.shape.borrow().method {
            Method::Grid(grid) if len != 0 => grid.only_row(offset, len),
            _ => None,
        }
    }

    /// See [`Layout::only_pieces`](super::Layout::only_pieces). The range must be within the
    /// layout.
    #[inline(always)]
    pub(super) fn only_pieces(&self, offset: u64, len: u64) -> Option<Pieces<'_>> {
        let shape = self.shape.borrow();
        match &shape.method {
            Method::Grid(grid) => match grid.only_plane(offset, len) {
                Some(plane) => Some(Pieces::Plane(plane)),
                None => grid.only_outer_row(offset, len).map(Pieces::Row),
            },
            Method::Blocks { records: true, .. } if shape.dims.used() == 1 => {
                match blocks::whole(offset, len, shape.group) {
                    Some(whole) => {
                        blocks::only_records(&self.blocks, &shape.dims, whole).map(Pieces::Records)
                    }
                    None => self.only_piece(offset, len),
                }
            }
            Method::Blocks { .. } => self.only_piece(offset, len),
        }
    }

    /// Returns the part of one block that covers exactly `len` bytes from `offset` on, if there is
    /// one. The range must be within the layout.
    fn only_piece(&self, offset: u64, len: u64) -> Option<Pieces<'_>> {
        // A search finds nothing if no block is that long.
        if len > self.shape.borrow().group.get() {
            return None;
        }
        let found = self.seek(offset)?;
        let piece = found.block.piece(self.dims(), &found.digits);
        let part = piece.part(found.pos, len).ok()?;
        Some(Pieces::Row(Row::of(part.leaf, part.addr, part.len)))
    }

    /// See [`Layout::runs`](super::Layout::runs).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::runs`](super::Layout::runs).
    pub fn runs(&self, offset: u64, len: u64) -> Result<Runs<'_>, Error> {
        Ok(Runs::new(len, self.rows(offset, len, Order::Strict)?))
    }

    /// See [`Layout::resolve`](super::Layout::resolve).
    ///
    /// # Errors
    ///
    /// Those of [`Layout::resolve`](super::Layout::resolve).
    pub fn resolve(&self, offset: u64, len: u64) -> Result<Run, Error> {
        check_range(offset, len, self.length())?;
        let found = self.seek(offset).ok_or(Error::Range)?;
        found
            .block
            .piece(self.dims(), &found.digits)
            .part(found.pos, len)
    }

    fn seek(&self, offset: u64) -> Option<blocks::Found<'_>> {
        let Shape { dims, group, .. } = self.shape.borrow();
        blocks::seek(&self.blocks, dims, *group, offset)
    }
}
