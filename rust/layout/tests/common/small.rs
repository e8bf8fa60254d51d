// SPDX-License-Identifier: GPL-2.0

//! The oracle for millions of small layouts: the same definition as that of [`Spec`](super::Spec),
//! in arrays.

use super::runs::HasRuns;
use ib_mkey_layout::{Block, Entry, Error, Interleaved, Layout, Run, MAX_DIMS};

use super::{coarse, OVERFLOW, ZERO};

/// The largest numbers of blocks, dimensions and bytes.
pub const BLOCKS: usize = 3;
pub const DIMS: usize = 3;
const BYTES: usize = 4 * 4 * 4 * BLOCKS * 2;

/// A block as a user describes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub leaf: u32,
    pub addr: u64,
    pub bytes: u64,
    pub stride: [i64; DIMS],
}

type SmallLayout<'a> = Layout<&'a mut [Entry], &'a mut [Block]>;

/// Every byte of a layout.
pub struct Bytes {
    len: usize,
    /// Leaf, address, and the number of the repetition of a block.
    at: [(u32, i64, usize); BYTES],
    /// The end of the run of contiguous bytes that contains a byte.
    run_end: [usize; BYTES],
}

impl Bytes {
    pub const NONE: Self = Self {
        len: 0,
        at: [(0, 0, 0); BYTES],
        run_end: [0; BYTES],
    };

    /// Lists the bytes in the order of the key's addresses.
    fn list(&mut self, counts: &[u64], parts: &[Part]) {
        let mut count = [1; DIMS];
        count[..counts.len()].copy_from_slice(counts);
        self.len = 0;
        let mut piece = 0;
        for i in 0..count[0] as i64 {
            for j in 0..count[1] as i64 {
                for k in 0..count[2] as i64 {
                    for part in parts {
                        let [a, b, c] = part.stride;
                        let start = part.addr as i64 + i * a + j * b + k * c;
                        for byte in 0..part.bytes as i64 {
                            self.at[self.len] = (part.leaf, start + byte, piece);
                            self.len += 1;
                        }
                        piece += 1;
                    }
                }
            }
        }
        let mut end = self.len;
        for byte in (0..self.len).rev() {
            self.run_end[byte] = end;
            let (leaf, addr, _) = self.at[byte];
            if byte > 0 && (self.at[byte - 1].0, self.at[byte - 1].1 + 1) != (leaf, addr) {
                end = byte;
            }
        }
    }

    /// Returns `true` if no byte is below address zero.
    fn has_addresses(&self) -> bool {
        self.at[..self.len].iter().all(|byte| byte.1 >= 0)
    }

    fn run(&self, start: usize, end: usize) -> Run {
        let (leaf, addr, _) = self.at[start];
        let len = (self.run_end[start].min(end) - start) as u64;
        let addr = addr as u64;
        Run { leaf, addr, len }
    }

    /// Checks the runs of the bytes `start..end`.
    fn check_runs(&self, layout: &SmallLayout<'_>, start: usize, end: usize) {
        let mut runs = layout.runs(start as u64, (end - start) as u64).unwrap();
        let mut at = start;
        while at < end {
            let wanted = self.run(at, end);
            assert_eq!(runs.next(), Some(wanted));
            at += wanted.len as usize;
        }
        assert_eq!(runs.next(), None);
    }

    /// Checks the rows of the bytes `start..end`.
    fn check_rows(&self, layout: &SmallLayout<'_>, start: usize, end: usize) {
        let rows = layout.rows(start as u64, (end - start) as u64);
        let mut at = start;
        for row in rows.unwrap() {
            for piece in (0..row.count).map(|piece| row.skip(piece)) {
                for byte in 0..row.len {
                    let (leaf, addr, _) = self.at[at];
                    assert_eq!((row.leaf, piece.addr + byte), (leaf, addr as u64));
                    at += 1;
                }
            }
        }
        assert_eq!(at, end);
    }

