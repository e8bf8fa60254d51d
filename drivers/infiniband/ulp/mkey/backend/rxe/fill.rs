// SPDX-License-Identifier: GPL-2.0

//! An MR over pages of the kernel.

use super::claimed::RxeMr;
use crate::{
    backend::interface::MrRange,
    bindings::{ib_mr_type_IB_MR_TYPE_USER as TYPE_USER, page},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{
            mr::{NewMr, Right},
            Access,
        },
    },
};
use kernel::prelude::*;

/// Fills a new MR with `pages`: `length` bytes from address `addr` on. The first byte is in the
/// first page. The state does not change.
///
/// # Safety
///
/// If the caller makes the MR valid, the pages must stay until rxe has deregistered it.
pub(super) unsafe fn fill<'a>(
    new: NewMr<'a>,
    pages: impl Iterator<Item = Option<*mut page>>,
    addr: u64,
    length: u64,
    access: Access,
) -> Result<&'a RxeMr> {
    let mr = RxeMr::of(new.into_mr()).ok_or(EINVAL)?;
    let private = mr.private();
    for (index, page) in pages.enumerate() {
        let page = page.ok_or_else(eopnotsupp)?;
        // SAFETY: The MR is new, so rxe does not use its page table. The index is checked against
        // the number of pages that the MR was allocated for.
        unsafe {
            if index >= (*private).num_buf as usize {
                return Err(EINVAL);
            }
            let info = (*private).page_info.add(index);
            (*info).page = page;
            (*info).offset = 0;
            (*private).nbuf = index as u32 + 1;
        }
    }
    // The MR gets the type of user memory. rxe allows LOCAL_INV on MRs of any protection
    // domain, but refuses it for this type.
    mr.set_kind(TYPE_USER);
    // `MW_BIND` is left out for the reason in `publish()`.
    mr.set_access(access & !Access::from(Right::MwBind));
    mr.set_range(MrRange {
        start: addr,
        len: length,
    });
    Ok(mr)
}
