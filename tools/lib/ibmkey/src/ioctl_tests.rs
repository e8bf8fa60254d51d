// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Checks the bytes that the kernel would read; see `struct ib_uverbs_attr`.

use super::*;

const OBJECT: u32 = sys::UVERBS_OBJECT_MR;
const METHOD: u32 = sys::IB_MKEY_METHOD_QUERY;

fn attrs<'a, const N: usize>(command: &'a Command<'_, N>) -> &'a [Attr] {
    &command.message.attrs[..command.used]
}

fn attr(id: u16, len: u16, data: u64) -> Attr {
    Attr {
        id,
        len,
        flags: 1,
        reserved: 0,
        data,
    }
}

#[test]
fn the_ioctl_number_has_the_size_of_the_header() {
    // _IOC_SIZE and _IOC_TYPE are at these positions on every architecture with the generic
    // numbering.
    assert_eq!(
        (sys::ibmkey_verbs_ioctl >> 16) & 0x1fff,
        size_of::<Message<0>>() as _
    );
    assert_eq!((sys::ibmkey_verbs_ioctl >> 8) & 0xff, 0x1b);
}

#[test]
fn driver_methods_are_in_their_name_space() {
    assert_eq!(METHOD, 0x1004);
    assert_eq!(sys::IB_MKEY_METHOD_QUERY_CAPS, 0x1006);
    assert_eq!(sys::IB_MKEY_METHOD_DM_COPY, 0x1003);

    let command = Command::<1>::new(OBJECT, METHOD);
    assert_eq!(command.message.object_id, 7);
    assert_eq!(command.message.method_id, 0x1004);
}

#[test]
fn handles_are_data_without_length() {
    let command = Command::<2>::new(OBJECT, METHOD)
        .object(0x1000, 0x8000_0001)
        .new_object(0x1001);

    assert_eq!(
        attrs(&command),
        [attr(0x1000, 0, 0x8000_0001), attr(0x1001, 0, 0)]
    );
}

#[test]
fn up_to_eight_bytes_are_inline() {
    let one = [0x1122_3344_5566_7788u64];
    let two = [1u32, 2];
    let command = Command::<4>::new(OBJECT, METHOD)
        .slice::<u64>(1, &[])
        .slice(2, &one)
        .slice(3, &two)
        .u64(4, u64::MAX);

    assert_eq!(
        attrs(&command),
        [
            attr(1, 0, 0),
            attr(2, 8, one[0]),
            attr(3, 8, u64::from_ne_bytes(bytes(&two))),
            attr(4, 8, u64::MAX),
        ]
    );
}

#[test]
fn a_word_is_at_the_start_of_the_data() {
    let command = Command::<1>::new(OBJECT, METHOD).u32(9, 0xdead_beef);
    let data = attrs(&command)[0].data.to_ne_bytes();

    assert_eq!(attrs(&command)[0].len, 4);
    assert_eq!(data[..4], 0xdead_beef_u32.to_ne_bytes());
    assert_eq!(data[4..], [0; 4]);
}

#[test]
fn more_than_eight_bytes_are_pointed_to() {
    let values = [1u64, 2, 3];
    let command = Command::<1>::new(OBJECT, METHOD).slice(5, &values);

    assert_eq!(attrs(&command), [attr(5, 24, values.as_ptr() as u64)]);
}

#[test]
fn output_is_always_pointed_to() {
    let mut word = 0u32;
    let mut array = [0u64; 1];
    let (word_at, array_at) = (&raw const word as u64, &raw const array as u64);
    let command = Command::<2>::new(OBJECT, METHOD)
        .out(1, &mut word)
        .out(2, &mut array);

    assert_eq!(attrs(&command), [attr(1, 4, word_at), attr(2, 8, array_at)]);
}

#[test]
fn what_is_too_long_for_an_attribute_is_not_sent() {
    // 0xffff is not a multiple of 8, so the longest array that fits has 8191 elements.
    let longest = vec![0u64; 8191];
    let longer = vec![0u64; 8192];

    let command = Command::<1>::new(OBJECT, METHOD).slice(1, &longest);
    assert!(!command.unfit);
    assert_eq!(attrs(&command)[0].len, 0xfff8);

    let command = Command::<1>::new(OBJECT, METHOD).slice(1, &longer);
    assert_eq!(command.run(-1), Err(Errno::EINVAL));
}

#[test]
fn one_attribute_too_many_is_not_sent() {
    let command = Command::<1>::new(OBJECT, METHOD).u64(1, 1).u64(2, 2);

    assert_eq!(attrs(&command).len(), 1);
    assert_eq!(command.run(-1), Err(Errno::EINVAL));
}

#[test]
fn what_is_no_uverbs_file_has_no_support() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&null);

    assert_eq!(
        Command::<0>::new(OBJECT, METHOD).run(fd),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(
        Command::<0>::new(OBJECT, METHOD)
            .run(-1)
            .map_err(Errno::get),
        Err(libc::EBADF)
    );
}

fn bytes(values: &[u32; 2]) -> [u8; 8] {
    let mut bytes = [0; 8];

    bytes[..4].copy_from_slice(&values[0].to_ne_bytes());
    bytes[4..].copy_from_slice(&values[1].to_ne_bytes());
    bytes
}
