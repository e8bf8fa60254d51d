// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests that need no device.

use std::{
    fs::File,
    os::fd::AsFd, //
};

use super::*;

fn slice(address: u64, length: u64) -> Slice<'static> {
    // SAFETY: No key is bound to the slice.
    unsafe { Slice::from_raw(7, address, length) }
}

#[test]
fn a_slice_of_a_slice_is_within_it() {
    let all = slice(1000, 100);

    assert_eq!(all.slice(10..30), Ok(slice(1010, 20)));
    assert_eq!(all.slice(0..100), Ok(all));
    assert_eq!(all.slice(100..100), Ok(slice(1100, 0)));
    assert_eq!(all.slice(99..101), Err(Errno::ERANGE));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 30..10;
    assert_eq!(all.slice(reversed), Err(Errno::ERANGE));
    assert_eq!(slice(u64::MAX, 10).slice(5..6), Err(Errno::EOVERFLOW));
}

#[test]
fn blocks_have_a_stride_for_each_dimension() {
    let good = Interleaved::new(&[2, 3])
        .block(slice(8, 4), &[100, -10])
        .block(slice(50, 2), &[0, 1]);

    assert_eq!(good.check(), Ok(()));
    assert_eq!(good.repeat, [2, 3]);
    let first = good
        .blocks
        .first()
        .map(|block| (block.addr, block.bytes_count, block.lkey, block.stride));
    assert_eq!(first, Some((8, 4, 7, [100, -10, 0, 0, 0, 0, 0, 0])));

    let short = Interleaved::new(&[2, 3]).block(slice(8, 4), &[100]);
    assert_eq!(short.check(), Err(Errno::EINVAL));
    assert_eq!(
        last_error(),
        "blocks[0] has 1 strides in a layout of 2 dimensions"
    );
    let second = Interleaved::new(&[2])
        .block(slice(8, 4), &[100])
        .block(slice(8, 4), &[1, 2, 3]);
    assert_eq!(second.check(), Err(Errno::EINVAL));
    assert_eq!(
        last_error(),
        "blocks[1] has 3 strides in a layout of 1 dimensions"
    );
    let long = Interleaved::new(&[1; 9]).block(slice(8, 4), &[1; 9]);
    assert_eq!(long.check(), Err(Errno::EINVAL));
    assert_eq!(
        last_error(),
        "repeat[8] is one dimension too many: 9 of at most 8"
    );
}

#[test]
fn indexed_blocks_are_within_their_table() {
    let table = slice(0, 100);

    assert_eq!(Indexed::new(table, 10, 10, &[9, 0, 9]).check(), Ok(()));
    assert_eq!(
        Indexed::new(table, 10, 11, &[0, 9]).check(),
        Err(Errno::ERANGE)
    );
    assert_eq!(
        last_error(),
        "indices[1] is 9: the block reaches outside the table of 100 bytes"
    );
    assert_eq!(
        Indexed::new(table, 10, 10, &[10]).check(),
        Err(Errno::ERANGE)
    );
    assert_eq!(
        Indexed::new(table, u64::MAX, 10, &[2]).check(),
        Err(Errno::EOVERFLOW)
    );
}

#[test]
fn access_flags_are_combined() {
    let both = Access::LOCAL_WRITE | Access::REMOTE_READ;

    assert_eq!(both.bits(), 5);
    assert_eq!(Access::default(), Access::LOCAL_READ);
}

#[test]
fn elements_are_bytes() {
    let mut pairs = [[1u16, 2], [3, 0x0405]];

    assert_eq!(bytes(&pairs).len(), 8);
    assert_eq!(bytes(&pairs).get(6..), Some(&0x0405u16.to_ne_bytes()[..]));
    bytes_mut(&mut pairs).fill(9);
    assert_eq!(pairs, [[0x0909; 2]; 2]);
    assert_eq!(bytes::<[u64; 0]>(&[[], []]), []);
}

/// Runs a test with a protection domain of /dev/null, on which every call fails.
fn without_device(test: impl FnOnce(&Pd<'_>)) {
    if let Ok(null) = File::open("/dev/null") {
        // SAFETY: The descriptor is not that of a device, so every call fails.
        test(&unsafe { Pd::from_handle(null.as_fd(), 0) });
    }
}

#[test]
fn a_scope_registers_nothing_that_is_wrong() {
    without_device(|pd| {
        let (mut array, mut other, fixed) = ([0u64; 4], [0u64; 4], [1u8; 4]);
        let write = Access::LOCAL_WRITE;
        let errno = |result: Result<Key<'_>>| result.map(drop).map_err(Errno::get);

        pd.scope(|scope| {
            // The library refuses these flags before it calls the kernel.
            for flags in [write, Access::REMOTE_READ | write, Access::REMOTE_ATOMIC] {
                let shared = scope.share(&fixed, flags);
                assert_eq!(shared.map(drop), Err(Errno::EINVAL));
            }
            let far = scope.strided(&mut array, 3..5, &[1], &[0], write);
            assert_eq!(errno(far), Err(libc::ERANGE));
            let huge = scope.strided(&mut other, 0..1, &[2], &[i64::MAX / 4], write);
            assert_eq!(errno(huge), Err(libc::EOVERFLOW));
            // The registration fails, so the scope has nothing to deregister.
            let one = scope.gather_shared([&fixed[..]], Access::REMOTE_READ);
            assert_eq!(errno(one), Err(libc::EOPNOTSUPP));
        });
        array.fill(1);
        assert_eq!(pd.scope(|_| 5), 5);
        assert_eq!(
            pd.alloc_dm(4096, write).map(drop).map_err(Errno::get),
            Err(libc::EOPNOTSUPP)
        );
    });
}

#[test]
fn a_layout_that_is_wrong_creates_no_key() {
    without_device(|pd| {
        let table = slice(0, 100);
        let strided = Key::of_strided(pd, table, &[2, 2], &[4], Access::LOCAL_READ);
        assert_eq!(strided.map(drop), Err(Errno::EINVAL));
        let rows = Indexed::new(table, 10, 10, &[10]);
        let indexed = Key::of_indexed(pd, &rows, Access::LOCAL_READ);
        assert_eq!(indexed.map(drop), Err(Errno::ERANGE));
        let list = Key::of_slices(pd, &[table], Access::LOCAL_READ);
        assert_eq!(list.map(drop).map_err(Errno::get), Err(libc::EOPNOTSUPP));
    });
}

#[test]
fn errors_of_the_kernel_come_through() {
    let null = File::open("/dev/null");
    let Ok(null) = null else { return };
    // SAFETY: The descriptor is not that of a device, so every call fails.
    let pd = unsafe { Pd::from_handle(null.as_fd(), 0) };
    let errno = |error: Errno| error.get();

    assert_eq!(
        pd.register(vec![0u8; 10], Access::default())
            .map(drop)
            .map_err(errno),
        Err(libc::EOPNOTSUPP)
    );
    assert_eq!(
        Key::new(&pd, 1).map(drop).map_err(errno),
        Err(libc::EOPNOTSUPP)
    );
    // SAFETY: NULL is allowed.
    let none = unsafe { Pd::from_raw(core::ptr::null_mut()) };
    assert_eq!(none.map(drop), Err(Errno::EINVAL));
}
