// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests the translation of a caller's arrays for the kernel.

use super::*;

/// Translates `items` and returns the elements that the kernel would read.
fn seen(items: &[u32]) -> Vec<u64> {
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    // SAFETY: The slice has `count` elements, and outlives `array`.
    let array = unsafe { Array::from_raw(count, items.as_ptr()) };
    let result = array.translated(
        |&item| u64::from(item) << 32,
        |at| {
            // SAFETY: `translated()` passes as many elements.
            Ok(unsafe { core::slice::from_raw_parts(at, items.len()) }.to_vec())
        },
    );

    result.unwrap_or_default()
}

#[test]
fn arrays_are_translated_on_the_stack_and_on_the_heap() {
    for len in [1, ON_STACK, ON_STACK.saturating_add(1), 65536] {
        let items: Vec<u32> = (1..).take(len).collect();
        let expected: Vec<u64> = items.iter().map(|&item| u64::from(item) << 32).collect();

        assert_eq!(seen(&items), expected, "{len}");
    }
}

#[test]
fn what_cannot_be_read_is_left_to_the_kernel() {
    let one = 1u32;
    let cases: [(u32, *const u32); 3] = [
        (1, core::ptr::null()),
        (sys::IB_MKEY_MAX_ENTRIES.saturating_add(1), &one),
        (u32::MAX, &one),
    ];

    for (count, items) in cases {
        // SAFETY: `from_raw()` reads no elements if the pointer is NULL or the count is this large.
        let array = unsafe { Array::from_raw(count, items) };

        assert_eq!(array.count, count);
        assert_eq!(
            array.translated(|&item| item, |at| Ok(at.is_null())),
            Ok(true)
        );
    }
}

#[test]
fn the_length_is_the_product_of_repetitions_and_bytes() {
    assert_eq!(length(&[], [1, 2, 3].into_iter()), 6);
    assert_eq!(length(&[4, 5], [1, 2, 3].into_iter()), 120);
    assert_eq!(length(&[1 << 40, 1], [5].into_iter()), 5 << 40);
    assert_eq!(length(&[], [].into_iter()), 0);
}

#[test]
fn an_error_of_the_call_comes_through() {
    let list = [Range::default()];
    // SAFETY: `list` has one element, and outlives `array`.
    let array = unsafe { Array::from_raw(1, list.as_ptr()) };
    let errno = |result: Result<Bound>| result.map(drop).map_err(Errno::get);

    assert_eq!(errno(bind_list(-1, 0, 0, array)), Err(libc::EBADF));
    assert_eq!(errno(unbind(-1, 0)), Err(libc::EBADF));
}
