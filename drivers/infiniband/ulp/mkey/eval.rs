// SPDX-License-Identifier: GPL-2.0

//! The evaluator: accesses through a binding, to keys and to device memory.
//!
//! An access passes handler → region → layout → leaf → bytes. The evaluator runs on the data path.
//! It allocates nothing and takes no lock, except for ODP. A row is a series of pieces of one size
//! at one distance (`rust/layout/src/row.rs`). The evaluator looks a leaf up once for successive
//! rows in that leaf. It computes the first piece of an access, without a walk over the pieces
//! before that one.

mod copy;
mod levels;
mod memory;

use self::levels::Levels;
use crate::{
    backend::{Backend, BaseMr, Hw, Payload},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{mr::Right, Access},
        sched,
    },
    layout::{Order, Row, Rows, Run},
    region::binding::{Binding, KLayout, Leaf, LeafPlace},
};
use core::ptr;
use kernel::{ffi::c_int, prelude::*};

/// The MR of a leaf: one of the driver's MRs.
type LeafMr = <Hw as Backend>::Base;

/// An access to a nest: to a key over keys, through all its levels.
struct NestAccess<'b, O> {
    order: Order,
    write: bool,
    /// Opens the MR of a leaf.
    open: &'b O,
}

/// The last leaf of memory that an access through a nest has reached, with the result of `open` for
/// that leaf.
///
/// Rows of a nest come from several levels. Successive rows in one leaf share its check and its
/// mapped page, whichever level they come from.
struct OpenLeaf<'a, T>(Option<(&'a Leaf, T)>);

impl<'a, T> OpenLeaf<'a, T> {
    /// Returns the result of `open` for `leaf`. If `leaf` is not the last leaf, first drops the
    /// result for the last leaf and runs `check`.
    ///
    /// # Errors
    ///
    /// Those of `check`.
    #[inline(always)]
    fn get(
        &mut self,
        leaf: &'a Leaf,
        check: impl FnOnce() -> Result,
        open: impl FnOnce() -> T,
    ) -> Result<&mut T> {
        if !matches!(&self.0, Some((last, _)) if ptr::eq(*last, leaf)) {
            self.0 = None;
            check()?;
        }
        Ok(&mut self.0.get_or_insert_with(|| (leaf, open())).1)
    }
}

/// Visits `row` and the rows of `rows` that are in the same leaf. Returns the first row of another
/// leaf.
#[inline(always)]
fn visit_leaf<T>(
    mut row: Row,
    rows: &mut impl Iterator<Item = Row>,
    delta: u64,
    opened: &mut T,
    visit: &mut impl FnMut(&mut T, Row) -> Result,
) -> Result<Option<Row>> {
    let leaf = row.leaf;
    loop {
        row.addr = row.addr.wrapping_add(delta);
        visit(opened, row)?;
        match rows.next() {
            Some(next) if next.leaf == leaf => row = next,
            next => return Ok(next),
        }
    }
}

impl Leaf {
    /// Copies the bytes of the leaf from address `addr` on, for a reader of this node. `pd` is the
    /// protection domain of the reader. The caller keeps the leaf pinned.
    ///
    /// # Errors
    ///
    /// `ERANGE` outside of the leaf, those of [`BaseMr::allows`] and of [`Binding::copy`].
    pub(crate) fn read(&self, pd: usize, addr: u64, to: &mut [u8]) -> Result {
        let len = to.len() as u64;
        if len > self.len || addr.wrapping_sub(self.start) > self.len - len {
            return Err(ERANGE);
        }
        let payload = Payload::reading(to)?;
        match &self.place {
            LeafPlace::Memory {
                base,
                delta,
                mutable,
            } => {
                if *mutable {
                    base.allows(pd, self.lkey, self.start, false)?;
                }
                base.copy_row(Row::of(0, addr.wrapping_add(*delta), len), payload)
            }
            LeafPlace::Key(binding) => {
                binding.copy(addr.wrapping_sub(self.start), payload, Access::empty())
            }
        }
    }
}

impl Binding {
    /// Checks that the access flags of the binding include `needed`.
    ///
    /// # Errors
    ///
    /// `EACCES` if one is missing.
    #[inline]
    fn allows(&self, needed: Access) -> Result {
        if !self.access.contains_all(needed) {
            return Err(EACCES);
        }
        Ok(())
    }

