// SPDX-License-Identifier: GPL-2.0

//! What a backend gives the rest of the module.

use crate::{
    backend::{payload::Payload, slot::SlotValue},
    bindings,
    kernel_ext::{
        memory::SharedMemory,
        rdma::{Access, Device, Mr, Mw, OwnedMr, Pd},
        sync::srcu::Cell,
    },
    layout::Row,
};
use kernel::{ffi::c_int, prelude::*};

/// Addresses of an MR.
#[derive(Clone, Copy)]
pub(crate) struct MrRange {
    /// The first one.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl MrRange {
    /// Returns `true` if `length` bytes from `iova` on are in the range.
    #[inline]
    pub(crate) fn contains(&self, iova: u64, length: u64) -> bool {
        length <= self.len && iova.wrapping_sub(self.start) <= self.len - length
    }
}

/// What an lkey names.
pub(crate) enum Named<B> {
    /// An MR of the driver's own.
    Memory {
        /// The MR.
        base: B,
        /// Its first address.
        start: u64,
        /// Its length in bytes; 0 if it is not registered now.
        len: u64,
        /// Its rights now.
        access: Access,
    },
    /// An MR of this module, with the pointer that tells it from its successor at the same index.
    Ours(*const Mr),
    /// An MR that a layout cannot end in.
    Unfit,
}

/// A driver whose MRs can be given layouts.
///
/// An MR of another driver is refused where an error can be returned, and left alone elsewhere.
pub(crate) trait Backend: Copy + Send + Sync {
    /// An MR of the driver's own, where layouts end.
    type Base: BaseMr;

    /// The state of an MR that is suspended, to be restored.
    type State: Copy + Send;

    /// What the backend does while the module is loaded; undone on drop.
    type Attached: Send + Sync;

    /// Attaches to the driver, now or when it is loaded. Called once, by the module's initialisation.
    fn attach() -> Result<Self::Attached>;

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

    /// Takes a new MR over: from here on accesses to it come to this module, and none is allowed yet.
    fn claim(&self, mr: &Mr);

    /// Returns the slot of a claimed MR, which is empty at first; [`None`] for any other MR.
    fn slot<T: SlotValue>(mr: &Mr) -> Option<&Cell<T>>;

    /// Narrows the rights of a claimed MR to those that are also in `access`.
    fn narrow(&self, mr: &Mr, access: Access);

    /// Allows accesses to a claimed MR, in `range`.
    fn publish(&self, mr: &Mr, range: MrRange, access: Access);

    /// Lets the driver bind a memory window to a claimed MR. It binds none to others.
    fn allow_window(&self, mr: &Mr);

    /// Returns the index by which rkeys name a memory window.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a window of another driver.
    fn window_index(&self, mw: &Mw) -> Result<u32>;

    /// Forbids accesses to a claimed MR.
    fn withdraw(&self, mr: &Mr);

    /// Returns `true` if accesses to an MR are allowed.
    fn is_open(&self, mr: &Mr) -> bool;

    /// Takes a new MR over for fast registration. As for [`Self::claim`].
    fn claim_fast_reg(&self, mr: &Mr);

    /// Returns the page size of an MR that is not for fast registration of scatterlists with gaps.
    fn page_size(&self, mr: &Mr) -> u32;

    /// Returns `true` if an MR for fast registration is neither registered nor being deregistered.
    fn is_free(&self, mr: &Mr) -> bool;

    /// Returns the key of an MR as its last registration left it. Its owner may have changed the key in
    /// `ib_mr` already, to register it again.
    fn key(&self, mr: &Mr) -> u32;

    /// Allows accesses to an MR for fast registration, by `key`.
    fn register(&self, mr: &Mr, key: u32, access: Access);

    /// Forbids accesses to a registered MR.
    fn invalidate(&self, mr: &Mr);

    /// Returns `true` if memory windows are bound to an MR of the driver's own.
    fn has_windows(&self, mr: &Mr) -> bool;

    /// Forbids accesses to an MR that is about to be deregistered.
    ///
    /// # Errors
    ///
    /// `EINVAL`, as in the driver, while a memory window is bound to it.
    fn suspend(&self, mr: &Mr) -> Result<Self::State>;

    /// Undoes [`Self::suspend`].
    fn resume(&self, mr: &Mr, state: Self::State);

