// SPDX-License-Identifier: GPL-2.0

//! The copy of bytes between a packet and the memory of an MR: the innermost loop of the data path.
//!
//! A strided segment ([`Row`]) is segments of one size at one distance. [`copy`] copies it block by
//! block: a block is memory that is mapped as a whole, such as a page. [`copy_rows`] copies several
//! of them. [`copy_list`] copies a gather list: segments of one size without a common distance.
//!
//! This file uses no function of the kernel except [`copy_racing`], so `tools/bench/native` can test
//! and measure it on the host.
//!
//! # Races
//!
//! Other processors, processes and devices read and write an MR's memory at any time; on any RDMA
//! device such accesses tear. In Rust's model, an ordinary access that races is undefined behaviour.
//! So there is no reference to this memory, and [`copy_racing`] makes all accesses.

use super::racing::copy_racing;
use crate::layout::{GatherList, GridRows, Pieces, Row};
use core::{iter, marker::PhantomData, num::TryFromIntError};

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the packet to the MR's memory.
    ToMemory,
    /// From the MR's memory to the packet.
    FromMemory,
}

/// Bytes of a packet. They are no part of an MR's memory.
///
/// # Invariants
///
/// `at` is valid for reads and, for [`Direction::FromMemory`], writes of `len` bytes.
pub(crate) struct Payload<'a> {
    at: *mut u8,
    len: u64,
    direction: Direction,
    _packet: PhantomData<&'a mut [u8]>,
}

/// A failed copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A segment is outside of the packet or of the MR's memory.
    Outside,
    /// Persistent memory has an error that its controller cannot correct.
    Poisoned,
}

/// The smallest distance of segments that are copied one by one, because few of them are in one page.
const FAR: u64 = 2048;

/// The most bytes for which the compiler makes moves in place of a call of `memcpy()`, in a kernel for
/// x86-64.
const LINE: usize = 64;

/// As the size of a segment: any size.
const ANY: usize = 0;

/// As the size of a segment: any size, of persistent memory, whose bytes may be unreadable.
const CHECKED: usize = usize::MAX;

extern "C" {
    /// Copies `len` bytes. Returns how many of them were not copied because they are unreadable.
    fn ib_mkey_copy_mc(to: *mut u8, from: *const u8, len: usize) -> usize;
}

/// A block: bytes of an MR that are mapped one after another, around the byte that was looked for.
///
/// # Invariants
///
/// The `before` bytes before `at` and the `room` bytes from `at` on are valid for reads and writes
/// during `'a`. Other threads and devices may access them meanwhile.
pub(crate) struct Block<'a> {
    at: *mut u8,
    before: u64,
    room: u64,
    _memory: PhantomData<&'a ()>,
}

/// The memory of an MR, which is mapped block by block.
pub(crate) trait Memory {
    /// The error of a copy.
    type Error: From<Fault>;

    /// `true` if there are loops for the sizes of segments.
    const HAS_SIZES: bool = false;

    /// Returns `true` if the memory is persistent, so that a read of it may find an error.
    fn is_persistent(&self) -> bool {
        false
    }

    /// Maps the block that contains the byte at address `addr` of the MR.
    ///
    /// # Errors
    ///
    /// [`Fault::Outside`] for an address outside of the MR, and others.
    fn map(&mut self, addr: u64, direction: Direction) -> Result<Block<'_>, Self::Error>;
}

