// SPDX-License-Identifier: GPL-2.0

//! Arrays of uAPI structures in user memory.
//!
//! C header: [`include/uapi/rdma/ib_mkey_ioctl.h`](srctree/include/uapi/rdma/ib_mkey_ioctl.h)

use crate::bindings;
use core::mem::size_of;
use kernel::{
    prelude::*,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
};

pub(crate) use bindings::{
    ib_uverbs_mkey_bind as Bind, //
    ib_uverbs_mkey_block as Block,
    ib_uverbs_mkey_sge as Sge,
};

// SAFETY: Integers only, any bit pattern is valid.
unsafe impl FromBytes for Sge {}
// SAFETY: Integers only, any bit pattern is valid.
unsafe impl FromBytes for Block {}
// SAFETY: Integers only, any bit pattern is valid.
unsafe impl FromBytes for Bind {}
// SAFETY: Integers only, and no padding: the last two fields fill a word.
unsafe impl AsBytes for Block {}

/// Structures that are read between looks at whether the process was killed.
const AT_ONCE: u32 = 256;

/// Reads `count` structures at user address `addr`, each handed to `each`.
///
/// # Errors
///
/// `EINTR` if the process was killed meanwhile,
/// `EFAULT` for memory that cannot be read, `EOVERFLOW` for an array that does not fit the address
/// space, and what `each` returns.
pub(crate) fn read_array<T: FromBytes>(
    addr: u64,
    count: u32,
    mut each: impl FnMut(T) -> Result,
) -> Result {
    let len = size_of::<T>()
        .checked_mul(usize::try_from(count)?)
        .ok_or(EOVERFLOW)?;
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    let mut reader = UserSlice::new(addr, len).reader();
    for index in 0..count {
        if index % AT_ONCE == 0 {
            super::check_killed()?;
        }
        each(reader.read::<T>()?)?;
    }
    Ok(())
}

/// Writes structures to user address `addr`, of which `room` fit.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be written, `EOVERFLOW` as for [`read_array`].
pub(crate) fn write_array<'a, T: AsBytes + 'a>(
    addr: u64,
    room: u32,
    items: impl Iterator<Item = &'a T>,
) -> Result {
    let len = size_of::<T>()
        .checked_mul(usize::try_from(room)?)
        .ok_or(EOVERFLOW)?;
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    let mut writer = UserSlice::new(addr, len).writer();
    for item in items.take(usize::try_from(room)?) {
        writer.write(item)?;
    }
    Ok(())
}
