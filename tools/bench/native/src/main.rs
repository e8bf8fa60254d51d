// SPDX-License-Identifier: GPL-2.0

//! Measures layouts and the copy of their rows on this machine with the clock.
//!
//! A message is gathered from blocks with gaps of the same size, in packets of 4 KiB, as for a
//! READ. All ways alternate in each round. The output is the median of the rounds' ratios to the
//! loop in C, so that other load of the machine affects all ways alike.

// The module uses more of both.
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/copy_row.rs"]
mod copy_row;
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/moved.rs"]
mod moved;
mod string;

use std::{env, hint::black_box, time::Instant};

use copy_row::{copy_piece, copy_row};
use ib_mkey_layout::{Block, Entry, Interleaved, Layout, Order, MAX_DIMS};
use moved::Pieces;

const PACKET: usize = 4096;
const SIZES: [usize; 20] = [
    1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096,
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
}

/// A message and its source blocks.
struct Case {
    layout: Layout<Vec<Entry>, Vec<Block>>,
    len: usize,
    source: Vec<u8>,
    message: Vec<u8>,
    /// The buffer for the packed blocks.
    packed: Vec<u8>,
}

impl Case {
    /// Makes blocks of `len` bytes, with `bytes` bytes in all or slightly fewer.
    fn new(len: usize, bytes: usize) -> Self {
        let count = bytes / len;
        let mut stride = [0; MAX_DIMS];
        stride[0] = 2 * len as i64;
        let block = Block::new(0, 0, len as u64, stride);
        let layout = Interleaved::new(&[count as u64], vec![block]).expect("a layout");
        let source = (0..2 * len * count).map(|i| (i ^ (i >> 8)) as u8);
        Self {
            layout: Layout::Interleaved(layout),
            len,
            source: source.collect(),
            message: vec![0; len * count],
            packed: vec![0; len * count],
        }
    }

    /// Runs the loop in C for each `step` bytes of the message.
    fn c_loops(&mut self, step: usize) {
        for (i, packet) in self.message.chunks_mut(step).enumerate() {
            // SAFETY: The source has all blocks at this stride, with as many bytes as the message.
            unsafe {
                mkey_bench_gather(
                    packet.as_mut_ptr(),
                    self.source.as_ptr(),
                    self.len,
                    2 * self.len as isize,
                    i * step,
                    packet.len(),
                );
            }
        }
    }

    /// Runs the loop in C for each packet.
    fn c_loop(&mut self) {
        self.c_loops(PACKET);
    }

    /// Runs the loop in C over all blocks.
    fn one_loop(&mut self) {
        self.c_loops(usize::MAX);
    }

    /// Copies the rows of each packet.
    fn rows(&mut self) {
        let mut at = 0;
        for packet in self.message.chunks_mut(PACKET) {
            let rows = self.layout.rows(at, packet.len() as u64, Order::Any);
            for row in rows.expect("in range") {
                let to = Pieces {
                    at: packet[row.at as usize..].as_mut_ptr(),
                    step: row.step as isize,
                };
                let from = Pieces {
                    at: self.source[row.addr as usize..].as_ptr(),
                    step: row.stride as isize,
                };
                // SAFETY: The row is within the layout, which is within the source, and within the
                // packet.
                unsafe { copy_row(to, from, row.len as usize, row.count as usize) };
            }
            at += packet.len() as u64;
        }
    }

