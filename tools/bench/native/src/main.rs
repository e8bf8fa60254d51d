// SPDX-License-Identifier: GPL-2.0

//! Measures layouts and the copy of their rows on this machine with the clock.
//!
//! A message is gathered from blocks with gaps of the same size, in packets of 4 KiB, as for a
//! READ. The ways take turns, a slice of the message each, so that other load of the machine
//! affects all ways alike. The output is the ratio of their medians to that of the loop in C.

#[cfg(target_arch = "x86_64")]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/assembly.rs"]
mod assembly;
mod buffer;
// The module uses more of these.
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/copy_places.rs"]
mod copy_places;
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/copy_row.rs"]
mod copy_row;
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/fetch.rs"]
mod fetch;
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/moved.rs"]
mod moved;
#[cfg(all(test, target_arch = "x86_64"))]
mod once;
mod places;
mod racing;
mod turns;

use std::{env, ops::Range, process::ExitCode};

use buffer::{fill, Buffer};
use copy_row::{copy_piece, copy_row};
use ib_mkey_layout::{Block, Cursor, Entry, Interleaved, Layout, Order, Row, Walker, MAX_DIMS};
use moved::Pieces;
use turns::{medians, print_head, print_row, Sliced, Times, Way};

const PACKET: usize = 4096;
const SIZES: [usize; 24] = [
    1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096,
];

extern "C" {
    fn mkey_bench_gather(
        to: *mut u8,
        from: *const u8,
        len: usize,
        stride: isize,
        offset: usize,
        bytes: usize,
    );
    /// The same without vectors.
    fn mkey_bench_gather_kernel(
        to: *mut u8,
        from: *const u8,
        len: usize,
        stride: isize,
        offset: usize,
        bytes: usize,
    );
}

/// The bytes of a message that a way copies in its turn.
const SLICE: usize = 256 << 10;

/// A message and its source blocks.
struct Case {
    layout: Layout<Vec<Entry>, Vec<Block>>,
    len: usize,
    source: Buffer,
    message: Buffer,
    /// The buffer for the packed blocks.
    packed: Buffer,
}

type Gather = unsafe extern "C" fn(*mut u8, *const u8, usize, isize, usize, usize);

/// A packet, and the source of its bytes.
struct Packet<'a> {
    source: &'a [u8],
    packet: &'a mut [u8],
}

impl Packet<'_> {
    /// Copies a row.
    #[inline(always)]
    fn copy(&mut self, row: &Row) {
        let to = Pieces {
            at: self.packet[row.at as usize..].as_mut_ptr(),
            step: row.step as isize,
        };
        let from = Pieces {
            at: self.source[row.addr as usize..].as_ptr(),
            step: row.stride as isize,
        };
        // SAFETY: The row is within the layout, which is within the source, and within the packet.
        unsafe { copy_row(to, from, row.len as usize, row.count as usize) };
    }
}

impl<'a> Walker<'a> for Packet<'_> {
    type Output = ();

    #[inline(always)]
    fn walk(mut self, rows: impl Cursor<'a>) {
        rows.for_each(|row| self.copy(&row));
    }
}

impl Case {
    /// Makes blocks of `len` bytes, with `bytes` bytes in all or slightly fewer.
    fn new(len: usize, bytes: usize) -> Self {
        let count = bytes / len;
        let mut stride = [0; MAX_DIMS];
        stride[0] = 2 * len as i64;
        let block = Block::new(0, 0, len as u64, stride);
        let layout = Interleaved::new(&[count as u64], vec![block]).expect("a layout");
        let mut source = Buffer::new(2 * len * count);
        fill(&mut source);
        Self {
            layout: Layout::Interleaved(layout),
            len,
            source,
            message: Buffer::packets(len * count),
            packed: Buffer::new(len * count),
        }
    }

    /// Returns the bytes of slice number `index`.
    fn slice(&self, index: usize) -> Range<usize> {
        let start = index * SLICE;
        start..self.message.len().min(start + SLICE)
    }

    /// Gathers the blocks of `slice`, `step` bytes at a time.
    fn gather(&mut self, slice: Range<usize>, step: usize, gather: Gather) {
        for at in slice.clone().step_by(step) {
            let packet = &mut self.message[at..slice.end.min(at.saturating_add(step))];
            // SAFETY: The source has all blocks at this stride, with as many bytes as the message.
            unsafe {
                gather(
                    packet.as_mut_ptr(),
                    self.source.as_ptr(),
                    self.len,
                    2 * self.len as isize,
                    at,
                    packet.len(),
                );
            }
        }
    }

    /// Runs the loop in C for each packet.
    fn c_loop(&mut self, slice: usize) {
        self.gather(self.slice(slice), PACKET, mkey_bench_gather);
    }

