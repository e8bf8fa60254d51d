// SPDX-License-Identifier: GPL-2.0

//! The blocks of an interleaved layout, and its other parts.

use core::mem::size_of;
use core::num::NonZeroU64;

use super::blocks;
use super::dims::{Digits, Dims};
use super::grid::Grid;
use super::{Error, Extent, Run, MAX_DIMS};

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
    pub(super) dims: Dims,
    /// Bytes of one index tuple.
    pub(super) group: NonZeroU64,
    /// Bytes of all index tuples.
    pub(super) length: u64,
    pub(super) method: Method,
}

// The kernel module allocates a shape separately; this is a common allocation size.
const _: () = assert!(size_of::<Shape>() <= 256);

impl Shape {
    /// The shape of no layout, for [`Interleaved::in_place`](super::Interleaved::in_place).
    pub const UNUSED: Self = Self {
        dims: Dims::UNUSED,
        group: NonZeroU64::MIN,
        length: 0,
        method: Method::Blocks {
            columns: false,
            records: false,
        },
    };

    /// Makes the shape of `blocks`, and places them. The errors are those of
    /// [`Interleaved::new`](super::Interleaved::new).
    #[inline]
    pub(super) fn make(&mut self, repeat_count: &[u64], blocks: &mut [Block]) -> Result<(), Error> {
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
