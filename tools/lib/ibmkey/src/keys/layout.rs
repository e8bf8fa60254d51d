// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Builders of layouts.

use core::marker::PhantomData;

use super::Slice;
use crate::{
    errno::{
        Errno,
        Result, //
    },
    sys, //
};

/// Blocks that repeat with a stride in each of up to 8 dimensions.
///
/// For each tuple of indices, with the last dimension changing fastest, the key describes the first
/// block, then the second one, and so on.
#[derive(Clone, Debug)]
pub struct Interleaved<'r> {
    pub(super) repeat: Vec<u64>,
    pub(super) blocks: Vec<sys::ibmkey_block>,
    /// The first error of a builder's call; binding returns it.
    error: Option<Errno>,
    owner: PhantomData<Slice<'r>>,
}

impl<'r> Interleaved<'r> {
    /// Begins a layout with `repeat[d]` repetitions in dimension d. Dimension 0 is the outermost.
    pub fn new(repeat: &[u64]) -> Self {
        Self {
            repeat: repeat.to_vec(),
            blocks: Vec::new(),
            error: None,
            owner: PhantomData,
        }
    }

    /// Adds a block. `slice` is the block at index 0 of every dimension, and `strides[d]` the bytes
    /// from one start to the next in dimension d; they may be negative or zero.
    ///
    /// [`Key::bind`](super::Key::bind) returns `EINVAL` if there are not as many strides as
    /// dimensions.
    #[must_use]
    pub fn block(mut self, slice: Slice<'r>, strides: &[i64]) -> Self {
        let mut stride = [0; sys::IBMKEY_MAX_DIMS as usize];

        match stride.get_mut(..strides.len()) {
            Some(used) if strides.len() == self.repeat.len() => used.copy_from_slice(strides),
            _ => self.error = self.error.or(Some(Errno::EINVAL)),
        }
        self.blocks.push(sys::ibmkey_block {
            addr: slice.address,
            bytes_count: slice.length,
            lkey: slice.lkey,
            comp_mask: 0,
            stride,
        });
        self
    }

    pub(super) fn check(&self) -> Result {
        self.error.map_or(Ok(()), Err)
    }
}

/// Blocks of one size at the places that indices give.
#[derive(Clone, Debug)]
pub struct Indexed<'r, 'i> {
    pub(super) table: Slice<'r>,
    pub(super) unit: u64,
    pub(super) block: u64,
    pub(super) indices: &'i [u32],
}

impl<'r, 'i> Indexed<'r, 'i> {
    /// Describes `block` bytes at `index * unit` of `table` for each of the indices, in their order.
    pub const fn new(table: Slice<'r>, unit: u64, block: u64, indices: &'i [u32]) -> Self {
        Self {
            table,
            unit,
            block,
            indices,
        }
    }

    /// Returns `ERANGE` if a block reaches outside the table.
    pub(super) fn check(&self) -> Result {
        let last = self.indices.iter().max().copied().unwrap_or(0);
        let end = u64::from(last)
            .checked_mul(self.unit)
            .and_then(|at| at.checked_add(self.block))
            .ok_or(Errno::EOVERFLOW)?;

        if end > self.table.length {
            return Err(Errno::ERANGE);
        }
        Ok(())
    }
}
