// SPDX-License-Identifier: GPL-2.0

//! Arrays of structures in user memory.

use crate::kernel_ext::sched;
use core::slice;
use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice},
};
use zerocopy::{Immutable, KnownLayout};

/// The number of bytes that are read between two calls of `check_killed()`.
const CHUNK: usize = 8 << 10;

/// The number of 8-byte words of a short array, which is read into a buffer on the stack.
const SHORT: usize = 24;

/// Returns the user memory of `count` structures at address `addr`.
fn memory<T>(addr: u64, count: usize) -> Result<UserSlice> {
    let len = size_of::<T>().checked_mul(count).ok_or(EOVERFLOW)?;
    Ok(UserSlice::new(
        UserPtr::from_addr(usize::try_from(addr)?),
        len,
    ))
}

/// Reads `count` structures at user address `addr` and calls `each` with as many of them at a time
/// as fit a buffer, in order.
///
/// # Errors
///
/// `EINTR` if the process was killed meanwhile, `EFAULT` for memory that cannot be read,
/// `EOVERFLOW` for an array that does not fit the address space, `ENOMEM`, and the errors of
/// `each`.
pub(crate) fn read_chunks<T: FromBytes + Immutable + KnownLayout, E: From<Error>>(
    addr: u64,
    count: u32,
    mut each: impl FnMut(&[T]) -> Result<(), E>,
) -> Result<(), E> {
    const { assert!(align_of::<T>() <= align_of::<u64>()) };
    let mut reader = memory::<T>(addr, count as usize)?.reader();
    let whole = const { CHUNK - CHUNK % size_of::<T>() };
    let words = reader.len().min(whole).div_ceil(size_of::<u64>());
    let mut short = [0u64; SHORT];
    let mut long;
    let buffer = if words <= SHORT {
        &mut short
    } else {
        long = KVec::from_elem(0u64, words, GFP_KERNEL).map_err(Error::from)?;
        long.as_mut_slice()
    };
    while !reader.is_empty() {
        sched::check_killed()?;
        let bytes = buffer.as_mut_bytes();
        let bytes = bytes.get_mut(..reader.len().min(whole)).ok_or(EINVAL)?;
        reader.read_slice(bytes)?;
        each(<[T]>::ref_from_bytes(bytes).map_err(|_| EINVAL)?)?;
    }
    Ok(())
}

/// Reads the structures at user address `addr` into `to`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be read. Some of the structures may have been read.
pub(crate) fn read_slice<T: FromBytes + IntoBytes>(addr: u64, to: &mut [T]) -> Result {
    let mut reader = memory::<T>(addr, to.len())?.reader();
    reader.read_slice(to.as_mut_bytes())
}

/// Reads the structure at user address `addr`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be read.
pub(crate) fn read_one<T: FromBytes + IntoBytes>(addr: u64) -> Result<T> {
    let mut one = T::new_zeroed();
    read_slice(addr, slice::from_mut(&mut one))?;
    Ok(one)
}

/// Appends the `count` numbers at user address `addr` to `to`, which must have room for them.
///
/// # Errors
///
/// The errors of [`read_chunks`]; `ENOMEM` if `to` lacks room. Numbers that were read before the
/// error stay appended.
pub(crate) fn read_all<T: FromBytes>(addr: u64, count: u32, to: &mut KVVec<T>) -> Result {
    const { assert!(CHUNK % size_of::<T>() == 0) };
    let mut reader = memory::<T>(addr, count as usize)?.reader();
    while !reader.is_empty() {
        sched::check_killed()?;
        let number = reader.len().min(CHUNK) / size_of::<T>();
        let room = to.spare_capacity_mut().get_mut(..number).ok_or(ENOMEM)?;
        let (start, size) = (room.as_mut_ptr().cast(), size_of_val(room));
        // SAFETY: This is the same memory as bytes. Only initialised bytes are written to it.
        let bytes = unsafe { slice::from_raw_parts_mut(start, size) };
        reader.read_raw(bytes)?;
        // SAFETY: `number` spare elements exist, and all of their bytes have been initialised. Any
        // bytes are a valid `T`.
        unsafe { to.inc_len(number) };
    }
    Ok(())
}

/// Writes `items` to user address `addr`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be written.
pub(crate) fn write_all<T: IntoBytes + Immutable>(addr: u64, items: &[T]) -> Result {
    let mut writer = memory::<T>(addr, items.len())?.writer();
    writer.write_slice(items.as_bytes())
}
