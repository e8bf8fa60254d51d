// SPDX-License-Identifier: GPL-2.0

//! Arrays of structures in user memory.

use crate::{bindings, kernel_ext::sched};
use core::{
    mem::{align_of, size_of, size_of_val, MaybeUninit},
    ptr,
    slice, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    ffi::{c_ulong, c_void},
    prelude::*,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
};

/// The number of 8-byte words that are read at once without a buffer. They fit the stack, of which
/// binds of nested keys take most. After each such read, `check_killed()` runs.
const AT_ONCE: usize = 48;

/// The number of 8-byte words of a buffer for long arrays. A read takes 300 instructions besides
/// those of the copy.
const LONG: usize = 1024;

/// Reads `count` structures at user address `addr` and calls `each` with as many of them at a time
/// as fit the stack or a buffer, in order.
///
/// # Errors
///
/// `EINTR` if the process was killed meanwhile, `EFAULT` for memory that cannot be read,
/// `EOVERFLOW` for an array that does not fit the address space, and the errors of `each`.
#[inline(always)]
pub(crate) fn read_chunks<T: FromBytes>(
    addr: u64,
    count: u32,
    mut each: impl FnMut(&[T]) -> Result,
) -> Result {
    let len = size_of::<T>()
        .checked_mul(usize::try_from(count)?)
        .ok_or(EOVERFLOW)?;
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    let mut reader = UserSlice::new(addr, len).reader();
    let mut short = [const { MaybeUninit::<u64>::uninit() }; AT_ONCE];
    const {
        assert!(align_of::<T>() <= align_of::<u64>());
        assert!(size_of::<T>() != 0 && size_of::<T>() <= size_of::<[u64; AT_ONCE]>());
    };
    // If there is no memory for a buffer, the reads are shorter.
    let mut long = if len > size_of_val(&short) {
        let room = LONG.min(len.div_ceil(size_of::<u64>()));
        KVec::<u64>::with_capacity(room, GFP_KERNEL | __GFP_NOWARN).ok()
    } else {
        None
    };
    let words: &mut [MaybeUninit<u64>] = match &mut long {
        Some(long) => long.spare_capacity_mut(),
        None => &mut short,
    };
    let whole = size_of_val(words) - size_of_val(words) % size_of::<T>();
    while !reader.is_empty() {
        sched::check_killed()?;
        let bytes = whole.min(reader.len());
        let start = words.as_mut_ptr();
        // SAFETY: `bytes` is at most the size of `words`, and there is no other reference to
        // `words`.
        reader.read_raw(unsafe { slice::from_raw_parts_mut(start.cast(), bytes) })?;
        // SAFETY: All bytes of these structures were written, and stay as they are until `each`
        // returns. Any bit pattern is a valid `T`, and the alignment of `T` is at most that of a
        // word.
        each(unsafe { slice::from_raw_parts(start.cast::<T>(), bytes / size_of::<T>()) })?;
    }
    Ok(())
}

/// Reads `count` structures at user address `addr` and calls `each` with each one.
///
/// # Errors
///
/// Those of [`read_chunks`].
pub(crate) fn read_array<T: FromBytes>(
    addr: u64,
    count: u32,
    mut each: impl FnMut(T) -> Result,
) -> Result {
    read_chunks(addr, count, |structures: &[T]| {
        structures.iter().try_for_each(|one| {
            // SAFETY: The reference is valid for reads, and any bit pattern is a valid `T`.
            each(unsafe { ptr::from_ref(one).read() })
        })
    })
}

/// Reads the structures at user address `addr` into `to`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be read. Some of the structures may have been read.
#[inline]
pub(crate) fn read_slice<T: FromBytes>(addr: u64, to: &mut [T]) -> Result {
    let from = usize::try_from(addr)? as *const c_void;
    let len = size_of_val(to);
    // SAFETY: `to` is valid for writes of `len` bytes, and any bytes are valid structures. The
    // function checks that the other address is one of the process.
    let left = unsafe { bindings::_copy_from_user(to.as_mut_ptr().cast(), from, len as c_ulong) };
    if left == 0 {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Reads the structure at user address `addr`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be read.
pub(crate) fn read_one<T: FromBytes>(addr: u64) -> Result<T> {
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    UserSlice::new(addr, size_of::<T>()).reader().read()
}

/// The number of bytes of an array that are copied between two calls of `check_killed()`.
const CHUNK: usize = 64 << 10;

/// Appends the `count` numbers at user address `addr` to `to`, which must have room for them.
///
/// # Errors
///
/// Those of [`read_array`]; `ENOMEM` if `to` lacks room. Numbers that were read before the error
/// stay appended.
pub(crate) fn read_all<T: FromBytes>(addr: u64, count: u32, to: &mut KVVec<T>) -> Result {
    const { assert!(size_of::<T>() > 0 && CHUNK % size_of::<T>() == 0) };
    let mut left = usize::try_from(count)?;
    let len = size_of::<T>().checked_mul(left).ok_or(EOVERFLOW)?;
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    let mut reader = UserSlice::new(addr, len).reader();
    while left > 0 {
        sched::check_killed()?;
        let number = left.min(CHUNK / size_of::<T>());
        let room = to.spare_capacity_mut().get_mut(..number).ok_or(ENOMEM)?;
        // SAFETY: This is the same memory as bytes. Only initialised bytes are written to it.
        let bytes = unsafe {
            slice::from_raw_parts_mut(
                room.as_mut_ptr().cast::<MaybeUninit<u8>>(),
                size_of_val(room),
            )
        };
        reader.read_raw(bytes)?;
        // SAFETY: `number` spare elements exist, and all of their bytes have been initialised; any
        // bit pattern is valid.
        unsafe { to.inc_len(number) };
        left = left.saturating_sub(number);
    }
    Ok(())
}

/// Writes `items` to user address `addr`.
///
/// # Errors
///
/// `EFAULT` for memory that cannot be written.
pub(crate) fn write_all<T: AsBytes>(addr: u64, items: &[T]) -> Result {
    let addr = UserPtr::from_addr(usize::try_from(addr)?);
    UserSlice::new(addr, size_of_val(items))
        .writer()
        .write_slice(items.as_bytes())
}

/// Writes at most `room` structures to user address `addr`.
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
