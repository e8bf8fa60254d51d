// SPDX-License-Identifier: GPL-2.0

//! An MR over pages of the kernel.

use super::bindings::rxe_mr;
use crate::{
    bindings::{ib_mr_type_IB_MR_TYPE_USER as TYPE_USER, page},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{mr::Right, Access, Mr},
    },
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// Implements [`Backend::fill`](crate::backend::interface::Backend::fill), except for the state of the
/// MR. `private` is rxe's part of `mr`.
pub(super) fn fill(
    mr: &Mr,
    private: NonNull<rxe_mr>,
    pages: impl Iterator<Item = Option<*mut page>>,
    addr: u64,
    length: u64,
    access: Access,
) -> Result {
    let private = private.as_ptr();
    for (index, page) in pages.enumerate() {
        let page = page.ok_or_else(eopnotsupp)?;
        // SAFETY: The MR is new, and no peer knows its key. The index is checked against the
        // number of pages that the MR was allocated for.
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
    // The MR gets the type of user memory. Stock rxe allows LOCAL_INV on MRs of any protection
    // domain, but refuses it for this type.
    // SAFETY: As above.
    unsafe {
        (*mr.as_raw()).type_ = TYPE_USER;
        // `MW_BIND` is left out for the reason in `publish()`.
        (*private).access = (access & !Access::from(Right::MwBind)).into_raw() as i32;
        (*mr.as_raw()).iova = addr;
        (*mr.as_raw()).length = length;
    }
    Ok(())
}