impl<'a> Payload<'a> {
    /// Makes the payload of `len` bytes at `at`.
    ///
    /// # Safety
    ///
    /// `at` must be valid for reads and writes of `len` bytes while the payload exists. The bytes
    /// must not be memory of an MR.
    pub(crate) unsafe fn new(at: *mut u8, len: u32, direction: Direction) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            at,
            len: len.into(),
            direction,
            _packet: PhantomData,
        }
    }

    /// Makes the payload of a copy from memory to `bytes`.
    ///
    /// # Errors
    ///
    /// An error for 4 GiB and more.
    pub(crate) fn reading(bytes: &'a mut [u8]) -> Result<Self, TryFromIntError> {
        let len = u32::try_from(bytes.len())?;
        // SAFETY: The payload borrows the bytes. A reference is never to memory of an MR.
        Ok(unsafe { Self::new(bytes.as_mut_ptr(), len, Direction::FromMemory) })
    }

    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the direction of the copy.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Checks that the positions of all segments of `row` are in the payload.
    fn check(&self, row: &Row) -> Result<(), Fault> {
        let reach = match row.count {
            0 | 1 => Some(0),
            count => row.step.checked_mul(count - 1),
        };
        let end = reach.and_then(|reach| reach.checked_add(row.at)?.checked_add(row.len));
        match end {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Fault::Outside),
        }
    }

    /// Copies the first `count` segments of `row`, whose size is `N` as in [`copy_segment`]. The first
    /// one is at `memory`.
    ///
    /// # Errors
    ///
    /// [`Fault::Poisoned`], only of [`CHECKED`] segments.
    ///
    /// # Safety
    ///
    /// - [`Self::check`] must have accepted the row, and it must have `count` segments. If `N` is a size,
    ///   it must be `row.len`.
    /// - Each of these segments, counted from `memory`, must be in one [`Block`].
    unsafe fn copy_segments<const N: usize>(
        &self,
        memory: *mut u8,
        row: &Row,
        count: u64,
    ) -> Result<(), Fault> {
        // A position is less than the length, which has 32 bits.
        let packet = self.at.wrapping_add(row.at as usize);
        let (stride, step) = (row.stride as isize, row.step as isize);
        let (mut to, to_step, mut from, from_step) = match self.direction {
            Direction::ToMemory => (memory, stride, packet, step),
            Direction::FromMemory => (packet, step, memory, stride),
        };
        for _ in 0..count {
            // SAFETY: By the safety requirements and the type invariants. A packet is no part of an
            // MR's memory.
            unsafe { copy_segment::<N>(to, from, row.len as usize)? };
            // The addresses after the last segment may be invalid, and are not used.
            to = to.wrapping_offset(to_step);
            from = from.wrapping_offset(from_step);
        }
        Ok(())
    }
}

impl Block<'_> {
    /// Makes the block of the byte at `at`.
    ///
    /// # Safety
    ///
    /// The `before` bytes before `at` and the `room` bytes from `at` on must be valid for reads and
    /// writes during the lifetime of the result. There must be no reference to them.
    #[inline]
    pub(crate) unsafe fn new(at: *mut u8, before: u64, room: u64) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            at,
            before,
            room,
            _memory: PhantomData,
        }
    }

    /// Returns the number of successive segments of `row` in the block. The first one begins at `at`.
    fn fitting(&self, row: &Row) -> u64 {
        let Some(after) = self.room.checked_sub(row.len) else {
            return 0;
        };
        let room = if row.stride < 0 { self.before } else { after };
        let distance = row.stride.unsigned_abs();
        match distance.checked_mul(row.count.saturating_sub(1)) {
            Some(reach) if reach <= room => row.count,
            _ => room.checked_div(distance).unwrap_or(0).saturating_add(1),
        }
    }
}

/// Copies between the segments of `row`, whose addresses are those of `memory`, and `payload`. Copies
/// them in order: if segments of a written row overlap, the bytes of the last one remain.
///
/// # Errors
///
/// [`Fault::Outside`] for a segment outside of the payload; [`Fault::Poisoned`]; those of
/// [`Memory::map`]. Pieces before one that fails may be copied.
#[inline(always)]
pub(crate) fn copy<M: Memory>(
    memory: &mut M,
    row: Row,
    payload: &Payload<'_>,
) -> Result<(), M::Error> {
    if row.count == 1 {
        payload.check(&row)?;
        return copy_parts(memory, row, payload);
    }
    // The copy of each field leaves a row of one segment in registers.
    copy_strided(memory, Row { ..row }, payload)
}

/// Copies several segments as [`copy`] does.
#[inline(never)]
fn copy_strided<M: Memory>(
    memory: &mut M,
    mut row: Row,
    payload: &Payload<'_>,
) -> Result<(), M::Error> {
    payload.check(&row)?;
    while row.count == 1 || row.stride.unsigned_abs() >= FAR {
        copy_parts(memory, row, payload)?;
        if row.count <= 1 {
            return Ok(());
        }
        row = row.skip(1);
    }
    by_size(memory, Strided(iter::once(row)), row.len, payload)
}

/// Copies each of `rows` as [`copy`] does. `delta` is added to their addresses.
#[inline(never)]
pub(crate) fn copy_rows<M: Memory>(
    memory: &mut M,
    rows: GridRows<'_, '_>,
    delta: u64,
    payload: &Payload<'_>,
) -> Result<(), M::Error> {
    let len = rows.piece_len();
    let rows = rows.map(|row| Row {
        addr: row.addr.wrapping_add(delta),
        ..row
    });
    by_size(memory, Strided(rows), len, payload)
}

