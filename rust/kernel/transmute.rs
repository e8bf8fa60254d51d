// SPDX-License-Identifier: GPL-2.0

//! Structures of C as bytes, and bytes as structures of C.

use core::slice;
use kernel::transmute::FromBytes;

/// Returns `bytes` as an array. Returns [`None`] for a part of an element, and for bytes that are
/// not aligned as the elements are.
#[inline]
pub(crate) fn slice_of<T: FromBytes>(bytes: &[u8]) -> Option<&[T]> {
    const { assert!(size_of::<T>() != 0) };
    let start = bytes.as_ptr().cast::<T>();
    if bytes.len() % size_of::<T>() != 0 || !start.is_aligned() {
        return None;
    }
    // SAFETY: The bytes are valid for reads, aligned, and as many as the elements have. Any bytes
    // are a valid `T`.
    Some(unsafe { slice::from_raw_parts(start, bytes.len() / size_of::<T>()) })
}

/// Implements [`FromBytes`] and [`AsBytes`] for a C structure, all of whose fields are listed. The
/// types of the fields must have both, and there must be no padding: the compiler checks that.
///
/// [`FromBytes`]: kernel::transmute::FromBytes
/// [`AsBytes`]: kernel::transmute::AsBytes
macro_rules! plain_bytes {
    ($structure:ident { $($field:ident: $ty:ty),+ $(,)? }) => {
        const _: () = {
            const fn size<T: ::kernel::transmute::FromBytes + ::kernel::transmute::AsBytes>() -> usize {
                ::core::mem::size_of::<T>()
            }
            // The pattern has all fields.
            let _ = |this: $structure| -> ($($ty,)+) {
                let $structure { $($field),+ } = this;
                ($($field,)+)
            };
            assert!(0 $(+ size::<$ty>())+ == size::<$structure>());
        };
        // SAFETY: All fields take any bytes, as the constant above shows.
        unsafe impl ::kernel::transmute::FromBytes for $structure {}
        // SAFETY: All fields are bytes, and there is no padding, as the constant above shows.
        unsafe impl ::kernel::transmute::AsBytes for $structure {}
    };
}
pub(crate) use plain_bytes;