    /// Runs the loop in C for each packet, compiled as for a kernel.
    fn kernel_loop(&mut self, slice: usize) {
        self.gather(self.slice(slice), PACKET, mkey_bench_gather_kernel);
    }

    /// Copies the rows of each packet.
    fn rows(&mut self, slice: usize) {
        let slice = self.slice(slice);
        let mut at = slice.start as u64;
        for packet in self.message[slice].chunks_mut(PACKET) {
            let bytes = packet.len() as u64;
            let mut packet = Packet {
                source: &self.source,
                packet,
            };
            // As the module does.
            match self.layout.only_row(at, bytes) {
                Some(row) => packet.copy(&row),
                None => {
                    let walked = self.layout.walk(at, bytes, Order::Any, packet);
                    walked.expect("in range");
                }
            }
            at += bytes;
        }
    }

    /// Copies the runs of each packet.
    fn runs(&mut self, slice: usize) {
        let slice = self.slice(slice);
        let mut at = slice.start as u64;
        for packet in self.message[slice].chunks_mut(PACKET) {
            let mut rest = &mut packet[..];
            let runs = self.layout.runs(at, rest.len() as u64).expect("in range");
            for run in runs {
                let (to, next) = rest.split_at_mut(run.len as usize);
                to.copy_from_slice(&self.source[run.addr as usize..][..run.len as usize]);
                rest = next;
                at += run.len;
            }
        }
    }

    /// Calls `copy` with each packet of a slice and as many contiguous bytes of the source.
    fn contiguous(&mut self, slice: usize, copy: impl Fn(&mut [u8], &[u8])) {
        let slice = self.slice(slice);
        let source = self.source[slice.clone()].chunks(PACKET);
        let packets = self.message[slice].chunks_mut(PACKET);
        packets
            .zip(source)
            .for_each(|(packet, source)| copy(packet, source));
    }

    /// Copies the same number of contiguous bytes.
    fn memcpy(&mut self, slice: usize) {
        self.contiguous(slice, |packet, source| packet.copy_from_slice(source));
    }

    /// Copies the same number of contiguous bytes as the kernel does.
    fn kernel(&mut self, slice: usize) {
        self.contiguous(slice, |packet, source| {
            // SAFETY: The source has as many bytes as the packet.
            unsafe { copy_piece(packet.as_mut_ptr(), source.as_ptr(), source.len()) }
        });
    }

    /// Runs the loop in C over all blocks of a slice, into a buffer. Sends a slice of the buffer
    /// that was packed half of the message before: if the message is larger than the cache, it is
    /// not there.
    fn pack(&mut self, slice: usize) {
        let slices = self.slices();
        std::mem::swap(&mut self.message, &mut self.packed);
        self.gather(self.slice(slice), usize::MAX, mkey_bench_gather);
        std::mem::swap(&mut self.message, &mut self.packed);
        let sent = self.slice((slice + slices / 2) % slices);
        let packed = self.packed[sent.clone()].chunks(PACKET);
        let packets = self.message[sent].chunks_mut(PACKET);
        packets
            .zip(packed)
            .for_each(|(packet, packed)| packet.copy_from_slice(packed));
    }

    /// Checks that all ways but the plain copies give the same bytes.
    fn check(&mut self) {
        let blocks = self.source.chunks(2 * self.len);
        let wanted: Vec<u8> = blocks
            .flat_map(|block| &block[..self.len])
            .copied()
            .collect();
        for (way, run) in &WAYS[..WAYS.len() - 2] {
            self.message.fill(0);
            // Twice, because packed bytes are sent later.
            for slice in (0..self.slices()).chain(0..self.slices()) {
                run(self, slice);
            }
            assert!(*self.message == *wanted, "{way}, blocks of {}", self.len);
        }
    }
}

impl Sliced for Case {
    fn slices(&self) -> usize {
        self.message.len().div_ceil(SLICE)
    }

    fn bytes(&self, index: usize) -> usize {
        self.slice(index).len()
    }
}

const WAYS: [Way<Case>; 7] = [
    ("C loop", Case::c_loop),
    ("kernel C", Case::kernel_loop),
    ("rows", Case::rows),
    ("runs", Case::runs),
    ("pack", Case::pack),
    // Of contiguous bytes.
    ("memcpy", Case::memcpy),
    ("kernel", Case::kernel),
];

/// Measures messages of `bytes` bytes.
fn report(title: &str, bytes: usize, times: Times, sizes: &[usize]) {
    print_head(title, &WAYS);
    for &len in sizes {
        let mut case = Case::new(len, bytes);
        case.check();
        print_row(len, &medians(&mut case, &WAYS, times));
    }
}

