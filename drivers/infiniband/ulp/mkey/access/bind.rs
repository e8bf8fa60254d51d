// SPDX-License-Identifier: GPL-2.0

//! Work requests that bind keys.
//!
//! One of the driver's workers executes the request. A process has put the description into memory
//! or into the request. A kernel user has staged it (`region/staged.rs`).
//!
//! A process must not delay the worker. The worker therefore refuses a description in ODP memory,
//! whose pages the process may be slow to provide. It waits for no access to the key; accesses keep
//! the old binding. A description has at most `MAX_ENTRIES` entries, blocks
//! or indices.

use crate::{
    backend::{Claimed, MrRange},
    errors::{Refused, Result},
    kernel_ext::rdma::{mr_key, Pd},
    key::{
        request::{describe, Reader, Source},
        Key,
    },
    mkey_core::Core,
    region::binding::MAX_DEPTH,
};
use kernel::prelude::*;

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
    /// Returns a reader of the description, for a QP in `pd`. Copies a description that fits to
    /// `buffer` first. ODP memory is refused.
    fn reader<'s>(&'s self, core: &Core, pd: &Pd, buffer: &'s mut [u8]) -> Result<Reader<'s>> {
        if self.length == 0 {
            let length = self.inline.len() as u64;
            return Ok(Reader::new(Source::Copy(self.inline), 0, length));
        }
        let refused = |error| Refused::of_description(error, self.lkey);
        if let Some(copy) = buffer.get_mut(..usize::try_from(self.length)?) {
            let read = core.read_now(self.lkey, pd, self.addr, copy);
            if read.map_err(refused)? {
                return Ok(Reader::new(Source::Copy(copy), 0, self.length));
            }
        }
        let leaf = core.pin_leaf(self.lkey, pd, MAX_DEPTH, None);
        let leaf = leaf.map_err(refused)?;
        if leaf.place.is_on_demand() {
            return Err(Refused::DESCRIPTION_LEAF.with(self.lkey));
        }
        // Checked before the fields, so that a long description has the same first error
        // as a short one.
        let range = MrRange {
            start: leaf.start,
            len: leaf.len,
        };
        if !range.contains(self.addr, self.length) {
            return Err(Refused::DESCRIPTION_RANGE.with(self.lkey));
        }
        let pd = pd.as_raw() as usize;
        Ok(Reader::new(
            Source::Memory { leaf, pd },
            self.addr,
            self.length,
        ))
    }
}

/// Executes REG_MR of a kernel QP in `pd`: binds the key `mr` to the layout that is staged under
/// `rkey`. Removes the staged layout, unless the bind fails and `is_last` is `false`, because
/// another attempt follows then. Sleeps for some seconds at most.
/// Fails with `EINVAL` if the key is not in `pd`. Other errors are recorded for a query of the key.
pub(crate) fn bind_staged(
    mr: &Claimed,
    pd: &Pd,
    rkey: u32,
    access: u32,
    is_last: bool,
) -> Result<(), Error> {
    if mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let key = Key::of(mr, pd)?.of_request();
    let layouts = key.staged()?;
    let not_mapped = Refused::NOT_MAPPED.with(rkey);
    let staged = layouts.take(rkey).ok_or(not_mapped);
    let staged = staged.inspect_err(|why| key.region().refuse(*why))?;
    let describe_and_bind = || {
        let access = key.access(access)?;
        let mut reader = Reader::new(Source::Staged(&staged), 0, staged.len() as u64);
        let described = describe(&key, access, &mut reader)?;
        described.bind_from_queue(None, rkey)
    };
    let bound = describe_and_bind();
    if bound.is_err() && !is_last {
        layouts.put_back(staged);
    } else {
        layouts.use_up(staged);
    }
    Ok(bound.inspect_err(|why| key.region().refuse(*why))?)
}

/// Binds the key `mr` for a QP in `pd`. Requests that the QP executes later see the new layout.
/// Copies a short description to `buffer`. Sleeps for some seconds at most.
///
/// # Errors
///
/// `EINVAL` for an MR that is not a key in `pd`. Other errors are recorded for a query of the key.
/// After an error the key keeps its binding.
pub(crate) fn bind(
    mr: &Claimed,
    pd: &Pd,
    request: &KeyRequest<'_>,
    buffer: &mut [u8],
) -> Result<(), Error> {
    if mr.pd() != pd.as_raw() {
        return Err(EINVAL);
    }
    let key = Key::of(mr, pd)?.of_request();
    let bound = describe_and_bind(&key, pd, request, buffer);
    Ok(bound.inspect_err(|why| key.region().refuse(*why))?)
}

fn describe_and_bind(
    key: &Key<'_>,
    pd: &Pd,
    request: &KeyRequest<'_>,
    buffer: &mut [u8],
) -> Result {
    let is_of_request = |key| mr_key::is_same_index(key, request.rkey);
    let wrong = Refused::PORTION.with(request.rkey);
    if !is_of_request(key.mr().rkey()) {
        return Err(wrong);
    }
    if !is_of_request(request.new_key) {
        return Err(Refused::RKEY.with(request.new_key));
    }
    let access = key.access(request.access)?;
    let mut reader = request.reader(key.core(), pd, buffer)?;
    let described = describe(key, access, &mut reader)?;
    // The reader pins the MR that contains the description. If that MR is this key, the pin
    // would make the bind fail.
    drop(reader);
    if !described.is_named(request.rkey) {
        return Err(wrong);
    }
    described.bind_from_queue(Some(request.rkey), request.new_key)
}