    /// Returns the rights of an MR of the driver's own.
    fn rights(&self, mr: &Mr) -> Access;

    /// Puts a suspended MR over the memory of `spare`, a new MR without users: it then begins at
    /// address `range.0` and has `range.1` bytes, and `spare` has the old memory. Calls
    /// `finish` before it allows accesses again. On an error nothing has changed.
    ///
    /// # Errors
    ///
    /// Those of `finish`; `EBUSY` if the MR is still in use after seconds; `EINVAL` for an address that
    /// the driver cannot give to this kind of memory.
    fn retranslate(
        &self,
        mr: &Mr,
        state: Self::State,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result;

    /// Puts a new MR over pages: `length` bytes, of which the first is in the first page and has
    /// address `addr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more pages than the MR was made for, `EOPNOTSUPP` for memory without pages.
    fn fill(
        &self,
        mr: &Mr,
        pages: impl Iterator<Item = Option<*mut bindings::page>>,
        addr: u64,
        length: u64,
        access: Access,
    ) -> Result;

    /// Puts a new MR over memory of this module, where layouts can end.
    fn back(&self, mr: &OwnedMr, memory: &SharedMemory) -> Result<Self::Base>;
}

/// An MR of the driver's own, where layouts end.
///
/// It holds a reference to the MR. A pin of the MR, which is kept beside it, keeps the MR from being
/// deregistered.
pub(crate) trait BaseMr: Clone + Send + Sync {
    /// Prepared copies.
    type Pages<'a>: CopyPages
    where
        Self: 'a;

    /// Returns `true` if its pages come on demand.
    fn is_on_demand(&self) -> bool;

    /// Checks what rereg_mr, or a fast registration, may have changed since the bind, when the MR was
    /// in the protection domain `pd`, was named by `lkey` and began at address `start`.
    ///
    /// # Errors
    ///
    /// `EACCES` if one of these is different, or if a `write` is not allowed.
    fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result;

    /// Prepares copies from and to its pages.
    fn pages(&self) -> Self::Pages<'_>;

    /// Performs an atomic operation by the driver's code, which serialises all on the memory. Returns the
    /// result of that code.
    fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> c_int;

    /// Writes eight bytes at once. As for [`Self::atomic_op`].
    fn atomic_write(&self, iova: u64, value: u64) -> c_int;

    /// Makes `len` bytes from address `iova` on persistent. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    fn flush(&self, iova: u64, len: u64) -> Result;
}

/// The pages of a [`BaseMr`], prepared for copies.
pub(crate) trait CopyPages {
    /// Copies between the pieces of `row`, whose addresses are those of the MR, and `payload`.
    ///
    /// # Errors
    ///
    /// `EFAULT` for an address that the MR does not have, or whose page does not come.
    fn copy(&mut self, row: Row, payload: &mut Payload<'_>) -> Result;
}

/// The driver's own calls for accesses, as its workers make them. Only the self-test makes them here:
/// they come back to this module by way of the driver.
pub(crate) trait DriverCalls: Backend {
    /// Copies between `packet` and an SGE of address `iova`, to the SGE if `write`.
    ///
    /// # Errors
    ///
    /// Those of the driver, as for all of these.
    fn copy_sge(pd: &Pd, lkey: u32, iova: u64, packet: &mut [u8], write: bool) -> Result;

    /// Checks that `length` bytes from address `iova` on are in the MR.
    fn check_range(mr: &Mr, iova: u64, length: usize) -> Result;

    /// Copies between `packet` and the MR for a peer, to the MR if `write`.
    fn copy(mr: &Mr, iova: u64, packet: &mut [u8], write: bool) -> Result;

    /// Adds `add` to the word at address `iova`, and returns what it was before.
    fn fetch_add(mr: &Mr, iova: u64, add: u64) -> Result<u64>;

    /// Writes a word at address `iova` at once.
    fn atomic_write(mr: &Mr, iova: u64, value: u64) -> Result;

    /// Makes `length` bytes from address `iova` on persistent.
    fn flush(mr: &Mr, iova: u64, length: u32) -> Result;

    /// Registers what was mapped, to begin at address `iova`: REG_MR.
    fn reg_mr(mr: &Mr, iova: u64, key: u32, access: Access) -> Result;

    /// Invalidates what `key` names, for a peer: SEND with invalidate.
    fn send_with_invalidate(pd: &Pd, key: u32) -> Result;
}
