// SPDX-License-Identifier: GPL-2.0

//! The levels of a nest that an access is in.

use crate::{
    kernel_ext::error::eloop,
    layout::{Block, Entry, Order, Row, RowsOf, Shape},
    region::{
        binding::{Binding, MAX_LEVELS},
        indices::KIndexed,
    },
};
use core::array;
use kernel::prelude::*;

/// The rows of one level of a nest.
type KeyRows<'a> = RowsOf<'a, KVVec<Entry>, KVVec<Block>, KBox<Shape>, KIndexed>;

/// The rest of an access in one key of a nest.
struct KeyLevel<'a> {
    binding: &'a Binding,
    /// The pieces that are left, unless the level has a cursor.
    outer: Row,
    has_cursor: bool,
}

/// The levels of a nest that an access is in, outermost first.
///
/// A level gets a cursor only if its next row cannot be found without a cursor, because making a
/// cursor takes longer than finding a row.
pub(super) struct Levels<'a> {
    levels: [Option<KeyLevel<'a>>; MAX_LEVELS - 1],
    cursors: [Option<KeyRows<'a>>; MAX_LEVELS - 1],
    used: usize,
}

impl<'a> Levels<'a> {
    /// Makes an empty set of levels, by `from_fn`, which writes one word for each level. A
    /// constant array would be copied as a whole.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            levels: array::from_fn(|_| None),
            cursors: array::from_fn(|_| None),
            used: 0,
        }
    }

    /// Adds the level of `binding` with the pieces `outer`, which are in that key.
    ///
    /// # Errors
    ///
    /// `ELOOP` beyond [`MAX_LEVELS`]. Binds refuse a nest with so many levels.
    #[inline(always)]
    pub(super) fn push(&mut self, binding: &'a Binding, outer: Row) -> Result {
        let level = self.levels.get_mut(self.used).ok_or_else(eloop)?;
        *level = Some(KeyLevel {
            binding,
            outer,
            has_cursor: false,
        });
        self.used = self.used.saturating_add(1);
        Ok(())
    }

    /// Returns the next row of the innermost level, and its binding. Removes levels without rows.
    #[inline(always)]
    pub(super) fn next(&mut self, order: Order) -> Result<Option<(&'a Binding, Row)>> {
        while let Some(at) = self.used.checked_sub(1) {
            let level = self.levels.get_mut(at).and_then(Option::as_mut);
            let (level, cursor) = level.zip(self.cursors.get_mut(at)).ok_or(EFAULT)?;
            let binding = level.binding;
            let row = if level.has_cursor {
                cursor.as_mut().and_then(Iterator::next)
            } else {
                let layout = binding.walked();
                match layout.take_row(&mut level.outer) {
                    None if level.outer.count != 0 => {
                        level.has_cursor = true;
                        cursor.insert(layout.rows_of(level.outer, order)?).next()
                    }
                    row => {
                        if level.outer.count == 0 {
                            self.used = at;
                        }
                        row
                    }
                }
            };
            match row {
                Some(row) => return Ok(Some((binding, row))),
                None => self.used = at,
            }
        }
        Ok(None)
    }
}
