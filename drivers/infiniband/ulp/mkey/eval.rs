// SPDX-License-Identifier: GPL-2.0

//! The evaluator: accesses through a binding, to keys and device memory alike.
//!
//! An access passes handler → region → layout → leaf → bytes. The evaluator runs on the data path.
//! It allocates nothing and takes no lock, except for ODP. It looks a leaf up once for successive
//! rows in that leaf. A row is a series of pieces of one size at one distance
//! (`rust/layout/src/row.rs`). The evaluator computes the first piece of an access; it does not
//! walk over the pieces before it.

use crate::{
    backend::{Backend, BaseMr, CopyPages, Direction, Hw, Payload},
    kernel_ext::{
        error::{eloop, eopnotsupp},
        rdma::{mr::Right, Access},
        sched,
    },
    layout::{Block, Entry, Order, Row, RowsOf, Shape},
    region::{
        binding::{Binding, Leaf, LeafPlace, MAX_LEVELS},
        indices::KIndexed,
    },
};
use core::array;
use kernel::{ffi::c_int, prelude::*};

/// The MR of a leaf: one of the driver's MRs.
type LeafMr = <Hw as Backend>::Base;

/// The rows of one level of a nest.
type KeyRows<'a> = RowsOf<'a, KVVec<Entry>, KVVec<Block>, KBox<Shape>, KIndexed>;

/// The rest of an access in one key of a nest.
struct KeyLevel<'a> {
    binding: &'a Binding,
    /// The next row, taken from `rows`.
    row: Option<Row>,
    rows: KeyRows<'a>,
}

/// The levels of a nest that an access is in, outermost first.
///
/// A level is made where it stays: a copy of it takes longer than to find a row.
struct Levels<'a> {
    levels: [Option<KeyLevel<'a>>; MAX_LEVELS - 1],
    used: usize,
}

impl<'a> Levels<'a> {
    /// Makes no levels. This writes one word for each; a constant array would be copied.
    #[inline(always)]
    fn new() -> Self {
        Self {
            levels: array::from_fn(|_| None),
            used: 0,
        }
    }

    /// Adds the level of `binding` below `outer`, a row whose leaf is that key.
    ///
    /// # Errors
    ///
    /// `ELOOP` if there is no room. Binds refuse a nest that deep.
    #[inline(always)]
    fn push(&mut self, binding: &'a Binding, outer: Row, order: Order) -> Result {
        let level = self.levels.get_mut(self.used).ok_or_else(eloop)?;
        let mut rows = binding.walked().rows_of(outer, order)?;
        let row = rows.next();
        *level = Some(KeyLevel { binding, row, rows });
        self.used = self.used.saturating_add(1);
        Ok(())
    }

