// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind keys.
//!
//! One of the driver's workers executes the request. It reads no memory that a process can hold up:
//! a description in ODP memory is refused. It waits for no access to the key; `region/old.rs` keeps
//! the old binding. A description has at most `MAX_ENTRIES` entries, blocks or indices, which bounds
//! the time of the worker.

use crate::{
    bindings,
    kernel_ext::{
        error::eopnotsupp,
        rdma::{Access, Mr, Pd},
    },
    key::{
        request::{describe, Reader, Source},
        Key,
    },
    limits::worker::Worker,
    mkey_core::{Core, Lookup},
    region::{binding::MAX_DEPTH, tag},
};
use kernel::{ffi::c_int, prelude::*};

/// A request to bind a key.
pub(crate) struct KeyRequest<'a> {
    /// The rkey by which the request names the key.
    pub(crate) rkey: u32,
    /// The lkey and rkey of the key from then on.
    pub(crate) new_key: u32,
    /// The MR that contains the description.
    pub(crate) lkey: u32,
    /// The address of the description, which is an address of that MR.
    pub(crate) addr: u64,
    /// The length of the description in bytes; 0 if the request contains it.
    pub(crate) length: u64,
    /// The access flags.
    pub(crate) access: u32,
    /// A copy of the inline data of the request.
    pub(crate) inline: &'a [u8],
}

impl KeyRequest<'_> {
    /// Begins to read the description, for a QP in `pd`.
    ///
    /// # Errors
    ///
    /// Those of [`Core::pin_leaf`], and `EOPNOTSUPP` for memory whose pages a process may hold up.
    fn reader(&self, core: &Core, pd: &Pd) -> Result<Reader<'_>> {
        if self.length == 0 {
            let length = self.inline.len() as u64;
            return Ok(Reader::new(Source::Request(self.inline), 0, length));
        }
        let leaf = core.pin_leaf(pd.device(), self.lkey, pd, MAX_DEPTH)?;
        if leaf.place.is_on_demand() {
            return Err(eopnotsupp());
        }
        let pd = pd.as_raw() as usize;
        Ok(Reader::new(
            Source::Memory { leaf, pd },
            self.addr,
            self.length,
        ))
    }
}

/// Binds the key `mr` for a QP in `pd`. Requests that the QP executes later see the new layout. Sleeps
/// for some seconds at most.
///
/// # Errors
///
/// `EINVAL` for an MR that is not a key, another protection domain and another rkey than that of the
/// key; those of [`KeyRequest::reader`], of [`describe`] and of a bind. The key keeps its binding
/// then, and a query of the key tells the error.
pub(crate) fn bind(mr: &Mr, pd: &Pd, request: &KeyRequest<'_>) -> Result {
    let core = Core::running(mr.device())?;
    if mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let key = Key::of(&core, mr, pd)?;
    let mut entry = 0;
    let worker = Worker::new();
    let bound = describe_and_bind(&core, &key, pd, request, &mut entry, &worker);
    bound.inspect_err(|error| key.region().refuse(*error, entry))
}

fn describe_and_bind(
    core: &Core,
    key: &Key<'_>,
    pd: &Pd,
    request: &KeyRequest<'_>,
    entry: &mut u32,
    worker: &Worker,
) -> Result {
    if !tag::same_mr(key.mr().rkey(), request.rkey) || !tag::same_mr(request.new_key, request.rkey)
    {
        return Err(EINVAL);
    }
    if request.access & !bindings::ib_access_flags_IB_ACCESS_SUPPORTED != 0 {
        return Err(EINVAL);
    }
    let access = Access::checked(pd.device(), request.access as c_int)?;
    let mut reader = request.reader(core, pd)?;
    let described = describe(key, access, &mut reader, entry)?;
    // The description may be in memory of this key, which the reader pins.
    drop(reader);
    if !described.is_named(request.rkey) {
        // No entry is the reason.
        *entry = 0;
        return Err(EINVAL);
    }
    described.bind_in_turn(request.rkey, request.new_key, worker.patience)
}
