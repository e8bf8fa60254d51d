// SPDX-License-Identifier: GPL-2.0

//! The interface of a driver's MRs that are the memory of leaves: rights, copies and atomics.

use crate::{
    backend::payload::Payload,
    kernel_ext::rdma::Mr,
    layout::{Plane, Records, Row, Scattered},
};
use kernel::{ffi::c_int, prelude::*};

/// One of the driver's MRs, as the memory of a leaf.
///
/// This holds a reference to the MR. The pin in the leaf keeps the MR from being deregistered.
pub(crate) trait BaseMr: Clone + Send + Sync {
    /// Prepared copies.
    type Pages<'a>: CopyPages
    where
        Self: 'a;

    /// Returns the address of the MR.
    fn mr(&self) -> *const Mr;

    /// Returns `true` for an ODP MR.
    fn is_on_demand(&self) -> bool;

    /// Checks that the MR is still in the protection domain `pd`, has the lkey `lkey` and begins at
    /// address `start`. rereg_mr and fast registration can change these after a bind.
    ///
    /// # Errors
    ///
    /// `EACCES` if one of these has changed, or if a `write` is not allowed.
    fn allows(&self, pd: usize, lkey: u32, start: u64, write: bool) -> Result;

    /// Prepares copies from and to its pages.
    fn pages(&self) -> Self::Pages<'_>;

    /// Copies one row as [`CopyPages::copy`] does.
    ///
    /// # Errors
    ///
    /// As for [`CopyPages::copy`].
    fn copy_row(&self, row: Row, payload: Payload<'_>) -> Result;

    /// Copies all of `payload` to or from address `addr`, if this is the MR of all memory and has
    /// that address. Returns `false` otherwise, with nothing copied.
    fn copy_mapped(&self, addr: u64, payload: &Payload<'_>) -> bool;

    /// Performs an atomic operation by the driver's code, which serialises all atomic operations on
    /// the memory. Returns the result of that code.
    fn atomic_op(
        &self,
        iova: u64,
        opcode: c_int,
        compare: u64,
        swap_add: u64,
        original: &mut u64,
    ) -> c_int;

    /// Writes eight bytes in one atomic write. Returns the result of the driver's code.
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
    /// `EFAULT` for an address outside of the MR, and for a page that cannot be faulted in.
    fn copy(&mut self, row: Row, payload: &mut Payload<'_>) -> Result;

    /// Copies between the pieces of `plane` and `payload`. `delta` is added to their addresses; the
    /// sums are addresses of the MR.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`].
    fn copy_plane(&mut self, plane: &Plane, delta: u64, payload: &mut Payload<'_>) -> Result;

    /// Copies between the pieces of `records` and `payload`. As for [`Self::copy_plane`].
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`].
    fn copy_records(
        &mut self,
        records: &Records<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result;

    /// Copies between scattered pieces and `payload`. `delta` is added to their addresses; the sums
    /// are addresses of the MR.
    ///
    /// # Errors
    ///
    /// As for [`Self::copy`].
    fn copy_scattered(
        &mut self,
        pieces: &Scattered<'_>,
        delta: u64,
        payload: &mut Payload<'_>,
    ) -> Result;
}
