// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind keys.
//!
//! One of the driver's workers executes the request. The description of a process is in memory or in
//! the request; a kernel user has staged one before (`region/staged.rs`). The worker reads no memory that a process can hold up:
//! a description in ODP memory is refused. It waits for no access to the key; `region/old.rs` keeps
//! the old binding. A description has at most `MAX_ENTRIES` entries, blocks or indices, which bounds
//! the time of the worker.

use super::{
    again,
    request::{checked, KeyRequest, Short},
};
use crate::{
    backend::{Backend, MrRange},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{Mr, Pd},
    },
    key::{
        request::{describe, Reader, Source},
        Key,
    },
    limits::worker::Worker,
    mkey_core::{Core, Lookup},
    region::{binding::MAX_DEPTH, tag},
};
use kernel::prelude::*;

impl KeyRequest<'_> {
    /// Begins to read the description, for a QP in `pd`. A short one is copied to `short` first.
    ///
    /// # Errors
    ///
    /// Those of [`Core::pin_leaf`], `ERANGE` for bytes outside of the MR, and `EOPNOTSUPP` for memory
    /// whose pages a process may hold up.
    fn reader<'s>(&'s self, core: &Core, pd: &Pd, short: &'s mut Short<'_>) -> Result<Reader<'s>> {
        if self.length == 0 {
            let length = self.inline.len() as u64;
            return Ok(Reader::new(Source::Copy(self.inline), 0, length));
        }
        let read = |to: &mut [u8]| core.read_now(pd.device(), self.lkey, pd, self.addr, to);
        if let Some(copy) = short.fill(self.length, read)? {
            return Ok(Reader::new(Source::Copy(copy), 0, self.length));
        }
        let leaf = core.pin_leaf(pd.device(), self.lkey, pd, MAX_DEPTH)?;
        if leaf.place.is_on_demand() {
            return Err(eopnotsupp());
        }
        // A short description has this error before those of its fields, too.
        let range = MrRange {
            start: leaf.start,
            len: leaf.len,
        };
        if !range.contains(self.addr, self.length) {
            return Err(ERANGE);
        }
        let pd = pd.as_raw() as usize;
        Ok(Reader::new(
            Source::Memory { leaf, pd },
            self.addr,
            self.length,
        ))
    }
}

/// An attempt to execute a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The only one. Earlier requests of the QP may use the old binding of the key again.
    Only,
    /// One that another one follows if it fails, after all earlier requests of the QP have completed.
    First,
    /// The last one.
    Last,
}

/// Binds the key `mr` to the layout that is staged under `rkey`, for a kernel QP in `pd`: REG_MR. As
/// for [`bind`]. Uses the staged layout up, unless another attempt follows.
///
/// # Errors
///
/// `EINVAL` if no layout is staged under `rkey`, and for another protection domain; those of
/// [`describe`] and of a bind; `EINVAL` also for a key that is bound if this is the only attempt.
pub(crate) fn bind_staged(mr: &Mr, pd: &Pd, rkey: u32, access: u32, attempt: Attempt) -> Result {
    let core = Core::running(mr.device())?;
    if mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let key = Key::of(&core, mr, pd)?;
    if attempt == Attempt::Only && core.hw.is_open(mr) {
        return Err(EINVAL);
    }
    let layouts = key.staged()?;
    let staged = layouts.take(rkey).ok_or(EINVAL)?;
    let mut entry = 0;
    let mut describe_and_bind = || {
        let access = checked(pd, access)?;
        let mut reader = Reader::new(Source::Staged(&staged), 0, staged.len() as u64);
        let described = describe(&key, access, &mut reader, &mut entry)?;
        described.bind_in_turn(None, rkey, Worker::new().patience)
    };
    let bound = describe_and_bind();
    if bound.is_err() && attempt == Attempt::First {
        layouts.put_back(staged);
    } else {
        layouts.use_up(staged);
    }
    bound.inspect_err(|error| key.region().refuse(*error, entry))
}

/// Binds the key `mr` for a QP in `pd`. Requests that the QP executes later see the new layout. Copies a
/// short description to `short`. Sleeps for some seconds at most.
///
/// # Errors
///
/// `EINVAL` for an MR that is not a key, another protection domain and another rkey than that of the
/// key; those of [`KeyRequest::reader`], of [`describe`] and of a bind. The key keeps its binding
/// then, and a query of the key tells the error.
pub(crate) fn bind(mr: &Mr, pd: &Pd, request: &KeyRequest<'_>, mut short: Short<'_>) -> Result {
    if again::bind(mr, pd, request, &mut short).is_some() {
        return Ok(());
    }
    let core = Core::running(mr.device())?;
    if mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let key = Key::of(&core, mr, pd)?;
    let mut entry = 0;
    let worker = Worker::new();
    let bound = describe_and_bind(&core, &key, pd, (request, &mut short), &mut entry, &worker);
    bound.inspect_err(|error| key.region().refuse(*error, entry))
}

fn describe_and_bind(
    core: &Core,
    key: &Key<'_>,
    pd: &Pd,
    (request, short): (&KeyRequest<'_>, &mut Short<'_>),
    entry: &mut u32,
    worker: &Worker,
) -> Result {
    if !tag::same_mr(key.mr().rkey(), request.rkey) || !tag::same_mr(request.new_key, request.rkey)
    {
        return Err(EINVAL);
    }
    let access = checked(pd, request.access)?;
    let mut reader = request.reader(core, pd, short)?;
    let described = describe(key, access, &mut reader, entry)?;
    // The description may be in memory of this key, which the reader pins.
    drop(reader);
    if !described.is_named(request.rkey) {
        // No entry is the reason.
        *entry = 0;
        return Err(EINVAL);
    }
    described.bind_in_turn(Some(request.rkey), request.new_key, worker.patience)
}