    /// Copies the runs of each packet.
    fn runs(&mut self) {
        let mut at = 0;
        for packet in self.message.chunks_mut(PACKET) {
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

    /// Copies the same number of contiguous bytes.
    fn memcpy(&mut self) {
        let packets = self
            .message
            .chunks_mut(PACKET)
            .zip(self.source.chunks(PACKET));
        packets.for_each(|(packet, source)| packet.copy_from_slice(&source[..packet.len()]));
    }

    /// Copies the same number of contiguous bytes as the kernel does.
    fn kernel(&mut self) {
        let packets = self
            .message
            .chunks_mut(PACKET)
            .zip(self.source.chunks(PACKET));
        for (packet, source) in packets {
            let source = &source[..packet.len()];
            // SAFETY: The source has as many bytes as the packet.
            unsafe { copy_piece(packet.as_mut_ptr(), source.as_ptr(), source.len()) };
        }
    }

    /// Runs the loop in C into a buffer, which is then sent.
    fn pack(&mut self) {
        std::mem::swap(&mut self.message, &mut self.packed);
        self.one_loop();
        std::mem::swap(&mut self.message, &mut self.packed);
        let packets = self
            .message
            .chunks_mut(PACKET)
            .zip(self.packed.chunks(PACKET));
        packets.for_each(|(packet, packed)| packet.copy_from_slice(packed));
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
            run(self);
            assert!(self.message == wanted, "{way}, blocks of {}", self.len);
        }
    }
}

type Way = (&'static str, fn(&mut Case));
const WAYS: [Way; 7] = [
    ("C loop", Case::c_loop),
    ("one loop", Case::one_loop),
    ("rows", Case::rows),
    ("runs", Case::runs),
    ("pack", Case::pack),
    // Of contiguous bytes.
    ("memcpy", Case::memcpy),
    ("kernel", Case::kernel),
];

/// Returns the seconds of `times` calls.
fn seconds(case: &mut Case, run: fn(&mut Case), times: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        run(black_box(case));
    }
    start.elapsed().as_secs_f64()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn report(title: &str, bytes: usize, times: usize, rounds: usize) {
    println!("\n{title}; GB/s of the loop in C, and the speed of the others by its");
    print!("{:>6} {:>10}", "bytes", WAYS[0].0);
    WAYS[1..].iter().for_each(|way| print!(" {:>8}", way.0));
    println!();
    for len in SIZES {
        let mut case = Case::new(len, bytes);
        case.check();
        let mut seen = [const { Vec::new() }; WAYS.len()];
        for round in 0..rounds {
            // Run all ways in turn.
            let mut taken = [0.0; WAYS.len()];
            for way in 0..WAYS.len() {
                let way = (way + round) % WAYS.len();
                taken[way] = seconds(&mut case, WAYS[way].1, times);
            }
            let all = (case.message.len() * times) as f64;
            seen[0].push(all / taken[0] / 1e9);
            (1..WAYS.len()).for_each(|way| seen[way].push(taken[0] / taken[way]));
        }
        let [c_loop, others @ ..] = seen.map(median);
        print!("{len:>6} {c_loop:>10.2}");
        others.iter().for_each(|ratio| print!(" {ratio:>8.2}"));
        println!();
    }
}

fn main() {
    let rounds = env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(31);
    report("64 KiB, in the cache", 64 << 10, 20, rounds);
    report(
        "32 MiB, larger than the cache",
        32 << 20,
        1,
        rounds.div_ceil(3),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of every size that has a loop, and some larger ones, apart and overlapping, forwards
    /// and backwards, compared with a copy of single bytes.
    #[test]
    fn rows_are_copied() {
        let source: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in 1..=300usize {
            let step = len as isize;
            for (to_step, from_step) in [
                (step, 2 * step),
                (2 * step, step),
                (step + 3, -step - 1),
                (1, 5),
                (-1, 0),
                (0, -3),
            ] {
                for count in [0, 1, 2, 9] {
                    let (mut seen, mut wanted) = (vec![0u8; 10_000], vec![0u8; 10_000]);
                    let (to, from) = (3001isize, 4000isize);
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
                    // SAFETY: No piece begins more than 9 * 601 bytes from these places, and none
                    // ends outside of the vectors, as the copy above shows.
                    unsafe { copy_row(to, from, len, count) };
                    assert!(seen == wanted, "{len} {to_step} {from_step} {count}");
                }
            }
        }
    }

    /// All ways give the same bytes, for every size.
    #[test]
    fn ways_agree() {
        SIZES.iter().for_each(|len| Case::new(*len, 40_000).check());
    }
}
