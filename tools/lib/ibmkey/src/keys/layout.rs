// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Builders of layouts.

use core::marker::PhantomData;

use super::Slice;
use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    sys, //
};

/// Blocks that repeat with a stride in each of up to 8 dimensions.
///
/// For each tuple of indices, with the last dimension changing fastest, the key describes the first
/// block, then the second one, and so on.
#[derive(Clone, Debug)]
pub struct Interleaved<'r> {
    pub(super) repeat: Vec<u64>,
    pub(super) blocks: Vec<sys::ib_uverbs_mkey_block>,
    /// The sentence for [`last_error`](super::last_error) about the first wrong block. With it, a
    /// bind fails.
    error: Option<String>,
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

    /// Adds a block. `slice` is the block at index 0 of every dimension. `strides[d]` is the number
    /// of bytes from one start to the next in dimension d; it may be negative or zero.
    ///
    /// [`Key::bind`](super::Key::bind) returns `EINVAL` if the number of strides is not the number
    /// of dimensions.
    #[must_use]
    pub fn block(mut self, slice: Slice<'r>, strides: &[i64]) -> Self {
        let mut stride = [0; sys::IBMKEY_MAX_DIMS as usize];

        match stride.get_mut(..strides.len()) {
            Some(used) if strides.len() == self.repeat.len() => used.copy_from_slice(strides),
            _ => {
                self.error = self
                    .error
                    .take()
                    .or_else(|| Some(self.wrong(strides.len())))
            }
        }
        self.blocks.push(sys::ib_uverbs_mkey_block {
            addr: slice.address,
            bytes_count: slice.length,
            lkey: slice.lkey,
            comp_mask: 0,
            stride,
        });
        self
    }

    /// Says why the next block cannot have this number of strides.
    fn wrong(&self, strides: usize) -> String {
        let (dims, most) = (self.repeat.len(), sys::IBMKEY_MAX_DIMS as usize);

        if dims > most {
            return format!("repeat[{most}] is one dimension too many: {dims} of at most {most}");
        }
        format!(
            "blocks[{}] has {strides} strides in a layout of {dims} dimensions",
            self.blocks.len()
        )
    }

    pub(super) fn check(&self) -> Result {
        self.error
            .as_ref()
            .map_or(Ok(()), |error| Err(say(Errno::EINVAL, error)))
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
    /// Describes `block` bytes at `index * unit` of `table` for each of the indices, in their
    /// order.
    pub const fn new(table: Slice<'r>, unit: u64, block: u64, indices: &'i [u32]) -> Self {
        Self {
            table,
            unit,
            block,
            indices,
        }
    }

    /// Returns `ERANGE` if a block reaches outside the table, and `EOVERFLOW` if its end does not
    /// fit 64 bits.
    pub(super) fn check(&self) -> Result {
        let end = |index: u32| {
            u64::from(index)
                .checked_mul(self.unit)
                .and_then(|at| at.checked_add(self.block))
        };
        let inside = |index| end(index).is_some_and(|end| end <= self.table.length);
        let wrong = self
            .indices
            .iter()
            .enumerate()
            .find(|(_, index)| !inside(**index));
        let Some((at, index)) = wrong else {
            return Ok(());
        };

        let words = format!(
            "indices[{at}] is {index}: the block reaches outside the table of {} bytes",
            self.table.length
        );
        let errno = end(*index).map_or(Errno::EOVERFLOW, |_| Errno::ERANGE);
        Err(say(errno, &words))
    }
}
