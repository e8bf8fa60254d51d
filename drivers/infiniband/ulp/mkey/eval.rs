// SPDX-License-Identifier: GPL-2.0

//! The evaluator: accesses to what is bound to a region, key and device memory alike.
//!
//! handler → region → layout → leaf → bytes. Runs on the data path: it takes no lock unless pages
//! come on demand, allocates nothing and looks each leaf up once in a row of runs. A position is
//! computed; what lies before it is never walked.

use crate::{
    backend::{Backend, Direction, Hw, Payload},
    bound::{Bound, Leaf, Place, MAX_LEVELS},
    layout::{Run, Runs},
    rdma::{self, eloop, eopnotsupp, mr::Right, Access},
};
use core::mem;
use kernel::{ffi::c_int, prelude::*};

/// Where leaves end: a region of the driver's.
type Base = <Hw as Backend>::Base;

/// What is left of an access in one key of a nest.
struct Level<'a> {
    bound: &'a Bound,
    /// The next run, taken from `runs`.
    run: Option<Run>,
    runs: Runs<'a>,
}

impl<'a> Level<'a> {
    fn new(bound: &'a Bound, offset: u64, len: u64) -> Result<Self> {
        let mut runs = bound.layout.runs(offset, len)?;
        let run = runs.next();
        Ok(Self { bound, run, runs })
    }
}

/// The levels outside of the one at hand, outermost first.
struct Outer<'a> {
    levels: [Option<Level<'a>>; MAX_LEVELS - 1],
    used: usize,
}

impl<'a> Outer<'a> {
    const fn new() -> Self {
        Self {
            levels: [const { None }; MAX_LEVELS - 1],
            used: 0,
        }
    }

    /// # Errors
    ///
    /// `ELOOP` if there is no room: no bind leaves that deep a nest.
    fn push(&mut self, level: Level<'a>) -> Result {
        *self.levels.get_mut(self.used).ok_or_else(eloop)? = Some(level);
        self.used = self.used.saturating_add(1);
        Ok(())
    }

    fn pop(&mut self) -> Option<Level<'a>> {
        self.used = self.used.checked_sub(1)?;
        self.levels.get_mut(self.used)?.take()
    }
}

impl Bound {
    /// Checks that the access flags of the region include `needed`.
    ///
    /// # Errors
    ///
    /// `EACCES` if they do not.
    #[inline]
    fn allows(&self, needed: Access) -> Result {
        if !self.access.contains_all(needed) {
            return Err(EACCES);
        }
        Ok(())
    }

    /// Returns a leaf, if it still allows what it did when it was bound.
    #[inline]
    fn leaf(&self, index: u32, write: bool) -> Result<&Leaf> {
        let leaf = self.leaves.get(index as usize).ok_or(EFAULT)?;
        if let Place::Memory {
            base,
            mutable: true,
            ..
        } = &leaf.place
        {
            base.allows(self.pd, leaf.lkey, leaf.start, write)?;
        }
        Ok(leaf)
    }

    /// Walks over `len` bytes from `offset` on: `open` is called with the region of each row of
    /// runs, and `visit` with what that gave and each run in it.
    #[inline(always)]
    fn walk<T>(
        &self,
        offset: u64,
        len: u64,
        write: bool,
        open: impl Fn(&Base) -> T,
        mut visit: impl FnMut(&mut T, u64, u64) -> Result,
    ) -> Result {
        // Most keys are not over keys: the levels are not to cost them anything.
        let mut outer: Option<Outer<'_>> = None;
        let mut level = Level::new(self, offset, len)?;
        loop {
            let Some(mut run) = level.run else {
                let Some(above) = outer.as_mut().and_then(Outer::pop) else {
                    return Ok(());
                };
                level = above;
                continue;
            };
            let index = run.leaf;
            let leaf = level.bound.leaf(index, write)?;
            match &leaf.place {
                Place::Memory { base, delta, .. } => {
                    let (delta, mut opened) = (*delta, open(base));
                    level.run = loop {
                        visit(&mut opened, run.addr.wrapping_add(delta), run.len)?;
                        match level.runs.next() {
                            Some(next) if next.leaf == index => run = next,
                            next => break next,
                        }
                    };
                }
                Place::Key(inner) => {
                    level.run = level.runs.next();
                    let inner = Level::new(inner, run.addr, run.len)?;
                    let outer = outer.get_or_insert_with(Outer::new);
                    outer.push(mem::replace(&mut level, inner))?;
                }
            }
        }
    }

    /// Copies between the region, from `offset` on, and all of `payload`, with the access flags
    /// `needed`.
    ///
    /// # Errors
    ///
    /// `EINVAL` out of range, `EACCES` if access flags are missing, those of faulting pages in. What
    /// came before a leaf that fails is copied, as with several SGEs.
    pub(crate) fn copy(&self, offset: u64, mut payload: Payload<'_>, needed: Access) -> Result {
        self.allows(needed)?;
        let (len, write) = (payload.left(), payload.direction() == Direction::ToMemory);
        self.walk(
            offset,
            len as u64,
            write,
            Base::pages,
            |pages, addr, len| pages.copy(addr, len, &mut payload),
        )
    }

    /// Finds the one place of an access that cannot be split.
    fn resolve(&self, offset: u64, len: u64, needed: Right) -> Result<(&Base, u64)> {
        self.allows(needed.into())?;
        let mut bound = self;
        let mut run = self.layout.resolve(offset, len)?;
        loop {
            match &bound.leaf(run.leaf, true)?.place {
                Place::Memory { base, delta, .. } => {
                    return Ok((base, run.addr.wrapping_add(*delta)));
                }
                Place::Key(inner) => {
                    run = inner.layout.resolve(run.addr, len)?;
                    bound = inner;
                }
            }
        }
    }

    /// Does an atomic operation on the eight bytes at `offset`, which must be in one block.
    ///
    /// It is done by the driver's code on the leaf, so that it serialises with all others on that
    /// memory.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`]; otherwise what the driver's code says.
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

    /// Writes eight bytes at `offset` at once. As for [`Self::atomic_op`].
    pub(crate) fn atomic_write(&self, offset: u64, value: u64) -> Result<c_int> {
        let (base, iova) = self.resolve(offset, 8, Right::RemoteWrite)?;
        Ok(base.atomic_write(iova, value))
    }

    /// Makes `len` bytes from `offset` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`], `EOPNOTSUPP` for a region without the right to that: there may be
    /// no persistent memory below it.
    pub(crate) fn flush(&self, offset: u64, len: u64) -> Result {
        if !self.access.contains(Right::FlushPersistent) {
            return Err(eopnotsupp());
        }
        self.walk(
            offset,
            len,
            false,
            |base| *base,
            |base, addr, len| {
                rdma::cond_resched();
                base.flush(addr, len)
            },
        )
    }
}