/// Copies between `list` and `payload`. `delta` is added to its addresses.
///
/// # Errors
///
/// The errors of [`copy`].
#[inline(never)]
pub(crate) fn copy_list<M: Memory>(
    memory: &mut M,
    list: GatherList<'_>,
    delta: u64,
    payload: &Payload<'_>,
) -> Result<(), M::Error> {
    let (len, at) = (list.len, list.at);
    payload.check(&Row {
        at,
        count: list.pieces.count() as u64,
        ..Row::of(0, 0, len)
    })?;
    let moved = |addr: u64| addr.wrapping_add(delta);
    // The loop for a kind of list takes less time for an address than one that finds out the kind.
    // INVARIANT: The positions of as many segments as there are pieces were checked above.
    match list.pieces {
        Pieces::Entries(entries) => {
            let addrs = entries.iter().map(|entry| moved(entry.addr()));
            by_size(memory, Scattered { addrs, at }, len, payload)
        }
        Pieces::U32(indices, scale) => {
            let addrs = indices
                .iter()
                .map(|index| moved(scale.addr((*index).into())));
            by_size(memory, Scattered { addrs, at }, len, payload)
        }
        Pieces::U64(indices, scale) => {
            let addrs = indices.iter().map(|index| moved(scale.addr(*index)));
            by_size(memory, Scattered { addrs, at }, len, payload)
        }
    }
}

/// Returns `true` if the copy reads persistent memory.
fn reads_persistent(memory: &impl Memory, payload: &Payload<'_>) -> bool {
    payload.direction == Direction::FromMemory && memory.is_persistent()
}

/// Segments of one size.
trait Segments {
    /// Copies the segments. Their size is `len`, and `N` is as in [`copy_segment`].
    fn copy<M: Memory, const N: usize>(
        self,
        memory: &mut M,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), M::Error>;
}

/// Copies the segments, whose size is `len`, by a loop for that size if there is one.
fn by_size<M: Memory>(
    memory: &mut M,
    segments: impl Segments,
    len: u64,
    payload: &Payload<'_>,
) -> Result<(), M::Error> {
    match len {
        _ if reads_persistent(memory, payload) => segments.copy::<M, CHECKED>(memory, len, payload),
        _ if !M::HAS_SIZES => segments.copy::<M, ANY>(memory, len, payload),
        1 => segments.copy::<M, 1>(memory, len, payload),
        2 => segments.copy::<M, 2>(memory, len, payload),
        4 => segments.copy::<M, 4>(memory, len, payload),
        8 => segments.copy::<M, 8>(memory, len, payload),
        12 => segments.copy::<M, 12>(memory, len, payload),
        16 => segments.copy::<M, 16>(memory, len, payload),
        20 => segments.copy::<M, 20>(memory, len, payload),
        24 => segments.copy::<M, 24>(memory, len, payload),
        32 => segments.copy::<M, 32>(memory, len, payload),
        40 => segments.copy::<M, 40>(memory, len, payload),
        48 => segments.copy::<M, 48>(memory, len, payload),
        64 => segments.copy::<M, 64>(memory, len, payload),
        96 => segments.copy::<M, 96>(memory, len, payload),
        128 => segments.copy::<M, 128>(memory, len, payload),
        256 => segments.copy::<M, 256>(memory, len, payload),
        _ => segments.copy::<M, ANY>(memory, len, payload),
    }
}

/// Rows of segments of one size.
struct Strided<I>(I);

impl<I: Iterator<Item = Row>> Segments for Strided<I> {
    fn copy<M: Memory, const N: usize>(
        self,
        memory: &mut M,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), M::Error> {
        for row in self.0 {
            let mut row = Row { len, ..row };
            payload.check(&row)?;
            loop {
                let block = memory.map(row.addr, payload.direction)?;
                let mut count = block.fitting(&row);
                if count == 0 {
                    copy_across(memory, row, payload)?;
                    count = 1;
                } else {
                    // SAFETY: The block contains the first `count` segments, and the payload all of
                    // them, as checked above.
                    unsafe { payload.copy_segments::<N>(block.at, &row, count)? };
                }
                if count >= row.count {
                    break;
                }
                row = row.skip(count);
            }
        }
        Ok(())
    }
}

