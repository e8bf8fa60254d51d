// SPDX-License-Identifier: GPL-2.0

//! Tests of the copy, against one copy for each segment in memory without pages.

use super::{
    copy::{copy, copy_list, Direction, Fault, Payload},
    kernel::{fill, Paged, PAGE, POISON},
    layout::{Entry, GatherList, Pieces, Row},
};

/// Pages of the memory, none of which follows the one before.
const PAGES: usize = 8;

/// Bytes of the packets.
const PACKET: usize = 4096;

/// Sizes that have a separate loop, sizes between them, and sizes of about a page.
const SIZES: [usize; 29] = [
    1, 2, 3, 4, 5, 8, 9, 12, 16, 20, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 192, 255, 256,
    257, 1000, 4095, 4096, 5000,
];

/// Makes memory whose pages are not in the order of their addresses.
fn memory() -> Paged {
    let mut memory = Paged::new(PAGES, |page| page * 3 % PAGES);
    memory.fill();
    memory
}

/// Copies `row` from and to the first `bytes` bytes of a packet. Compares the result with that of one copy for each segment,
/// and every other byte with what it was.
fn compare(row: Row, bytes: usize) {
    let len = row.len as usize;
    let mut wanted = vec![0; PACKET];
    fill(&mut wanted, 100);
    let (mut packet, before) = (wanted.clone(), memory().bytes());
    let place =
        |first: u64, step: u64, piece: u64| first.wrapping_add(step.wrapping_mul(piece)) as usize;
    let places = |piece| {
        (
            place(row.addr, row.stride as u64, piece),
            place(row.at, row.step, piece),
        )
    };
    for piece in 0..row.count {
        let (addr, at) = places(piece);
        wanted[at..at + len].copy_from_slice(&before[addr..addr + len]);
    }
    // SAFETY: The packet is borrowed mutably by nothing else while the payload exists.
    let read = |packet: &mut [u8], direction| unsafe {
        Payload::new(packet.as_mut_ptr(), bytes as u32, direction)
    };
    let payload = read(&mut packet, Direction::FromMemory);
    copy(&mut memory(), row, &payload).unwrap();
    assert!(packet == wanted, "read {row:?}");

    let mut checked = memory();
    checked.is_persistent = true;
    fill(&mut packet, 100);
    copy(&mut checked, row, &read(&mut packet, Direction::FromMemory)).unwrap();
    assert!(packet == wanted, "read of persistent memory {row:?}");

    fill(&mut packet, 100);
    let mut wanted = before;
    for piece in 0..row.count {
        let (addr, at) = places(piece);
        wanted[addr..addr + len].copy_from_slice(&packet[at..at + len]);
    }
    let mut written = memory();
    copy(&mut written, row, &read(&mut packet, Direction::ToMemory)).unwrap();
    assert!(written.bytes() == wanted, "write {row:?}");
}

/// Rows of pieces apart, overlapping, at one place and in reverse, from places near the ends of
/// pages.
#[test]
fn rows_are_copied() {
    const MIDDLE: u64 = (PAGES / 2 * PAGE) as u64;
    for len in SIZES.map(|len| len as u64) {
        for stride in [
            0,
            1,
            -1,
            len as i64,
            2 * len as i64,
            -(len as i64) - 1,
            4096,
            -4097,
        ] {
            for step in [len, len + 3] {
                for count in [1, 2, 3, 9] {
                    let bytes = (count - 1) * step + len;
                    let reach = stride * (count as i64 - 1);
                    for addr in [0, 5, 4096 - len % 4096, 4097 - len % 4096] {
                        let addr = MIDDLE + addr;
                        let row = Row {
                            stride,
                            count,
                            at: 7,
                            step,
                            ..Row::of(0, addr, len)
                        };
                        let first = addr as i64 + reach.min(0);
                        let end = addr as i64 + reach.max(0) + len as i64;
                        let is_inside = first >= 0 && end <= (PAGES * PAGE) as i64;
                        if is_inside && 7 + bytes <= PACKET as u64 {
                            compare(row, 7 + bytes as usize);
                        }
                    }
                }
            }
        }
    }
}

/// A piece outside of the memory or of the packet is an error, and no byte outside changes.
#[test]
fn bounds_are_checked() {
    const END: u64 = (PAGES * PAGE) as u64;
    let row = |addr, len, stride, count| Row {
        stride,
        count,
        ..Row::of(0, addr, len)
    };
    for len in [1, 8, 20, 64, 256, 300u64] {
        for row in [
            row(END, len, 0, 1),
            row(END - len + 1, len, 0, 1),
            row(END - len, len, 1, 2),
            row(END - len, len, len as i64, 2),
            row(0, len, -1, 2),
            row(u64::MAX, len, 0, 1),
            row(u64::MAX - len, len, i64::MAX, 3),
            row(1 << 63, len, i64::MIN, 2),
        ] {
            let mut packet = [0; PACKET];
            let payload = Payload::reading(&mut packet).unwrap();
            assert_eq!(
                copy(&mut memory(), row, &payload),
                Err(Fault::Outside),
                "{row:?}"
            );
        }
        // The row of three segments fits, except in what is said.
        for (at, step, count, stride, bytes) in [
            (0, len, 3, 4096, 3 * len - 1),
            (1, len, 3, 4096, 3 * len),
            (u64::MAX, len, 3, 4096, 3 * len),
            (u64::MAX - len, len, 3, 4096, 3 * len),
            (0, u64::MAX, 3, 4096, 3 * len),
            (0, 1 << 63, 3, 4096, 3 * len),
            (0, len, u64::MAX, 0, 3 * len),
            (0, 0, u64::MAX, 0, len - 1),
        ] {
            let row = Row {
                at,
                step,
                ..row(0, len, stride, count)
            };
            let mut packet = vec![0; bytes as usize];
            let payload = Payload::reading(&mut packet).unwrap();
            assert_eq!(
                copy(&mut memory(), row, &payload),
                Err(Fault::Outside),
                "{row:?}"
            );
            assert!(packet.iter().all(|byte| *byte == 0), "{row:?}");
        }
    }
}

