// SPDX-License-Identifier: GPL-2.0

//! Requests that bind and unbind keys, in the order of a queue pair.

use super::{Qp, Remote, Status, Work};
use crate::{
    bindings,
    kernel_ext::rdma::ulp::{Access, Bound, Mkey, Right, Staged, Unbound},
};
use core::{mem::MaybeUninit, ptr};
use kernel::{error::to_result, prelude::*};

/// Returns the request that unbinds the key with the rkey `rkey`: LOCAL_INV.
fn unbinding(rkey: u32) -> bindings::ib_send_wr {
    // SAFETY: All-zero is valid: null pointers and integers.
    let mut request: bindings::ib_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
    // SAFETY: The union has a field of this type for the opcode.
    unsafe { (&raw mut request.ex).cast::<u32>().write(rkey) };
    request
}

/// Returns the number of requests of the chain that begins with `first`, before `end` or before the
/// end of the chain.
///
/// # Safety
///
/// The chain must be valid.
unsafe fn requests_before(
    first: *const bindings::ib_send_wr,
    end: *const bindings::ib_send_wr,
) -> usize {
    let mut count = 0;
    let mut at = first;
    while !at.is_null() && at != end {
        count += 1;
        // SAFETY: By the safety requirement, as it is not NULL.
        at = unsafe { (*at).next };
    }
    count
}

/// A key that a request has bound, or the status of the request and the unbound key.
pub(crate) type BindResult = core::result::Result<Mkey<Bound>, (Status, Mkey<Unbound>)>;

impl Qp {
    /// Posts the chain that begins with `first`, and waits for its requests. Returns the status of
    /// the first one that failed.
    ///
    /// # Errors
    ///
    /// The error of the first request that cannot be posted. The requests before it have completed
    /// then.
    ///
    /// # Safety
    ///
    /// The chain must be valid until this returns, and the memory and the keys that its requests
    /// name, too.
    unsafe fn run(&mut self, first: *const bindings::ib_send_wr) -> Result<Status> {
        let mut refused = first;
        // SAFETY: By the safety requirement. Posting copies the requests.
        let error = unsafe { bindings::ib_post_send(self.raw.as_ptr(), first, &mut refused) };
        let posted = to_result(error);
        let end = match posted {
            Ok(()) => ptr::null(),
            Err(_) => refused,
        };
        // SAFETY: By the safety requirement.
        let count = unsafe { requests_before(first, end) };
        let mut status = Status::SUCCESS;
        let mut in_time = Ok(());
        for _ in 0..count {
            match self.complete() {
                Ok(one) if status == Status::SUCCESS => status = one,
                Ok(_) => (),
                // All requests complete, because the queue pair is in the error state.
                Err(error) => in_time = Err(error),
            }
        }
        posted.and(in_time).map(|()| status)
    }

    /// Binds `key` to its staged layout, with the access flags `access`: REG_MR. If the status is
    /// not [`Status::SUCCESS`], the key is unbound.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a key of another protection domain, `ETIMEDOUT`; the errors of posting. The key
    /// is dropped then.
    pub(crate) fn bind(&mut self, key: Mkey<Staged>, access: Access) -> Result<BindResult> {
        self.check_key(&key)?;
        let request = key.request(access);
        // SAFETY: The request is valid, and so is the key.
        let status = unsafe { self.run(&request.wr) }?;
        if status == Status::SUCCESS {
            Ok(Ok(key.into_bound()))
        } else {
            Ok(Err((status, key.unstage()?)))
        }
    }

    /// Unbinds `key`: LOCAL_INV. When this returns, no access to the leaves through the key is in
    /// progress. If the request fails, a call unbinds the key.
    ///
    /// # Errors
    ///
    /// Those of [`Self::bind`].
    pub(crate) fn unbind(&mut self, key: Mkey<Bound>) -> Result<(Status, Mkey<Unbound>)> {
        self.check_key(&key)?;
        let request = unbinding(key.rkey());
        // SAFETY: The request is valid, and so is the key.
        let status = unsafe { self.run(&request) }?;
        if status == Status::SUCCESS {
            Ok((status, key.into_unbound()))
        } else {
            Ok((status, key.unbind()?))
        }
    }

    /// Binds `key` to its staged layout, does `work` with the first `len` bytes of the key as the
    /// local side, and unbinds the key, in one chain of requests. Returns the status of the first
    /// request that failed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::bind`]; `EINVAL` for other work than a WRITE or a READ.
    pub(crate) fn execute_staged(
        &mut self,
        key: Mkey<Staged>,
        work: Work,
        len: u32,
        remote: Remote,
    ) -> Result<(Status, Mkey<Unbound>)> {
        let opcode = match work {
            Work::Write => bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
            Work::Read => bindings::ib_wr_opcode_IB_WR_RDMA_READ,
            Work::FetchAdd(_) => return Err(EINVAL),
        };
        self.check_key(&key)?;
        let mut sge = bindings::ib_sge {
            addr: 0,
            length: len,
            lkey: key.lkey(),
        };
        let mut unbind = unbinding(key.rkey());
        // SAFETY: All-zero is valid: null pointers and integers.
        let mut rdma: bindings::ib_rdma_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        rdma.wr.opcode = opcode;
        rdma.wr.sg_list = &mut sge;
        rdma.wr.num_sge = 1;
        rdma.wr.next = &raw mut unbind;
        rdma.remote_addr = remote.addr;
        rdma.rkey = remote.rkey;
        let mut bind = key.request(Right::LocalWrite.into());
        bind.wr.next = &raw mut rdma.wr;
        // SAFETY: The three requests are valid, and so are the key and the leaves that it holds.
        let status = unsafe { self.run(&bind.wr) }?;
        if status == Status::SUCCESS {
            Ok((status, key.into_bound().into_unbound()))
        } else {
            Ok((status, key.unstage()?))
        }
    }
}
