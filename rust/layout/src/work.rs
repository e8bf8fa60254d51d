// SPDX-License-Identifier: GPL-2.0

//! An upper bound of the work of a packet through a nest, found without an access.
//!
//! An access searches each level of a nest for the ranges that the levels above give. A packet is
//! one range at the top. Each level cuts ranges where its pieces end, so there may be as many
//! ranges as bytes below the first level of single bytes. A [`Packet`] passes the levels from the
//! top down, and adds up a bound of what the searches take.

use core::borrow::Borrow;
use core::ops::DerefMut;

use super::granularity::Granularity;
use super::{nest, AsIndexed, Block, Entry, Layout, Shape};

/// Bytes of the largest packet.
pub const PACKET: u64 = 4096;

/// [`PACKET`] as a power of two.
pub(super) const WHOLE: u8 = 12;

/// Ranges of a packet that begin or end between the rows of a level: the rest of a piece, the rest
/// of a row, and the beginnings of the last row and of its last piece.
const ENDS: u64 = 4;

/// The costs of the parts of an access. The unit is ten instructions of the kernel's evaluator, as
/// `tools/bench/guest/fine.c` counts them on x86-64.
pub mod units {
    /// A search in one block, besides its dimensions.
    pub const SEARCH: u64 = 11;

    /// Halving the number of blocks to search in.
    pub const HALVE: u64 = 3;

    /// The additional work of a search in several interleaved blocks.
    pub const BLOCKS: u64 = 12;

    /// One more row of a cursor that is in one piece of the level above.
    pub const STEP: u64 = 10;

    /// Leaving a level for the next one while rows are left, and coming back for the next row.
    pub const RETURN: u64 = 30;

    /// The cost of [`RETURN`] for each row, if many rows are left.
    pub const NEXT: u64 = 15;

    /// Making a cursor, besides its search.
    pub const CURSOR: u64 = 60;

    /// A row of a cursor whose pieces are cut, besides two searches.
    pub const CUT: u64 = 20;

    /// The visit of a row in memory: the look-up of its page, and the copy of a piece.
    pub const VISIT: u64 = 20;

    /// The copy of a further piece.
    pub const PIECE: u64 = 5;

    /// The additional work of the visit to an ODP page.
    pub const ON_DEMAND: u64 = 14;

    /// The additional work of the visit if the row is in another MR than the row before: the check
    /// of the MR, and unmapping the page of the other MR.
    pub const CHANGE: u64 = 12;
}

/// The memory at the bottom of a nest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// `true` for ODP memory, whose pages come on demand.
    pub on_demand: bool,
    /// `true` if the memory is that of several MRs.
    pub several: bool,
}

/// Returns the work of a search in `count` blocks, repeated in `dims` dimensions.
pub(super) fn search(count: usize, dims: usize) -> u64 {
    let halves = u64::from(count.max(1).ilog2());
    units::SEARCH
        .saturating_add(dims as u64)
        .saturating_add(halves.saturating_mul(units::HALVE))
}

/// A level of a nest: a layout, or several layouts, each of which an access may pass.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    granularity: Granularity,
    /// The work of a search.
    search: u64,
    /// The pieces, if they are those of one layout that repeats one piece.
    repeated: Option<Repeated>,
}

impl Level {
    /// Makes a level of `layout`, with pieces of `granularity`.
    pub fn new<E, B, P, I>(layout: &Layout<E, B, P, I>, granularity: Granularity) -> Self
    where
        E: DerefMut<Target = [Entry]>,
        B: DerefMut<Target = [Block]>,
        P: Borrow<Shape>,
        I: AsIndexed,
    {
        Self {
            granularity,
            search: layout.search_work(),
            repeated: layout.repeated(),
        }
    }

    /// Returns the level that has the layouts of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            granularity: self.granularity.join(other.granularity),
            search: self.search.max(other.search),
            repeated: None,
        }
    }
}

