// SPDX-License-Identifier: GPL-2.0

//! What a device must give for ib_mkey to extend it.
//!
//! | file | what |
//! |---|---|
//! | `backend/rxe.rs`, `backend/rxe/` | software RoCE: functions that touch an MR's memory are redirected |
//!
//! A backend alone knows its driver's private structures. The rest of the module sees a
//! [`Backend`], the [`Backend::Base`] regions that layouts end in, and [`Payload`]s.

mod copy_row;
mod cut;
mod payload;
pub(crate) mod rxe;

use crate::bindings;
use crate::kernel_ext::{
    memory::SharedMemory,
    rdma::{Access, Device, Mr, Mw, OwnedMr, Pd},
};
use kernel::prelude::*;

pub(crate) use payload::{Direction, Payload};

/// The backend of every device that this build extends.
pub(crate) type Hw = rxe::Rxe;

/// Addresses of a region.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// The first one.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl Range {
    /// Returns `true` if `length` bytes from `iova` on are in the range.
    #[inline]
    pub(crate) fn contains(&self, iova: u64, length: u64) -> bool {
        length <= self.len && iova.wrapping_sub(self.start) <= self.len - length
    }
}

/// What an lkey names.
pub(crate) enum Named<B> {
    /// A region of the driver's own.
    Memory {
        /// The region.
        base: B,
        /// Its first address.
        start: u64,
        /// Its length in bytes; 0 for one that is not registered now.
        len: u64,
        /// Its rights now.
        access: Access,
    },
    /// A region of ours, with the pointer that tells it from its successor at the same index.
    Ours(*const Mr),
    /// A region that a layout cannot end in.
    Unfit,
}

/// A driver whose regions can be given layouts.
///
/// A region of another driver is refused where an error can be returned, and left alone elsewhere.
pub(crate) trait Backend: Copy + Send + Sync {
    /// A region of the driver's own, where layouts end. It holds a reference to the region;
    /// whoever keeps one keeps the region from being deregistered, too.
    type Base: Clone + Send + Sync;

    /// Looks whether `device` is of the driver, and built as this module was.
    ///
    /// # Errors
    ///
    /// `ENODEV` for a device of another driver; others, with a line in the log, for a device of
    /// the driver that does not behave as expected.
    fn probe(device: &Device, pd: &Pd) -> Result<Self>;

    /// Finds what `lkey` names. The caller holds the lock that keeps [`Self::suspend`] out: what is
    /// found and not suspended is not freed before the lock is released.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it names nothing in `pd`, whatever it names elsewhere.
    fn find(&self, device: &Device, lkey: u32, pd: &Pd) -> Result<Named<Self::Base>>;

    /// Takes a new region over: from here on accesses to it come to us, and none is allowed yet.
    fn claim(&self, mr: &Mr);

    /// Narrows the rights of a claimed region to those that are also in `access`.
    fn narrow(&self, mr: &Mr, access: Access);

    /// Allows accesses to a claimed region, in `range`.
    fn publish(&self, mr: &Mr, range: Range, access: Access);

    /// Lets the driver bind a memory window to a claimed region. It binds none to others.
    fn allow_window(&self, mr: &Mr);

    /// Returns the index by which rkeys name a memory window.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a window of another driver.
    fn window_index(&self, mw: &Mw) -> Result<u32>;

    /// Forbids accesses to a claimed region.
    fn withdraw(&self, mr: &Mr);

    /// Returns `true` if accesses to a region are allowed.
    fn is_open(&self, mr: &Mr) -> bool;

    /// Takes a new region over for fast registration. As for [`Self::claim`].
    fn claim_fast_reg(&self, mr: &Mr);

    /// Returns the page size of a region that is not for fast registration of scatterlists with gaps.
    fn page_size(&self, mr: &Mr) -> u32;

    /// Is a region for fast registration neither registered nor being deregistered?
    fn is_free(&self, mr: &Mr) -> bool;

    /// Returns the key of a region as its last registration left it. Its owner may have changed
    /// what `ib_mr` says already, for the next one.
    fn key(&self, mr: &Mr) -> u32;

    /// Allows accesses to a region for fast registration, by `key`.
    fn register(&self, mr: &Mr, key: u32, access: Access);

    /// Forbids accesses to a registered region.
    fn invalidate(&self, mr: &Mr);

    /// Are memory windows bound to a region of the driver's own?
    fn has_windows(&self, mr: &Mr) -> bool;

    /// Forbids accesses to a region that is about to be deregistered.
    ///
    /// # Errors
    ///
    /// `EINVAL`, as the driver has it, while a memory window is bound to it.
    fn suspend(&self, mr: &Mr) -> Result<rxe::State>;

    /// Undoes [`Self::suspend`].
    fn resume(&self, mr: &Mr, state: rxe::State);

    /// Returns the rights of a region of the driver's own.
    fn rights(&self, mr: &Mr) -> Access;

    /// Puts a suspended region over the memory of `spare`, a new one that nobody uses: it then
    /// begins at address `range.0` and has `range.1` bytes, and `spare` has the old memory. Calls
    /// `finish` before it allows accesses again. On an error nothing has changed.
    ///
    /// # Errors
    ///
    /// Those of `finish`; `EBUSY` if somebody still uses the region after seconds; `EINVAL` for an
    /// address that the driver cannot give to this kind of memory.
    fn retranslate(
        &self,
        mr: &Mr,
        state: rxe::State,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result;

    /// Puts a new region over pages: `length` bytes, of which the first is in the first page and has
    /// address `addr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more pages than the region was made for, `EOPNOTSUPP` for one that is none.
    fn fill(
        &self,
        mr: &Mr,
        pages: impl Iterator<Item = Option<*mut bindings::page>>,
        addr: u64,
        length: u64,
        access: Access,
    ) -> Result;

    /// Puts a new region over memory of ours, for layouts to end in.
    fn back(&self, mr: &OwnedMr, memory: &SharedMemory) -> Result<Self::Base>;
}