    /// Returns a leaf, if its MR still allows the access.
    ///
    /// # Errors
    ///
    /// Those of [`BaseMr::allows`]; `EFAULT` for a leaf that does not exist.
    #[inline(always)]
    fn leaf(&self, index: u32, write: bool) -> Result<&Leaf> {
        let leaf = self.leaves.get(index as usize).ok_or(EFAULT)?;
        self.check_leaf(leaf, write)?;
        Ok(leaf)
    }

    /// Checks that the MR of one of the leaves still allows the access.
    ///
    /// # Errors
    ///
    /// Those of [`BaseMr::allows`].
    #[inline]
    fn check_leaf(&self, leaf: &Leaf, write: bool) -> Result {
        if let LeafPlace::Memory {
            base,
            mutable: true,
            ..
        } = &leaf.place
        {
            base.allows(self.pd, leaf.lkey, leaf.start, write)?;
        }
        Ok(())
    }

    /// Returns a leaf of the layout that accesses walk over, and the binding with that leaf, which
    /// checks the leaf by [`Self::check_leaf`].
    ///
    /// # Errors
    ///
    /// `EFAULT` for a leaf that does not exist.
    #[inline]
    fn walked_leaf(&self, index: u32) -> Result<(&Self, &Leaf)> {
        let (binding, index) = match self.flat() {
            None => (self, index),
            Some(flat) => {
                let (key, index) = flat.leaf(index).ok_or(EFAULT)?;
                (key.map_or(self, |key| key), index)
            }
        };
        let leaf = binding.leaves.get(index as usize).ok_or(EFAULT)?;
        Ok((binding, leaf))
    }

    /// Returns the order that the rows of an access must have.
    #[inline]
    fn order(&self, write: bool) -> Order {
        if !write {
            Order::Any
        } else if self.leaves.len() == 1 && self.depth() == 1 {
            Order::Leaf
        } else {
            // Two leaves may overlap in memory.
            Order::Strict
        }
    }

    /// Walks over `len` bytes from `offset` on. Calls `open` with the MR of successive rows in one
    /// leaf, and `visit` with the result of `open` and each of these rows. The addresses of a row
    /// are addresses of the MR.
    // Not inlined, because most accesses are one row and need no stack for the cursor.
    #[inline(never)]
    fn walk<'a, T>(
        &'a self,
        offset: u64,
        len: u64,
        write: bool,
        open: &impl Fn(&'a LeafMr) -> T,
        visit: &mut impl FnMut(&mut T, Row) -> Result,
    ) -> Result {
        let order = self.order(write);
        let mut rows = self.walked().rows(offset, len, order)?;
        let mut opened = OpenLeaf(None);
        let mut next = rows.next();
        while let Some(row) = next {
            let (owner, leaf) = self.walked_leaf(row.leaf)?;
            next = match &leaf.place {
                LeafPlace::Memory { base, delta, .. } => {
                    let check = || owner.check_leaf(leaf, write);
                    let opened = opened.get(leaf, check, || open(base))?;
                    visit_leaf(row, &mut rows, *delta, opened, visit)?
                }
                LeafPlace::Key(_) => {
                    let access = NestAccess { order, write, open };
                    self.walk_nest(row, &mut rows, &access, &mut opened, visit)?
                }
            };
        }
        Ok(())
    }