/// The pieces of a packet as rows. All pieces have one size, and one distance within a row.
#[derive(Clone, Copy, Debug)]
struct RowSet {
    /// Bytes of a piece; zero if each row is one contiguous range.
    len: u64,
    /// `true` if the address of each piece is a multiple of its length.
    is_even: bool,
    /// The distance of the pieces of a row.
    stride: u64,
    /// The number of rows.
    rows: u64,
    /// The sum, over all rows, of the distances from the first piece to the last one.
    reach: u64,
}

/// The ranges of a packet in one level of a nest, and the work at the levels above.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Bytes of the packet.
    bytes: u64,
    /// The number of ranges.
    ranges: u64,
    /// Each range is a part of a range that begins and ends at multiples of `granularity` and has
    /// at most this power of two of bytes.
    most: u8,
    /// Each range begins and ends at a multiple of this power of two in the packet.
    granularity: u8,
    /// The address of a range differs from its position by a multiple of this power of two.
    shift: u8,
    /// The ranges as rows, if the levels above line up.
    row_set: Option<RowSet>,
    work: u64,
    /// The work of leaving and coming back to the levels that cut no piece, if each of them has as
    /// many rows as it can have.
    returns: u64,
}

impl Packet {
    /// Makes a packet of `bytes` bytes, at most [`PACKET`], at the top of a nest.
    ///
    /// A packet of fewer bytes takes less work, or less than the work of 32 rows at each level.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes: bytes.min(PACKET),
            ranges: 1,
            most: u8::MAX,
            granularity: WHOLE,
            shift: WHOLE,
            row_set: Some(RowSet {
                len: 0,
                is_even: false,
                stride: 0,
                rows: 1,
                reach: 0,
            }),
            // An access makes a cursor over its outermost level.
            work: units::CURSOR,
            returns: 0,
        }
    }

    /// Passes a level.
    #[must_use]
    pub fn pass(self, level: &Level) -> Self {
        let passed = self.row_set.zip(level.repeated);
        let row_set = passed.and_then(|(row_set, repeated)| row_set.pass(&repeated, self.bytes));
        let next = Self {
            row_set,
            ..self.cut(level.granularity)
        };
        let lines_up = row_set.is_some() && self.row_set.is_some_and(|row_set| row_set.len != 0);
        let (search, rows) = (level.search, next.rows());
        if lines_up || self.is_uncut(level.granularity) {
            // Each search finds a row.
            let returns = rows.saturating_mul(units::NEXT);
            return Self {
                work: self.work.saturating_add(rows.saturating_mul(search)),
                returns: self.returns.saturating_add(returns),
                ..next
            };
        }
        let twice = search.saturating_mul(2);
        let cut = twice.saturating_add(units::CUT);
        // If the only range is the packet, a cursor takes its rows, unless the packet is short.
        let each = if self.ranges == 1 && self.bytes > nest::SHORT {
            units::STEP
        } else {
            cut
        };
        // Each row of the level above can take a search that finds no row, and a cursor. A short
        // piece takes two searches for each row, and no cursor.
        let vain = self
            .rows()
            .saturating_mul(twice.saturating_add(units::CURSOR));
        let work = rows.saturating_mul(each).saturating_add(vain);
        Self {
            work: self.work.saturating_add(work),
            ..next
        }
    }

    /// Passes all levels below. Only `search` is known of them: the work of one search at each.
    #[must_use]
    pub fn pass_all(self, search: u64) -> Self {
        let each = search.saturating_mul(4).saturating_add(units::CUT);
        let each = each.saturating_add(units::CURSOR);
        Self {
            ranges: self.bytes,
            most: 1,
            granularity: 0,
            shift: 0,
            row_set: None,
            work: self.work.saturating_add(self.bytes.saturating_mul(each)),
            ..self
        }
    }

    /// Returns the work of all levels and of the copy from or to `memory`.
    pub fn work(&self, memory: Memory) -> u64 {
        let rows = self.rows();
        // The levels that cut no piece leave no more rows than there are in the end.
        let returns = self.returns.min(rows.saturating_mul(units::RETURN));
        let demand = if memory.on_demand {
            units::ON_DEMAND
        } else {
            0
        };
        let change = if memory.several { units::CHANGE } else { 0 };
        let visit = units::VISIT.saturating_add(demand).saturating_add(change);
        let further = self.ranges.saturating_sub(rows);
        self.work
            .saturating_add(returns)
            .saturating_add(rows.saturating_mul(visit))
            .saturating_add(further.saturating_mul(units::PIECE))
    }

    /// Returns an upper bound of the number of rows.
    pub fn rows(&self) -> u64 {
        let row_set = self.row_set.map_or(u64::MAX, |row_set| row_set.rows);
        row_set.min(self.ranges)
    }

    /// Returns `true` if each range is within a piece of a level.
    fn is_uncut(&self, level: Granularity) -> bool {
        let cell = self.granularity.min(self.shift).min(level.len());
        level.least == u16::MAX || self.most <= cell
    }

    /// Cuts the ranges where the pieces of a level end.
    fn cut(self, level: Granularity) -> Self {
        let granularity = self.granularity.min(self.shift).min(level.len());
        // A packet may begin at any byte.
        let by_grain = (self.bytes >> granularity).saturating_add(2);
        let is_cut = level.least != u16::MAX;
        // A range of n bytes is in at most 2 + (n - 2) / least pieces.
        let twice = self.ranges.saturating_mul(2);
        let more = self.bytes.saturating_sub(twice);
        let by_size = if is_cut {
            more.checked_div(level.least.into())
                .map_or(self.bytes, |more| {
                    more.saturating_add(1).saturating_add(twice)
                })
        } else {
            self.ranges
        };
        Self {
            ranges: by_grain.min(by_size).min(self.bytes),
            granularity: if is_cut {
                granularity
            } else {
                self.granularity
            },
            shift: self.shift.min(level.len()).min(level.addr()),
            most: self.most.min(level.most),
            ..self
        }
    }
}

