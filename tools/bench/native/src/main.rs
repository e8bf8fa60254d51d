// SPDX-License-Identifier: GPL-2.0

//! Measures the copy of strided blocks on this machine with the clock.
//!
//! Packets of 4 KiB are gathered from blocks with gaps of the same size, as for a READ: by the
//! module's copy, and by a loop in C for the size of the blocks, compiled as for a kernel. The two
//! take turns, so that other load of the machine affects both alike. The output is the ratio of
//! their medians.

// The module uses more of it.
#[allow(dead_code)]
#[path = "../../../../drivers/infiniband/ulp/mkey/backend/copy.rs"]
mod copy;
#[cfg(test)]
mod copy_tests;
mod kernel;

use std::{array, hint::black_box, time::Instant};

use copy::Payload;
use ib_mkey_layout::{self as layout, Row};
use kernel::{racing, Paged, PAGE};

/// The sizes of blocks: some have a separate loop in the module, and some do not.
const SIZES: [usize; 13] = [1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Bytes of a packet.
const PACKET: usize = 4096;

/// Packets that are copied in a turn.
const TURN: usize = 64;

/// The turns of each way.
const TURNS: usize = 501;

extern "C" {
    fn mkey_bench_gather(to: *mut u8, from: *const u8, len: usize, stride: isize, count: usize);
}

/// Packets, and memory with their blocks.
struct Case {
    len: usize,
    source: Paged,
    packets: Vec<u8>,
    /// The next packet.
    next: usize,
}

impl Case {
    /// Makes blocks of `len` bytes, with as many bytes as `packets` packets have.
    fn new(len: usize, packets: usize) -> Self {
        let mut source = Paged::new(2 * packets * PACKET / PAGE, |page| page);
        source.fill();
        Self {
            len,
            source,
            packets: vec![1; packets * PACKET],
            next: 0,
        }
    }

    /// Copies a packet. `copy` gets the packet, the memory, and the address of the packet's first
    /// block. The packet is one block, or a part of one, if blocks are not shorter.
    fn packet(&mut self, copy: fn(&mut [u8], &mut Paged, usize, usize)) {
        let at = self.next * PACKET;
        self.next = (self.next + 1) % (self.packets.len() / PACKET);
        let addr = at / self.len * 2 * self.len + at % self.len;
        let packet = &mut self.packets[at..at + PACKET];
        copy(packet, &mut self.source, addr, self.len.min(PACKET));
    }
}

/// A way to copy a packet.
type Way = fn(&mut [u8], &mut Paged, usize, usize);

/// The loop in C, and the module's copy.
const WAYS: [Way; 2] = [
    |packet, source, addr, len| {
        let stride = 2 * len as isize;
        // SAFETY: The memory has the blocks of all packets. Its pages follow one another.
        unsafe {
            let from = source.as_ptr().add(addr);
            mkey_bench_gather(packet.as_mut_ptr(), from, len, stride, PACKET / len);
        }
    },
    |packet, source, addr, len| {
        let row = Row {
            stride: 2 * len as i64,
            count: (PACKET / len) as u64,
            ..Row::of(0, addr as u64, len as u64)
        };
        let payload = Payload::reading(packet).expect("short");
        copy::copy(source, row, &payload).expect("in the memory");
    },
];

/// Prints the speed of the copies of `packets` packets.
fn report(title: &str, packets: usize) {
    println!("\n{title}; GB/s of the loop in C, and the speed of the copy by its");
    for len in SIZES {
        let mut case = Case::new(len, packets);
        let mut seen: [Vec<f64>; 2] = array::from_fn(|_| Vec::new());
        for turn in 0..2 * TURNS {
            let start = Instant::now();
            for _ in 0..TURN {
                black_box(&mut case).packet(WAYS[turn % 2]);
            }
            let bytes = (TURN * PACKET) as f64;
            seen[turn % 2].push(bytes / 1e9 / start.elapsed().as_secs_f64());
        }
        let [c_loop, copied] = seen.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[TURNS / 2]
        });
        println!("{len:>6} {c_loop:>8.2} {:>8.2}", copied / c_loop);
    }
}

fn main() {
    report("64 KiB, in the cache", 16);
    report("32 MiB, larger than the cache", 8192);
}

/// Both ways give the same bytes, for every size.
#[test]
fn ways_agree() {
    for len in SIZES {
        let packets = WAYS.map(|way| {
            let mut case = Case::new(len, 16);
            (0..16).for_each(|_| case.packet(way));
            case.packets
        });
        assert!(packets[0] == packets[1], "{len}");
        assert!(packets[0].iter().any(|byte| *byte > 1), "{len}");
    }
}