/// Copies between `payload` and pieces of `len` bytes at `places`, which are from position `at` on in
/// the payload.
fn copy_places(
    memory: &mut Paged,
    places: &[u64],
    (len, at): (u64, u64),
    payload: &Payload<'_>,
) -> Result<(), Fault> {
    let entries: Vec<_> = places
        .iter()
        .map(|place| Entry::new(0, *place, len))
        .collect();
    let list = GatherList {
        leaf: 0,
        len,
        at,
        pieces: Pieces::Entries(&entries),
    };
    copy_list(memory, list, 0, payload)
}

/// Lists of pieces in one page, in many, over the ends of pages, and outside.
#[test]
fn lists_are_copied() {
    const END: u64 = (PAGES * PAGE) as u64;
    for len in SIZES
        .map(|len| len as u64)
        .into_iter()
        .filter(|len| *len < 4096)
    {
        let places: Vec<u64> = [
            0,
            3,
            4096 - len,
            4097 - len,
            4095,
            20_000,
            1,
            20_000,
            END - len,
        ]
        .into_iter()
        .take(PACKET / len as usize)
        .collect();
        let bytes = len as usize * places.len();
        let mut wanted = memory().bytes();
        let read: Vec<u8> = places
            .iter()
            .flat_map(|place| &wanted[*place as usize..][..len as usize])
            .copied()
            .collect();
        for persistent in [false, true] {
            let mut packet = vec![0; bytes];
            let mut source = memory();
            source.is_persistent = persistent;
            let payload = Payload::reading(&mut packet).unwrap();
            copy_places(&mut source, &places, (len, 0), &payload).unwrap();
            assert!(packet == read, "{len}");
        }
        let mut packet = vec![0; bytes + 5];
        fill(&mut packet, 100);
        for (piece, place) in places.iter().enumerate() {
            wanted[*place as usize..][..len as usize]
                .copy_from_slice(&packet[5 + piece * len as usize..][..len as usize]);
        }
        let mut written = memory();
        // SAFETY: Nothing else uses the packet.
        let payload = |bytes: u32| unsafe {
            Payload::new(packet.as_ptr().cast_mut(), bytes, Direction::ToMemory)
        };
        let whole = payload(packet.len() as u32);
        copy_places(&mut written, &places, (len, 5), &whole).unwrap();
        assert!(written.bytes() == wanted, "{len}");

        let before = memory().bytes();
        let mut unwritten = memory();
        for (places, short) in [
            (&places[..], 1),
            (&[END], 0),
            (&[END - len + 1], 0),
            (&[u64::MAX], 0),
        ] {
            // An error may come after a part of the piece.
            let payload = payload(packet.len() as u32 - short);
            let copied = copy_places(&mut unwritten, places, (len, 5), &payload);
            assert_eq!(copied, Err(Fault::Outside), "{len}");
        }
        let changed = unwritten.bytes().len() - len as usize + 1;
        assert!(unwritten.bytes()[..changed] == before[..changed], "{len}");
    }
}

/// A read of persistent memory ends with an error at a byte that cannot be read. A write does not.
#[test]
fn poison_is_an_error() {
    for len in [1, 8, 64, 100u64] {
        let mut source = memory();
        let row = Row::of(0, 4096 + len - 1, 1);
        let mut poison = POISON;
        // SAFETY: Nothing else uses the byte.
        let payload = unsafe { Payload::new(&mut poison, 1, Direction::ToMemory) };
        copy(&mut source, row, &payload).unwrap();
        source.is_persistent = true;
        let row = Row {
            stride: 2048,
            count: 4,
            ..Row::of(0, 0, len)
        };
        let mut packet = vec![0; 4 * len as usize];
        let payload = Payload::reading(&mut packet).unwrap();
        assert_eq!(copy(&mut source, row, &payload), Err(Fault::Poisoned));
        let places = [0, 2048, 4096 - len / 2];
        let copied = copy_places(&mut source, &places, (len, 0), &payload);
        assert_eq!(
            copied,
            if len == 1 {
                Err(Fault::Poisoned)
            } else {
                Ok(())
            }
        );
        let copied = copy_places(&mut source, &[4096 - 1], (len + 1, 0), &payload);
        assert_eq!(copied, Err(Fault::Poisoned));
        // SAFETY: Nothing else uses the packet.
        let payload = unsafe {
            Payload::new(
                packet.as_mut_ptr(),
                packet.len() as u32,
                Direction::ToMemory,
            )
        };
        assert_eq!(copy(&mut source, row, &payload), Ok(()));
    }
}
