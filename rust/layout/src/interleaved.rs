// SPDX-License-Identifier: GPL-2.0

//! Strided blocks, interleaved.

use core::borrow::{Borrow, BorrowMut};
use core::mem::size_of;
use core::num::NonZeroU64;
use core::ops::DerefMut;

use super::blocks::{self, BlocksWalk};
use super::dims::{Digits, Dims};
use super::grid::Grid;
use super::rows::{check_range, Chain, IntoRows, Place, Rows, Walker};
use super::work::{Granularity, Repeated};
use super::{Error, Extent, Order, Pieces, Reach, Row, Run, Runs, MAX_DIMS};

/// A repeated block of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    leaf: u32,
    pub(super) addr: u64,
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
    #[inline]
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

    /// Returns the stride of the innermost dimension.
    #[inline]
    pub(super) fn inner_stride(&self, dims: &Dims) -> i64 {
        dims.inner_first(&self.stride).next().copied().unwrap_or(0)
    }

    /// Returns the offset of the first byte among those of one index tuple.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn extent(&self, dims: &Dims) -> Result<Extent, Error> {
        let mut extent = Extent::new(self.leaf, self.addr, self.bytes_count)?;
        for (stride, count) in dims.inner_first(&self.stride).zip(dims.counts()) {
            extent = extent.repeat(count.get(), *stride)?;
        }
        Ok(extent)
    }

    /// Returns `true` if `next` always begins where this block ends.
    fn is_continued_by(&self, next: &Self, dims: &Dims) -> bool {
        let strides = dims.inner_first(&self.stride);
        let moves_alike = strides
            .zip(dims.inner_first(&next.stride))
            .zip(dims.counts())
            .all(|((a, b), count)| a == b || count.get() == 1);
        self.leaf == next.leaf
            && self.addr.checked_add(self.bytes_count) == Some(next.addr)
            && moves_alike
    }
}

/// The method that finds the bytes of an interleaved layout.
#[derive(Clone, Debug)]
pub(super) enum Method {
    /// The blocks form one piece, which is repeated.
    Grid(Grid),
    /// The blocks are visited one by one.
    Blocks {
        /// `true` if a writer may take all pieces of a block in the innermost dimension at once.
        columns: bool,
        /// `true` if the blocks are records, see [`blocks::are_records`].
        records: bool,
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
    pub(super) method: Method,
}

// The kernel module allocates a shape separately; this is a common allocation size.
const _: () = assert!(size_of::<Shape>() <= 256);

impl Shape {
    /// The shape of no layout, for [`Interleaved::in_place`].
    pub const UNUSED: Self = Self {
        dims: Dims::UNUSED,
        group: NonZeroU64::MIN,
        length: 0,
        method: Method::Blocks {
            columns: false,
            records: false,
        },
    };

    /// Makes the shape of `blocks`, and places them. The errors are those of [`Interleaved::new`].
    #[inline]
    fn make(&mut self, repeat_count: &[u64], blocks: &mut [Block]) -> Result<(), Error> {
        let dims = &mut self.dims;
        dims.set(repeat_count)?;
        if blocks.iter().any(|block| block.bytes_count == 0) {
            return Err(Error::Zero);
        }
        let mut group = 0u64;
        for block in blocks.iter_mut() {
            for unused in block.stride.iter_mut().skip(dims.used()) {
                *unused = 0;
            }
            block.extent(dims)?;
            block.start = group;
            group = group
                .checked_add(block.bytes_count)
                .ok_or(Error::Overflow)?;
        }
        // Blocks have bytes, so only a layout without blocks has a group of zero bytes.
        self.group = NonZeroU64::new(group).ok_or(Error::Zero)?;
        self.length = dims
            .product()
            .and_then(|product| product.checked_mul(group))
            .ok_or(Error::Overflow)?;
        match Self::piece(&self.dims, blocks, group) {
            Some((piece, stride)) => {
                let counts = self.dims.counts().iter().copied();
                let strides = self.dims.inner_first(stride).copied();
                if let Method::Blocks { .. } = &self.method {
                    self.method = Method::Grid(Grid::UNUSED);
                }
                if let Method::Grid(grid) = &mut self.method {
                    grid.set(piece, self.group, counts.zip(strides));
                }
            }
            None => {
                self.method = Method::Blocks {
                    columns: blocks::keep_apart(blocks, &self.dims),
                    records: blocks::are_records(blocks, &self.dims),
                }
            }
        }
        Ok(())
    }

    /// Returns the piece that the blocks form at the first index tuple, and its strides. Returns
    /// [`None`] unless they form one piece.
    #[inline(always)]
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
            leaf: first.leaf,
            addr: first.addr,
            len: group,
        };
        Some((piece, &first.stride))
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
        let strides = shape.dims.inner_first(&block.stride);
        let addrs = strides.fold(block.addr, |all, stride| all | *stride as u64);
        Some(Reach {
            extent: block.extent(&shape.dims).ok()?,
            len: block.bytes_count,
            count: self.repeat_counts().fold(1, u64::saturating_mul),
            granularity: Granularity::new(block.bytes_count, addrs),
        })
    }

    /// Returns the pieces, if they are one piece that is repeated.
    pub(super) fn repeated(&self) -> Option<Repeated> {
        match &self.shape.borrow().method {
            Method::Grid(grid) => Some(grid.repeated()),
            Method::Blocks { .. } => None,
        }
    }

    /// Returns the number of dimensions that a search divides by.
    pub(super) fn searched_dims(&self) -> usize {
        match &self.shape.borrow().method {
            Method::Grid(grid) => grid.dims(),
            Method::Blocks { .. } => self.dims().used(),
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

    /// Returns the place of `offset`.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        let shape = self.shape.borrow();
        if let Method::Grid(grid) = &shape.method {
            return Some(grid.place(offset));
        }
        Some(self.seek(offset)?.place(&shape.dims, shape.group))
    }

    /// Returns the rest of the piece that contains `offset`, unless the blocks are visited one by
    /// one.
    #[inline(always)]
    pub(super) fn rest(&self, offset: u64) -> Option<Run> {
        match &self.shape.borrow().method {
            Method::Grid(grid) => Some(grid.rest(offset)),
            Method::Blocks { .. } => None,
        }
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