    /// Checks the place of the bytes `start..end`, if they are in one place.
    fn check_place(&self, layout: &SmallLayout<'_>, start: usize, end: usize) {
        let place = layout.resolve(start as u64, (end - start) as u64);
        if start == end {
            assert_eq!(place, Err(ZERO));
        } else if self.at[start].2 != self.at[end - 1].2 {
            assert_eq!(place, Err(Error::Straddles));
        } else {
            assert_eq!(place, Ok(self.run(start, end)));
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value != "0")
}

/// Returns `true` if the environment asks for all accesses to all layouts of the domain.
pub fn long() -> bool {
    is_set("MKEY_TEST_LONG")
}

/// A short run checks one layout in this many. No size of the domain has this factor, so the layouts
/// that are checked differ in every number.
const SHORT: u64 = 3;

/// The accesses to a layout that are checked.
#[derive(Clone, Copy, PartialEq)]
pub enum Depth {
    /// Every range of offsets, and those past the end.
    Ranges,
    /// As [`Ranges`](Self::Ranges) in one layout of seven, and in all if [`long`]; otherwise as
    /// [`Walks`](Self::Walks).
    SomeRanges,
    /// All bytes from the start, and from one other offset.
    Walks,
}

/// Counts the accepted and refused layouts, so that a test without layouts fails.
pub struct Tally {
    pub accepted: u64,
    pub refused: u64,
    /// Layouts that a short run leaves out.
    pub left_out: u64,
    seen: u64,
    bytes: Bytes,
    long: bool,
    short: bool,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            accepted: 0,
            refused: 0,
            left_out: 0,
            seen: 0,
            bytes: Bytes::NONE,
            long: long(),
            short: is_set("MKEY_TEST_QUICK") && !long(),
        }
    }

    /// Checks a layout of counts from 1 to 4.
    pub fn check(&mut self, counts: &[u64], parts: &[Part], depth: Depth) {
        self.seen += 1;
        if self.short && depth != Depth::Ranges && self.seen % SHORT != 0 {
            self.left_out += 1;
            return;
        }
        let mut blocks = [Block::new(0, 0, 0, [0; MAX_DIMS]); BLOCKS];
        for (block, part) in blocks.iter_mut().zip(parts) {
            let mut stride = [0; MAX_DIMS];
            stride[..DIMS].copy_from_slice(&part.stride);
            *block = Block::new(part.leaf, part.addr, part.bytes, stride);
        }
        let layout = Interleaved::new(counts, &mut blocks[..parts.len()]);
        self.bytes.list(counts, parts);
        let bytes = &self.bytes;
        if !bytes.has_addresses() {
            assert_eq!(
                layout.err().map(coarse),
                Some(OVERFLOW),
                "{counts:?} {parts:?}"
            );
            self.refused += 1;
            return;
        }
        let layout: SmallLayout<'_> = Layout::Interleaved(layout.unwrap());
        let end = bytes.len;
        assert_eq!(layout.length(), end as u64, "{counts:?} {parts:?}");
        bytes.check_runs(&layout, 0, end);
        bytes.check_rows(&layout, 0, end);
        // Seven has no factor in common with the sizes of the domain.
        let walks = match depth {
            Depth::Ranges => false,
            Depth::SomeRanges => !self.long && self.accepted % 7 != 0,
            Depth::Walks => true,
        };
        if walks {
            // The other offset differs from layout to layout.
            let from = self.accepted as usize % end;
            bytes.check_runs(&layout, from, end);
            bytes.check_rows(&layout, from, end);
            bytes.check_place(&layout, from, from + 1);
        } else {
            for start in 0..=end {
                for stop in start..=end {
                    bytes.check_runs(&layout, start, stop);
                    bytes.check_rows(&layout, start, stop);
                    bytes.check_place(&layout, start, stop);
                }
                let too_long = (end + 1 - start) as u64;
                let past = layout.runs(start as u64, too_long).map(|_| ());
                assert_eq!(past, Err(Error::Range));
                assert_eq!(layout.resolve(start as u64, too_long), Err(Error::Range));
            }
        }
        self.accepted += 1;
    }

    /// Checks that there were `total` layouts, some accepted and some refused.
    pub fn finish(&self, what: &str, total: u64) {
        println!(
            "{what}: {} accepted, {} refused, {} left out",
            self.accepted, self.refused, self.left_out
        );
        assert_eq!(self.accepted + self.refused + self.left_out, total);
        assert!(self.accepted > 0 && self.refused > 0);
    }
}