/// Returns the number of rounds and the block sizes of the command line: `[rounds [size ...]]`.
/// Without sizes, all are measured.
fn arguments(words: impl Iterator<Item = String>) -> Result<(usize, Vec<usize>), String> {
    const MOST: usize = 1_000_000;
    let number = |word: String| word.parse::<usize>().map_err(|_| word);
    let mut words = words.map(number);

    let rounds = match words.next() {
        None => 8,
        Some(Ok(rounds @ 1..=MOST)) => rounds,
        Some(Ok(other)) => return Err(format!("rounds: {other} is not 1 to {MOST}")),
        Some(Err(word)) => return Err(format!("rounds: {word} is not 1 to {MOST}")),
    };
    let size = |number| match number {
        Ok(size) if SIZES.contains(&size) => Ok(size),
        Ok(other) => Err(format!("size: {other} is none of {SIZES:?}")),
        Err(word) => Err(format!("size: {word} is none of {SIZES:?}")),
    };
    let sizes: Vec<usize> = words.map(size).collect::<Result<_, _>>()?;

    Ok((
        rounds,
        if sizes.is_empty() {
            SIZES.to_vec()
        } else {
            sizes
        },
    ))
}

fn main() -> ExitCode {
    let (rounds, sizes) = match arguments(env::args().skip(1)) {
        Ok(found) => found,
        Err(why) => {
            eprintln!("mkey-bench-native: {why}; usage: mkey-bench-native [rounds [size ...]]");
            return ExitCode::from(2);
        }
    };
    let small = Times {
        rounds: 32 * rounds,
        copies: 5,
    };
    report("64 KiB, in the cache", 64 << 10, small, &sizes);
    let large = Times { rounds, copies: 1 };
    report("32 MiB, larger than the cache", 32 << 20, large, &sizes);
    if sizes.len() == SIZES.len() {
        places::report(rounds);
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_named() {
        let of = |words: &[&str]| arguments(words.iter().map(|word| word.to_string()));

        assert_eq!(of(&[]), Ok((8, SIZES.to_vec())));
        assert_eq!(of(&["2", "64", "8"]), Ok((2, vec![64, 8])));
        for (words, why) in [
            (&["0"][..], "rounds: 0 is not 1 to 1000000"),
            (&["abc"], "rounds: abc is not 1 to 1000000"),
            (&["1", "5"], "size: 5 is none of [1, "),
            (&["1", "-8"], "size: -8 is none of [1, "),
        ] {
            assert!(of(words).is_err_and(|text| text.starts_with(why)));
        }
    }

    /// Pieces of every size that has a loop, and some larger ones, apart and overlapping, forwards
    /// and backwards, compared with a copy of single bytes.
    #[test]
    fn rows_are_copied() {
        let source: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in (1..=300usize).chain([320, 383, 384, 448, 511, 512, 513]) {
            let step = len as isize;
            for (to_step, from_step) in [
                (step, 2 * step),
                (2 * step, step),
                (step + 3, -step - 1),
                (1, 5),
                (-1, 0),
                (0, -3),
            ] {
                for count in [0, 1, 2, 3, 4, 9] {
                    let (mut seen, mut wanted) = (vec![0u8; 20_000], vec![0u8; 20_000]);
                    let (to, from) = (6001isize, 8000isize);
                    for i in 0..count as isize {
                        for byte in 0..step {
                            wanted[(to + i * to_step + byte) as usize] =
                                source[(from + i * from_step + byte) as usize];
                        }
                    }
                    let to = Pieces {
                        at: seen[to as usize..].as_mut_ptr(),
                        step: to_step,
                    };
                    let from = Pieces {
                        at: source[from as usize..].as_ptr(),
                        step: from_step,
                    };
                    // SAFETY: No piece begins more than 9 * 1026 bytes from these places, and none
                    // ends outside of the vectors, as the copy above shows.
                    unsafe { copy_row(to, from, len, count) };
                    assert!(seen == wanted, "{len} {to_step} {from_step} {count}");
                }
            }
        }
    }

    /// A program may wait for a byte and then write it. So each byte of a piece of a common size is
    /// written once.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn bytes_are_written_once() {
        let source = [1u8; 4 * 512];
        for len in [
            1, 2, 4, 8, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256, 512usize,
        ] {
            for count in [1, 2, 4] {
                let writes = once::writes(count * len, |to| {
                    let step = len as isize;
                    let (to, at) = (Pieces { at: to, step }, source.as_ptr());
                    // SAFETY: Both have `count` pieces of `len` bytes.
                    unsafe { copy_row(to, Pieces { at, step }, len, count) };
                });
                assert!(
                    writes.iter().all(|times| *times == 1),
                    "{len} {count} {writes:?}"
                );
            }
        }
    }

    /// All ways give the same bytes, for every size.
    #[test]
    fn ways_agree() {
        // Three slices, the last one shorter.
        SIZES
            .iter()
            .for_each(|len| Case::new(*len, 600_000).check());
    }
}