/// Segments of one size at any addresses, which follow one another in the payload.
///
/// # Invariants
///
/// `addrs` returns no more addresses than there are segments from position `at` on in the payload.
struct Scattered<I> {
    addrs: I,
    at: u64,
}

impl<I: Iterator<Item = u64>> Segments for Scattered<I> {
    fn copy<M: Memory, const N: usize>(
        self,
        memory: &mut M,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), M::Error> {
        match payload.direction {
            Direction::ToMemory => self.copy_each::<M, N, true>(memory, len, payload),
            Direction::FromMemory => self.copy_each::<M, N, false>(memory, len, payload),
        }
    }
}

impl<I: Iterator<Item = u64>> Scattered<I> {
    /// Copies the segments as [`Segments::copy`] does, in one direction.
    fn copy_each<M: Memory, const N: usize, const TO_MEMORY: bool>(
        mut self,
        memory: &mut M,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), M::Error> {
        while let Some(addr) = self.copy_whole::<M, N, TO_MEMORY>(memory, len, payload)? {
            let row = Row {
                at: self.at,
                ..Row::of(0, addr, len)
            };
            copy_across(memory, row, payload)?;
            self.at = self.at.wrapping_add(len);
        }
        Ok(())
    }

    /// Copies the segments before the first one that is in several blocks, whose address it returns.
    fn copy_whole<M: Memory, const N: usize, const TO_MEMORY: bool>(
        &mut self,
        memory: &mut M,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<Option<u64>, M::Error> {
        let mut packet = payload.at.wrapping_add(self.at as usize);
        for addr in &mut self.addrs {
            let block = memory.map(addr, payload.direction)?;
            if len > block.room {
                self.at = (packet as u64).wrapping_sub(payload.at as u64);
                return Ok(Some(addr));
            }
            let (to, from) = if TO_MEMORY {
                (block.at, packet)
            } else {
                (packet, block.at)
            };
            // SAFETY: The block contains the segment, and by the type invariant the packet does. A
            // packet is no part of an MR's memory.
            unsafe { copy_segment::<N>(to, from, len as usize)? };
            packet = packet.wrapping_add(len as usize);
        }
        Ok(None)
    }
}

/// Copies the first segment of `row`, which may be in several blocks. [`Payload::check`] has accepted
/// it.
#[inline(always)]
fn copy_parts<M: Memory>(memory: &mut M, row: Row, payload: &Payload<'_>) -> Result<(), M::Error> {
    let is_checked = reads_persistent(memory, payload);
    let mut done = 0;
    while done < row.len {
        let addr = row.addr.wrapping_add(done);
        let block = memory.map(addr, payload.direction)?;
        let len = row.len.wrapping_sub(done).min(block.room);
        if len == 0 {
            return Err(Fault::Outside.into());
        }
        let part = Row {
            at: row.at.wrapping_add(done),
            ..Row::of(0, addr, len)
        };
        // SAFETY: The block contains the part. The caller has checked the positions.
        unsafe {
            if is_checked {
                payload.copy_segments::<CHECKED>(block.at, &part, 1)?;
            } else {
                payload.copy_segments::<ANY>(block.at, &part, 1)?;
            }
        }
        done = done.wrapping_add(len);
    }
    Ok(())
}

/// Copies a segment that is in several blocks, as [`copy_parts`] does. Few are, so the loops above do
/// not contain this.
#[cold]
fn copy_across<M: Memory>(memory: &mut M, row: Row, payload: &Payload<'_>) -> Result<(), M::Error> {
    copy_parts(memory, row, payload)
}

/// Copies one segment of `len` bytes. `N` is this size, [`ANY`] or [`CHECKED`].
///
/// # Errors
///
/// [`Fault::Poisoned`], only of [`CHECKED`] segments.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of `len` bytes, which must not overlap. There
/// must be no reference to bytes that others may write. If `N` is a size, it must be `len`.
unsafe fn copy_segment<const N: usize>(
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Fault> {
    // SAFETY: By the safety requirements; the last arm copies `N` bytes, which is `len`.
    unsafe {
        match N {
            ANY => copy_racing(to, from, len),
            CHECKED if ib_mkey_copy_mc(to, from, len) != 0 => return Err(Fault::Poisoned),
            CHECKED => {}
            _ => {
                let mut at = 0;
                while at < N {
                    let bytes = (N - at).min(LINE);
                    copy_racing(to.add(at), from.add(at), bytes);
                    at += bytes;
                }
            }
        }
    }
    Ok(())
}
