// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Descriptions of layouts, in the form that the kernel reads.

use core::slice;

use ibmkey::{
    explain::say,
    ffi,
    sys::{
        ib_uverbs_mkey_block,
        ib_uverbs_mkey_sge,
        ibmkey_bind,
        ibv_sge,
        IBMKEY_INTERLEAVED,
        IBMKEY_LIST, //
    },
    Errno,
    Result, //
};

use crate::sys::mlx5dv_mr_interleaved;

/// A description, and vectors that are used again, so that most descriptions need no allocation.
#[derive(Default)]
pub(crate) struct Description {
    ranges: Vec<ib_uverbs_mkey_sge>,
    blocks: Vec<ib_uverbs_mkey_block>,
    /// The description; empty if there is none.
    pub(crate) text: Vec<u8>,
}

/// Replaces the elements of `to`.
fn refill<T>(to: &mut Vec<T>, from: impl ExactSizeIterator<Item = T>) -> Result {
    to.clear();
    to.try_reserve(from.len()).map_err(|_| Errno::ENOMEM)?;
    to.extend(from);
    Ok(())
}

/// Returns the elements of an array of C.
///
/// # Safety
///
/// `array` is NULL or has `num` elements.
unsafe fn elements<'a, T>(array: *const T, num: u16) -> Result<&'a [T]> {
    if array.is_null() || num == 0 {
        return Err(say(Errno::EINVAL, "there are no entries"));
    }
    // SAFETY: By the caller's promise.
    Ok(unsafe { slice::from_raw_parts(array, num.into()) })
}

impl Description {
    /// Describes ranges. `mask` has bits of `enum ibmkey_bind_mask`.
    ///
    /// # Safety
    ///
    /// `sge` is NULL or has `num` elements.
    pub(crate) unsafe fn list(&mut self, mask: u64, num: u16, sge: *const ibv_sge) -> Result {
        // SAFETY: By the caller's promise.
        let sge = unsafe { elements(sge, num) }?;
        let ranges = sge.iter().map(|sge| ib_uverbs_mkey_sge {
            addr: sge.addr,
            length: sge.length.into(),
            lkey: sge.lkey,
            comp_mask: 0,
        });

        refill(&mut self.ranges, ranges)?;
        let mut bind = ibmkey_bind {
            comp_mask: mask,
            kind: IBMKEY_LIST,
            num_entries: num.into(),
            ..ibmkey_bind::default()
        };
        bind.__bindgen_anon_1.ranges = self.ranges.as_ptr();
        // SAFETY: The array of `bind` has `num` elements.
        unsafe { self.describe(&bind) }
    }

    /// Describes blocks that repeat. `mask` has bits of `enum ibmkey_bind_mask`.
    ///
    /// # Safety
    ///
    /// `data` is NULL or has `num` elements.
    pub(crate) unsafe fn interleaved(
        &mut self,
        mask: u64,
        repeat_count: u32,
        num: u16,
        data: *const mlx5dv_mr_interleaved,
    ) -> Result {
        // SAFETY: By the caller's promise.
        let data = unsafe { elements(data, num) }?;
        let blocks = data.iter().map(|block| {
            let mut stride = [0; 8];
            let [first, ..] = &mut stride;

            *first = i64::from(block.bytes_count).wrapping_add(block.bytes_skip.into());
            ib_uverbs_mkey_block {
                addr: block.addr,
                bytes_count: block.bytes_count.into(),
                lkey: block.lkey,
                comp_mask: 0,
                stride,
            }
        });

        refill(&mut self.blocks, blocks)?;
        let repeat_count = u64::from(repeat_count);
        let mut bind = ibmkey_bind {
            comp_mask: mask,
            kind: IBMKEY_INTERLEAVED,
            num_entries: num.into(),
            num_dims: 1,
            repeat_count: &repeat_count,
            ..ibmkey_bind::default()
        };
        bind.__bindgen_anon_1.blocks = self.blocks.as_ptr();
        // SAFETY: The arrays of `bind` have as many elements as it says.
        unsafe { self.describe(&bind) }
    }

    /// # Safety
    ///
    /// The arrays of `bind` have as many elements as it says.
    unsafe fn describe(&mut self, bind: &ibmkey_bind) -> Result {
        // SAFETY: By the caller's promise.
        let length = unsafe { ffi::ibmkey_describe(bind, core::ptr::null_mut(), 0) };
        if length == 0 {
            return Err(Errno::last());
        }
        self.text.clear();
        self.text.try_reserve(length).map_err(|_| Errno::ENOMEM)?;
        self.text.resize(length, 0);
        // SAFETY: By the caller's promise. `text` has room for `length` bytes.
        unsafe { ffi::ibmkey_describe(bind, self.text.as_mut_ptr().cast(), length) };
        Ok(())
    }
}