/// The pieces of a layout that repeats one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    /// Bytes of a piece.
    pub(super) len: u64,
    /// The number of pieces of a row; one if the piece is not repeated.
    pub(super) row: u64,
    /// The distance of the pieces of a row.
    pub(super) stride: u64,
    /// `true` if there are several rows.
    pub(super) has_rows: bool,
    /// A divisor of the address of each piece.
    pub(super) addrs: u64,
}

impl RowSet {
    /// Passes a level; returns [`None`] if the pieces of the result would not be of one size and at
    /// one distance.
    fn pass(self, level: &Repeated, bytes: u64) -> Option<Self> {
        if level.row == 1 {
            // The piece contains all rows.
            return Some(Self {
                is_even: self.is_even && is_multiple(level.addrs, self.len),
                ..self
            });
        }
        let row = level.len.saturating_mul(level.row);
        if self.len == 0 {
            let pieces = bytes.checked_div(level.len)?;
            let rows = self.rows.saturating_mul(ENDS);
            return Some(Self {
                len: level.len,
                is_even: is_multiple(level.addrs, level.len),
                stride: level.stride,
                rows: rows.saturating_add(bytes.checked_div(row)?),
                reach: pieces.saturating_mul(level.stride),
            });
        }
        if !self.is_even || !is_multiple(level.len, self.len) {
            return None;
        }
        let many = self.stride.checked_div(level.len)?;
        let is_whole = many.saturating_mul(level.len) == self.stride;
        // The bytes that one search covers, and the pieces after it.
        let (run, stride, reach) = if is_whole {
            let pieces = self.reach.checked_div(level.len)?;
            (
                row,
                many.checked_mul(level.stride)?,
                pieces.saturating_mul(level.stride),
            )
        } else {
            (level.len, self.stride, self.reach)
        };
        let rows = if is_whole && !level.has_rows {
            self.rows
        } else {
            let ends = self.reach.checked_div(run)?;
            self.rows.saturating_mul(2).saturating_add(ends)
        };
        Some(Self {
            len: self.len,
            is_even: is_multiple(level.addrs, self.len),
            stride,
            rows,
            reach,
        })
    }
}

/// Returns `true` if `n` is a multiple of `of`.
fn is_multiple(n: u64, of: u64) -> bool {
    n.checked_rem(of) == Some(0)
}

/// Returns the greatest common divisor; that of 0 and a number is the number.
pub(super) fn divisor(mut a: u64, mut b: u64) -> u64 {
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}