    /// Returns the innermost level.
    fn last(&mut self) -> Option<&mut KeyLevel<'a>> {
        self.levels.get_mut(self.used.checked_sub(1)?)?.as_mut()
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
    /// Copies the bytes of the leaf from address `addr` on, for its own node. `pd` is the protection
    /// domain of the reader. The caller keeps the leaf pinned.
    ///
    /// # Errors
    ///
    /// `ERANGE` outside of the leaf, those of [`BaseMr::allows`] and of [`Binding::copy`].
    pub(crate) fn read(&self, pd: usize, addr: u64, to: &mut [u8]) -> Result {
        let len = to.len() as u64;
        if len > self.len || addr.wrapping_sub(self.start) > self.len - len {
            return Err(ERANGE);
        }
        let mut payload = Payload::reading(to)?;
        match &self.place {
            LeafPlace::Memory {
                base,
                delta,
                mutable,
            } => {
                if *mutable {
                    base.allows(pd, self.lkey, self.start, false)?;
                }
                let row = Row::of(0, addr.wrapping_add(*delta), len);
                base.pages().copy(row, &mut payload)
            }
            LeafPlace::Key(binding) => binding.copy(addr, payload, Access::empty()),
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
        if let LeafPlace::Memory {
            base,
            mutable: true,
            ..
        } = &leaf.place
        {
            base.allows(self.pd, leaf.lkey, leaf.start, write)?;
        }
        Ok(leaf)
    }

    /// Returns a leaf of the layout that accesses walk over. As for [`Self::leaf`].
    #[inline]
    fn walked_leaf(&self, index: u32, write: bool) -> Result<&Leaf> {
        let Some(flat) = self.flat() else {
            return self.leaf(index, write);
        };
        let (key, index) = flat.leaf(index).ok_or(EFAULT)?;
        key.map_or(self, |key| key).leaf(index, write)
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
    // Not inlined, so that the cursor takes no stack in an access of one row, as most are.
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
        let mut next = rows.next();
        while let Some(row) = next {
            let leaf = self.walked_leaf(row.leaf, write)?;
            next = match &leaf.place {
                LeafPlace::Memory { base, delta, .. } => {
                    visit_leaf(row, &mut rows, *delta, &mut open(base), visit)?
                }
                LeafPlace::Key(inner) => {
                    inner.walk_nest(row, order, write, open, visit)?;
                    rows.next()
                }
            };
        }
        Ok(())
    }

    /// Walks over the pieces of `outer`, a row whose leaf is the key of this binding. As for
    /// [`Self::walk`].
    // Not inlined, so that the levels take no stack in an access to a key over memory, as most are.
    #[inline(never)]
    fn walk_nest<'a, T>(
        &'a self,
        outer: Row,
        order: Order,
        write: bool,
        open: &impl Fn(&'a LeafMr) -> T,
        visit: &mut impl FnMut(&mut T, Row) -> Result,
    ) -> Result {
        let mut levels = Levels::new();
        levels.push(self, outer, order)?;
        while let Some(level) = levels.last() {
            let Some(row) = level.row else {
                levels.used = levels.used.saturating_sub(1);
                continue;
            };
            let leaf = level.binding.walked_leaf(row.leaf, write)?;
            match &leaf.place {
                LeafPlace::Memory { base, delta, .. } => {
                    let mut opened = open(base);
                    level.row = visit_leaf(row, &mut level.rows, *delta, &mut opened, visit)?;
                }
                LeafPlace::Key(inner) => {
                    level.row = level.rows.next();
                    levels.push(inner, row, order)?;
                }
            }
        }
        Ok(())
    }

    /// Copies all of `payload` from or to the bytes from `offset` on. Requires the access flags
    /// `needed`.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, `EACCES` if access flags are missing, those of faulting pages in. The
    /// bytes before a leaf that fails are copied, as with several SGEs.
    #[inline(always)]
    pub(crate) fn copy(&self, offset: u64, mut payload: Payload<'_>, needed: Access) -> Result {
        self.allows(needed)?;
        let write = payload.direction() == Direction::ToMemory;
        let (mut binding, mut offset) = (self, offset);
        while let Some(mut row) = binding.only_row(offset, payload.len()) {
            let leaf = binding.leaf(row.leaf, write)?;
            match &leaf.place {
                LeafPlace::Memory { base, delta, .. } => {
                    row.addr = row.addr.wrapping_add(*delta);
                    return base.pages().copy(row, &mut payload);
                }
                // All bytes are in one piece, so the access is one to the key below.
                LeafPlace::Key(inner) if row.count == 1 => {
                    binding = inner;
                    offset = row.addr;
                }
                LeafPlace::Key(_) => break,
            }
        }
        binding.copy_rows(offset, &mut payload, write)
    }

    /// Returns the one row of an access, see [`Layout::only_row`](crate::layout::Layout::only_row).
    /// A flat list has none, because it has short entries.
    #[inline(always)]
    fn only_row(&self, offset: u64, len: u64) -> Option<Row> {
        if self.flat().is_some() {
            return None;
        }
        self.layout.only_row(offset, len)
    }

    /// Copies an access that may consist of several rows. As for [`Self::copy`].
    #[inline(never)]
    fn copy_rows(&self, offset: u64, payload: &mut Payload<'_>, write: bool) -> Result {
        let len = payload.len();
        let mut visit = |pages: &mut <LeafMr as BaseMr>::Pages<'_>, row| pages.copy(row, payload);
        self.walk(offset, len, write, &BaseMr::pages, &mut visit)
    }

    /// Returns the MR and the address of an access that cannot be split.
    fn resolve(&self, offset: u64, len: u64, needed: Right) -> Result<(&LeafMr, u64)> {
        self.allows(needed.into())?;
        let mut binding = self;
        let mut run = self.layout.resolve(offset, len)?;
        loop {
            match &binding.leaf(run.leaf, true)?.place {
                LeafPlace::Memory { base, delta, .. } => {
                    return Ok((base, run.addr.wrapping_add(*delta)));
                }
                LeafPlace::Key(inner) => {
                    run = inner.layout.resolve(run.addr, len)?;
                    binding = inner;
                }
            }
        }
    }

    /// Does an atomic operation on the eight bytes at `offset`, which must be in one block.
    ///
    /// The driver's code does it on the leaf, so it serialises with all other atomic operations on
    /// that memory.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`]. A code of the driver is not an error; it is returned.
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

    /// Writes eight bytes at `offset` in one atomic write. As for [`Self::atomic_op`].
    pub(crate) fn atomic_write(&self, offset: u64, value: u64) -> Result<c_int> {
        let (base, iova) = self.resolve(offset, 8, Right::RemoteWrite)?;
        Ok(base.atomic_write(iova, value))
    }

    /// Makes `len` bytes from `offset` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`]; `EOPNOTSUPP` without the access flag `FLUSH_PERSISTENT`, because the
    /// leaves may not be persistent memory.
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
