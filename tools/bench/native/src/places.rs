// SPDX-License-Identifier: GPL-2.0

//! Blocks at random places, which indices give.
//!
//! The place of a page is found as in an MR of rxe, in a table of pages. Both loops of the module
//! are measured: it takes the one that loads pieces ahead if the places are in 2 MiB and more.

use super::{
    buffer::{fill, Buffer},
    copy_places::{copy_ahead, copy_each},
    moved::Moved,
    turns::{medians, print_head, print_row, Sliced, Times, Way},
    PACKET,
};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bytes of the kernel's structure for a page.
const STRUCT_PAGE: usize = 64;

extern "C" {
    fn mkey_bench_gather_places(
        to: *mut u8,
        from: *const u8,
        indices: *const u32,
        count: usize,
        len: usize,
    );
    /// The same without vectors.
    fn mkey_bench_gather_places_kernel(
        to: *mut u8,
        from: *const u8,
        indices: *const u32,
        count: usize,
        len: usize,
    );
}

/// A place outside of the source.
#[derive(Debug)]
struct Outside;

/// An entry of the table of pages of an MR: the address of the page divided by as many bytes as a
/// page has for one of its [`STRUCT_PAGE`], and the place in the page.
struct Entry(usize, #[allow(dead_code)] usize);

/// Blocks of one size.
struct Source {
    len: usize,
    bytes: Buffer,
    /// The pages of `bytes`.
    table: Vec<Entry>,
}

/// A message and its source blocks.
struct Case {
    source: Source,
    indices: Vec<u32>,
    message: Buffer,
    packed: Buffer,
    /// The bytes of a slice.
    slice: usize,
}

/// Numbers from 0 to `count`, in random order.
fn shuffled(count: usize) -> Vec<u32> {
    let mut of: Vec<u32> = (0..count as u32).collect();
    let mut x = 1u64;
    for i in (1..count).rev() {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        of.swap(i, (x >> 20) as usize % (i + 1));
    }
    of
}

impl Source {
    /// Returns the address of the page of an index's block, and the place of the block in the page.
    #[inline(always)]
    fn locate(&self, index: u32, unit: usize) -> Result<(*mut u8, usize), Outside> {
        let offset = index as usize * unit;
        let Some(Entry(page, _)) = self.table.get(offset / PAGE) else {
            return Err(Outside);
        };
        let page = page * (PAGE / STRUCT_PAGE);
        Ok((page as *mut u8, offset % PAGE))
    }
}

impl Case {
    /// Makes blocks of `len` bytes with gaps as long, `bytes` bytes in all.
    fn new(len: usize, bytes: usize, slice: usize) -> Self {
        let mut source = Buffer::new(2 * bytes);
        fill(&mut source);
        let first = source.as_ptr() as usize;
        let small = PAGE / STRUCT_PAGE;
        let table = (0..source.len().div_ceil(PAGE))
            .map(|page| Entry((first + page * PAGE) / small, 0))
            .collect();
        Self {
            indices: shuffled(bytes / len),
            source: Source {
                len,
                bytes: source,
                table,
            },
            message: Buffer::packets(bytes),
            packed: Buffer::new(bytes),
            slice,
        }
    }

    /// Calls `copy` with the address of each packet of slice number `slice` and its indices.
    fn packets(&mut self, slice: usize, mut copy: impl FnMut(&Source, *mut u8, &[u32])) {
        let packets = self.message[slice * self.slice..][..self.slice].chunks_mut(PACKET);
        let indices = &self.indices[slice * self.slice / self.source.len..];
        packets
            .zip(indices.chunks(PACKET / self.source.len))
            .for_each(|(packet, indices)| copy(&self.source, packet.as_mut_ptr(), indices));
    }

    fn c_loop(&mut self, slice: usize) {
        self.packets(slice, |source, packet, indices| {
            // SAFETY: The source has the blocks of all indices, and the packet as many bytes.
            unsafe {
                let (from, count) = (source.bytes.as_ptr(), indices.len());
                mkey_bench_gather_places(packet, from, indices.as_ptr(), count, source.len);
            }
        });
    }

    fn kernel_loop(&mut self, slice: usize) {
        self.packets(slice, |source, packet, indices| {
            // SAFETY: As above.
            unsafe {
                let (from, count) = (source.bytes.as_ptr(), indices.len());
                mkey_bench_gather_places_kernel(packet, from, indices.as_ptr(), count, source.len);
            }
        });
    }

    /// Copies packets by one of the module's loops for blocks of the size of `T`.
    #[inline(always)]
    fn key<T: Moved, const AHEAD: bool>(&mut self, slice: usize) {
        // Not known to the compiler, as in the module.
        let unit = std::hint::black_box(2 * self.source.len);
        self.packets(slice, |source, packet, indices| {
            let locate = |index| source.locate(index, unit);
            // SAFETY: The blocks of all indices are in the source, of which no part is in the
            // message; the packet has as many bytes.
            let copied = unsafe {
                if AHEAD {
                    copy_ahead::<T, u32, Outside, false>(indices, packet, locate)
                } else {
                    copy_each::<T, u32, Outside, false>(indices, packet, locate)
                }
            };
            copied.expect("in the source");
        });
    }

    fn by_size<const AHEAD: bool>(&mut self, slice: usize) {
        match self.source.len {
            8 => self.key::<u64, AHEAD>(slice),
            16 => self.key::<[u64; 2], AHEAD>(slice),
            _ => self.key::<[u64; 8], AHEAD>(slice),
        }
    }

    /// Packs the blocks of a slice. Sends a slice that was packed half of the message before.
    fn pack(&mut self, slice: usize) {
        let slices = self.slices();
        std::mem::swap(&mut self.message, &mut self.packed);
        self.c_loop(slice);
        std::mem::swap(&mut self.message, &mut self.packed);
        let sent = (slice + slices / 2) % slices * self.slice;
        let packed = self.packed[sent..][..self.slice].chunks(PACKET);
        let packets = self.message[sent..][..self.slice].chunks_mut(PACKET);
        packets
            .zip(packed)
            .for_each(|(packet, packed)| packet.copy_from_slice(packed));
    }

    /// Checks that all ways give the same bytes.
    fn check(&mut self) {
        let blocks = |index: &u32| {
            let len = self.source.len;
            &self.source.bytes[*index as usize * 2 * len..][..len]
        };
        let wanted: Vec<u8> = self.indices.iter().flat_map(blocks).copied().collect();
        for (way, run) in WAYS {
            self.message.fill(0);
            // Twice, because packed bytes are sent later.
            for slice in (0..self.slices()).chain(0..self.slices()) {
                run(self, slice);
            }
            assert!(
                *self.message == *wanted,
                "{way}, blocks of {}",
                self.source.len
            );
        }
    }
}

impl Sliced for Case {
    fn slices(&self) -> usize {
        self.message.len() / self.slice
    }

    fn bytes(&self, _index: usize) -> usize {
        self.slice
    }
}

const WAYS: [Way<Case>; 5] = [
    ("C loop", Case::c_loop),
    ("kernel C", Case::kernel_loop),
    ("each", Case::by_size::<false>),
    ("ahead", Case::by_size::<true>),
    ("pack", Case::pack),
];

/// Measures messages of several sizes.
pub(super) fn report(rounds: usize) {
    for (title, bytes, times) in [
        (
            "Random places, 64 KiB",
            64 << 10,
            Times {
                rounds: 32 * rounds,
                copies: 5,
            },
        ),
        (
            "Random places, 512 KiB",
            512 << 10,
            Times {
                rounds: 16 * rounds,
                copies: 1,
            },
        ),
        (
            "Random places, 32 MiB",
            32 << 20,
            Times { rounds, copies: 1 },
        ),
    ] {
        print_head(title, &WAYS);
        for len in [8, 16, 64] {
            let mut case = Case::new(len, bytes, bytes.min(128 << 10));
            case.check();
            print_row(len, &medians(&mut case, &WAYS, times));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways give the same bytes; a place outside of the source is an error.
    #[test]
    fn ways_agree() {
        for len in [8, 16, 64] {
            let mut case = Case::new(len, 3 << 16, 1 << 16);
            case.check();
            let outside = case.source.table.len() * PAGE / (2 * len);
            assert!(case.source.locate(outside as u32, 2 * len).is_err());
        }
    }

    /// Numbers of pieces that are no multiple of those of a turn, in both directions.
    #[test]
    fn pieces_are_copied() {
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 130] {
            let indices = shuffled(count);
            let mut source: Vec<u64> = (0..count as u64).map(|i| i * i).collect();
            let at = source.as_mut_ptr().cast::<u8>();
            let locate = |index: u32| Ok::<_, Outside>((at, 8 * index as usize));
            let wanted: Vec<u64> = indices.iter().map(|i| u64::from(*i).pow(2)).collect();
            let mut seen = vec![0u64; count];
            let packet = seen.as_mut_ptr().cast();
            // SAFETY: The source has a piece for each index, and the packet as many.
            unsafe { copy_ahead::<u64, u32, Outside, false>(&indices, packet, locate) }.unwrap();
            assert_eq!(seen, wanted);
            seen.iter_mut().for_each(|piece| *piece += 1);
            let packet = seen.as_mut_ptr().cast();
            // SAFETY: As above.
            unsafe { copy_ahead::<u64, u32, Outside, true>(&indices, packet, locate) }.unwrap();
            let wanted: Vec<u64> = (0..count as u64).map(|i| i * i + 1).collect();
            assert_eq!(source, wanted);
        }
    }
}