    /// Walks over `row` and the rows of `rows` whose leaves are keys. Returns the first row whose
    /// leaf is memory. Calls `open` and `visit` as [`Self::walk`] does.
    ///
    /// Most rows stay one row through all levels. A level that makes several rows of one is kept
    /// until all of them were visited.
    // Not inlined, because most accesses are to keys over memory and need no stack for the levels.
    // The levels are made once for many rows, because this takes longer than finding a row.
    #[inline(never)]
    fn walk_nest<'a, T, O: Fn(&'a LeafMr) -> T>(
        &'a self,
        row: Row,
        rows: &mut Rows<'_>,
        access: &NestAccess<'_, O>,
        opened: &mut OpenLeaf<'a, T>,
        visit: &mut impl FnMut(&mut T, Row) -> Result,
    ) -> Result<Option<Row>> {
        let &NestAccess { order, write, open } = access;
        let mut levels = Levels::new();
        let mut next = Some(row);
        'rows: loop {
            let (mut binding, mut row) = match levels.next(order)? {
                Some(found) => found,
                None => {
                    let Some(row) = next else {
                        return Ok(None);
                    };
                    if let LeafPlace::Memory { .. } = self.walked_leaf(row.leaf)?.1.place {
                        return Ok(Some(row));
                    }
                    next = rows.next();
                    (self, row)
                }
            };
            loop {
                let (owner, leaf) = binding.walked_leaf(row.leaf)?;
                let inner: &Self = match &leaf.place {
                    LeafPlace::Memory { base, delta, .. } => {
                        let check = || owner.check_leaf(leaf, write);
                        let opened = opened.get(leaf, check, || open(base))?;
                        let addr = row.addr.wrapping_add(*delta);
                        visit(opened, Row { addr, ..row })?;
                        continue 'rows;
                    }
                    LeafPlace::Key(inner) => inner,
                };
                let layout = inner.walked();
                row.check_within(layout.length())?;
                let first = layout.take_row(&mut row);
                if row.count != 0 {
                    levels.push(inner, row)?;
                }
                match first {
                    Some(first) => (binding, row) = (inner, first),
                    None => continue 'rows,
                }
            }
        }
    }

    /// Returns the MR and the address of `run`, bytes of one leaf, if the leaf is memory whose access
    /// flags cannot change.
    #[inline(always)]
    fn steady(&self, run: &Run) -> Option<(&LeafMr, u64)> {
        match &self.leaves.get(run.leaf as usize)?.place {
            LeafPlace::Memory {
                base,
                delta,
                mutable: false,
            } => Some((base, run.addr.wrapping_add(*delta))),
            _ => None,
        }
    }

    /// Returns the MR and the address of an access that cannot be split.
    // Most atomic operations are on one range of device memory, which needs no loop.
    #[inline(always)]
    fn resolve(&self, offset: u64, len: u64, needed: Right) -> Result<(&LeafMr, u64)> {
        self.allows(needed.into())?;
        let rest = match &self.layout {
            KLayout::List(list) => list.rest(offset),
            _ => None,
        };
        match rest.filter(|rest| len <= rest.len) {
            Some(rest) => self.steady(&rest),
            None => None,
        }
        .map_or_else(|| self.resolve_further(offset, len), Ok)
    }

    /// Does what [`Self::resolve`] does, after a look at the access flags.
    #[inline(never)]
    fn resolve_further(&self, offset: u64, len: u64) -> Result<(&LeafMr, u64)> {
        let (mut binding, mut at) = (self, offset);
        loop {
            let run = binding.layout.resolve(at, len)?;
            match &binding.leaf(run.leaf, true)?.place {
                LeafPlace::Memory { base, delta, .. } => {
                    return Ok((base, run.addr.wrapping_add(*delta)));
                }
                LeafPlace::Key(inner) => (binding, at) = (inner, run.addr),
            }
        }
    }

    /// Does an atomic operation on the eight bytes at `offset`, which must be in one block.
    ///
    /// The driver's code executes the operation on the leaf, so the operation serialises with all
    /// other atomic operations on that memory.
    ///
    /// # Errors
    ///
    /// Those of [`Self::copy`]. A status of the driver is returned as a value, not as an error.
    #[inline(always)]
    pub(crate) fn atomic_op(
        &self,
        offset: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> Result<c_int> {
        let (base, iova) = self.resolve(offset, 8, Right::RemoteAtomic)?;
        Ok(base.atomic_op(iova, opcode, compare, swap_add, original))
    }

    /// Writes eight bytes at `offset` in one atomic write. The errors are those of
    /// [`Self::atomic_op`].
    pub(crate) fn atomic_write(&self, offset: u64, value: u64) -> Result<c_int> {
        let (base, iova) = self.resolve(offset, 8, Right::RemoteWrite)?;
        Ok(base.atomic_write(iova, value))
    }

    /// Makes `len` bytes from `offset` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Self::copy`]; `EOPNOTSUPP` without the access flag `FLUSH_PERSISTENT`, because
    /// the leaves may not be persistent memory.
    pub(crate) fn flush(&self, offset: u64, len: u64) -> Result {
        if !self.access.contains(Right::FlushPersistent) {
            return Err(eopnotsupp());
        }
        self.walk(
            offset,
            len,
            false,
            &|base| base,
            &mut |base: &mut &LeafMr, row: Row| {
                for piece in 0..row.count {
                    sched::cond_resched();
                    base.flush(row.skip(piece).addr, row.len)?;
                }
                Ok(())
            },
        )
    }
}
