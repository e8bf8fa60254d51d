// SPDX-License-Identifier: GPL-2.0

//! Keys over keys as one layout over memory.
//!
//! An *outer* layout describes offsets of *inner* keys, whose layouts are over memory. [`compose`]
//! finds blocks that have the same bytes of memory for each index tuple of the outer layout. The
//! number of blocks does not depend on the repeat counts. [`pieces`] finds all pieces of memory
//! one by one.
//!
//! An offset of an interleaved inner layout is a number of mixed radix: the position in an index
//! tuple, then an index for each dimension. A stride of the outer layout is such a number too. If
//! no sum of the outer layout's strides carries from one digit to the next, the address is a
//! linear function of the outer indices. That is the case if outer blocks advance by whole inner
//! pieces, or if all repetitions of an outer block are in one inner piece.

use core::borrow::Borrow;
use core::ops::DerefMut;

use super::block::Block;
use super::dims::MAX_DIMS;
use super::extent::Extent;
use super::indexed::AsIndexed;
use super::interleaved::Shape;
use super::layouts::Layout;
use super::pattern::{Part, Pattern};
use super::pieces::Entry;
use super::run::{Error, Row};

/// A dimension of the composed layout: a dimension of the outer one, or a part of it.
#[derive(Clone, Copy, Default)]
struct Axis {
    count: u64,
    /// The outer dimension, innermost first, and the number of its steps for one of this axis.
    dim: usize,
    steps: u64,
}

/// The dimensions of the composed layout, outermost first.
#[derive(Clone, Copy)]
struct Axes {
    axes: [Axis; MAX_DIMS],
    used: usize,
}

impl Axes {
    /// Returns the dimensions of `outer` that repeat anything.
    fn of(outer: &Pattern<'_>) -> Option<Self> {
        let mut all = Self {
            axes: [Axis::default(); MAX_DIMS],
            used: 0,
        };
        for (dim, count) in outer.counts.iter().copied().enumerate().rev() {
            if count != 1 {
                let steps = 1;
                all.push(Axis { count, dim, steps })?;
            }
        }
        Some(all)
    }

    fn push(&mut self, axis: Axis) -> Option<()> {
        *self.axes.get_mut(self.used)? = axis;
        self.used = self.used.checked_add(1)?;
        Some(())
    }

    fn iter(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().take(self.used)
    }

    /// Returns each axis with the stride of `part`, a block of the outer layout.
    fn strides(&self, part: &Part) -> impl Iterator<Item = (u64, Option<i64>)> {
        let strides = part.strides;
        self.axes.into_iter().take(self.used).map(move |axis| {
            let stride = strides.get(axis.dim);
            let steps = i64::try_from(axis.steps).ok();
            let stride = stride.zip(steps);
            (
                axis.count,
                stride.and_then(|(stride, steps)| stride.checked_mul(steps)),
            )
        })
    }

    /// Makes two axes of one, of which the inner one has `count` repetitions.
    fn split(&self, split: Split) -> Option<Self> {
        let mut all = Self { used: 0, ..*self };
        for (at, axis) in self.iter().enumerate() {
            if at == split.axis {
                all.push(Axis {
                    count: axis.count.checked_div(split.count)?,
                    steps: axis.steps.checked_mul(split.count)?,
                    ..*axis
                })?;
                let count = split.count;
                all.push(Axis { count, ..*axis })?;
            } else {
                all.push(*axis)?;
            }
        }
        Some(all)
    }
}

/// A split of an axis, see [`Axes::split`].
struct Split {
    axis: usize,
    count: u64,
}

/// The way in which the repetitions of an outer block fit the inner layout.
enum Fit {
    /// Each stride of the outer block is one distance in memory.
    Linear,
    /// They are linear if an axis is split where the inner dimension ends.
    Split(Split),
}

/// The bytes of an outer block in an inner layout.
struct Range<'a> {
    inner: Pattern<'a>,
    /// The first and the last byte at index zero of all dimensions, relative to the pattern.
    first: u64,
    last: u64,
}

impl Range<'_> {
    /// Returns how the repetitions along `axes` are in the inner layout; [`None`] if they are at
    /// no one distance.
    fn fit(&self, axes: impl Iterator<Item = (u64, Option<i64>)>) -> Option<Fit> {
        let (from, to) = (
            self.inner.digits(self.first)?,
            self.inner.digits(self.last)?,
        );
        let varied = self.varied()?;
        // The bounds of each digit over all repetitions.
        let (mut low, mut high) = (from, to);
        for (axis, (count, stride)) in axes.enumerate() {
            let stride = stride?;
            let steps = count.saturating_sub(1);
            let digits = self.inner.digits(stride.unsigned_abs())?;
            let sums = low.iter_mut().zip(&mut high);
            let radices = self.inner.radices();
            for (at, ((digit, radix), (low, high))) in
                digits.iter().zip(radices).zip(sums).enumerate()
            {
                if *digit == 0 {
                    continue;
                }
                // A lower digit takes every value within the block already.
                if at < varied {
                    return None;
                }
                let is_alone = digits.iter().filter(|digit| **digit != 0).count() == 1;
                let steps_of_digit = radix.checked_div(*digit)?;
                if is_alone
                    && stride > 0
                    && count > steps_of_digit
                    && steps_of_digit > 1
                    && radix.checked_rem(*digit) == Some(0)
                    && count.checked_rem(steps_of_digit) == Some(0)
                {
                    let count = steps_of_digit;
                    return Some(Fit::Split(Split { axis, count }));
                }
                let reach = digit.checked_mul(steps)?;
                if stride < 0 {
                    *low = low.checked_sub(reach)?;
                } else {
                    *high = high.checked_add(reach)?;
                }
            }
        }
        let mut spans = high.iter().zip(self.inner.radices());
        if !spans.all(|(high, radix)| *high < radix) {
            return None;
        }
        // Blocks of a tuple have own strides, so a position must stay within its block.
        let (low, high) = (*low.first()?, *high.first()?);
        let moves = (low, high) != (*from.first()?, *to.first()?);
        if moves && self.inner.part(low)?.start != self.inner.part(high)?.start {
            return None;
        }
        Some(Fit::Linear)
    }

    /// Returns the number of the highest digit that differs within the block.
    fn varied(&self) -> Option<usize> {
        let (from, to) = (
            self.inner.digits(self.first)?,
            self.inner.digits(self.last)?,
        );
        let mut digits = from.iter().zip(&to);
        Some(digits.rposition(|(from, to)| from != to).unwrap_or(0))
    }

    /// Returns the number of tuples of each inner dimension that the block has, innermost first, if
    /// it has whole tuples. The number of dimensions is that of [`Self::varied`].
    fn whole(&self) -> Option<[u64; MAX_DIMS]> {
        let (from, to) = (
            self.inner.digits(self.first)?,
            self.inner.digits(self.last)?,
        );
        let varied = self.varied()?;
        let mut counts = [1; MAX_DIMS];
        let all = from.iter().zip(&to).zip(self.inner.radices());
        for (at, ((from, to), radix)) in all.take(varied.checked_add(1)?).enumerate() {
            let count = to.checked_sub(*from)?.checked_add(1)?;
            if at < varied && count != radix {
                return None;
            }
            if let Some(at) = at.checked_sub(1) {
                *counts.get_mut(at)? = count;
            }
        }
        // Within a tuple there is no dimension to add.
        (varied != 0).then_some(counts)
    }

    /// Calls `each` with the first byte of each run of inner pieces that the block consists of, its
    /// inner block, and its length, up to byte `last`. Ends if `each` returns [`None`].
    fn runs(&self, last: u64, mut each: impl FnMut(&Part, u64, u64) -> Option<()>) -> Option<()> {
        let mut at = self.first;
        loop {
            let digits = self.inner.digits(at)?;
            let (position, indices) = digits.split_first()?;
            let part = self.inner.part(*position)?;
            let position = position.checked_sub(part.start)?;
            let mut addr = part.addr.wrapping_add(position);
            for (index, stride) in indices.iter().zip(part.strides) {
                addr = addr.wrapping_add((stride as u64).wrapping_mul(*index));
            }
            let rest = part.len.checked_sub(position)?;
            let left = last.checked_sub(at)?;
            if left < rest {
                return each(&part, addr, left.checked_add(1)?);
            }
            each(&part, addr, rest)?;
            at = at.checked_add(rest)?;
            if at > last {
                return Some(());
            }
        }
    }
}

/// A leaf of a layout over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the leaf in the outer layout.
    pub outer: u32,
    /// If that leaf is a key, the number of the memory in the layout of the key.
    pub inner: Option<u32>,
}

/// An inner key: its layout, and the number to add, modulo 2^64, to an address that the outer layout
/// gives to get an offset in that layout.
pub type Inner<'a, E, B, P, I> = (&'a Layout<E, B, P, I>, u64);

/// The repeat counts of a composed layout.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    counts: [u64; MAX_DIMS],
    used: usize,
}

impl Counts {
    /// Returns the counts of `axes`.
    fn of(axes: &Axes) -> Self {
        let mut all = Self {
            counts: [1; MAX_DIMS],
            used: axes.used,
        };
        for (count, axis) in all.counts.iter_mut().zip(axes.iter()) {
            *count = axis.count;
        }
        all
    }

    /// Adds those of `dims`, innermost first, that repeat anything. Returns [`None`] if there is no
    /// room for all.
    fn with(mut self, dims: &[u64; MAX_DIMS]) -> Option<Self> {
        for count in dims.iter().rev().filter(|count| **count != 1) {
            *self.counts.get_mut(self.used)? = *count;
            self.used = self.used.checked_add(1)?;
        }
        Some(self)
    }

    /// Returns the counts, outermost first.
    pub fn as_slice(&self) -> &[u64] {
        self.counts.get(..self.used).unwrap_or(&self.counts)
    }
}

/// The most bytes in which a list is searched for pieces at one distance.
const SEARCHED: u64 = 256;

/// Returns the pattern of `layout` that has the bytes `low..=high`.
fn around<E, B, P, I>(layout: &Layout<E, B, P, I>, low: u64, high: u64) -> Option<Pattern<'_>>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    if high >= layout.length() {
        return None;
    }
    let (mut walk, pos) = match layout {
        Layout::Interleaved(interleaved) => return Some(interleaved.pattern()),
        Layout::List(list) => list.seek(low)?,
        Layout::Indexed(indexed) => indexed.as_indexed().seek(low)?,
    };
    let start = low.checked_sub(pos)?;
    let last = high.checked_sub(start)?;
    // Twice as many bytes have the last piece as a whole, too.
    let row = walk.next_row(last.saturating_add(1).min(SEARCHED).saturating_mul(2))?;
    (last < row.len.checked_mul(row.count)?).then(|| Pattern::of_row(start, &row))
}

/// Returns the bytes of the block `part` of `outer` in the layout of a key.
fn range<'a, E, B, P, I>(
    outer: &Pattern<'_>,
    part: &Part,
    (layout, offset): Inner<'a, E, B, P, I>,
) -> Option<Range<'a>>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    let first = part.addr.wrapping_add(offset);
    let mut extent = Extent::new(part.leaf, first, part.len)?;
    for (count, stride) in outer.counts.iter().zip(part.strides) {
        extent = extent.repeat(*count, stride)?;
    }
    let inner = around(layout, extent.start(), extent.last())?;
    let first = first.checked_sub(inner.start)?;
    let last = first.checked_add(part.len)?.checked_sub(1)?;
    Some(Range { inner, first, last })
}

/// Returns the dimensions of the composed layout, without those of [`Range::whole`].
fn axes<'a, E, B, P, I>(
    outer: &Pattern<'_>,
    key: &impl Fn(u32) -> Option<Inner<'a, E, B, P, I>>,
) -> Option<Axes>
where
    E: DerefMut<Target = [Entry]> + 'a,
    B: DerefMut<Target = [Block]> + 'a,
    P: Borrow<Shape> + 'a,
    I: AsIndexed + 'a,
{
    let mut axes = Axes::of(outer)?;
    for part in outer.parts() {
        let Some(inner) = key(part.leaf) else {
            continue;
        };
        let range = range(outer, &part, inner)?;
        // The blocks before stay linear after a split.
        while let Fit::Split(split) = range.fit(axes.strides(&part))? {
            axes = axes.split(split)?;
        }
    }
    Some(axes)
}

/// The strides of a block that is being made, outermost first.
struct Strides {
    strides: [i64; MAX_DIMS],
    used: usize,
}

impl Strides {
    fn of(all: impl Iterator<Item = Option<i64>>) -> Option<Self> {
        let mut strides = Self {
            strides: [0; MAX_DIMS],
            used: 0,
        };
        for stride in all {
            strides.push(stride?)?;
        }
        Some(strides)
    }

    fn push(&mut self, stride: i64) -> Option<()> {
        *self.strides.get_mut(self.used)? = stride;
        self.used = self.used.checked_add(1)?;
        Some(())
    }
}

/// Calls `each` with at most `most` blocks that, repeated as often as the result says, have the
/// same bytes of memory as `outer`. The leaf of these blocks has no meaning; each comes with its
/// place. `key` returns the key of a leaf of `outer`.
///
/// Returns [`None`] if there are no such blocks. `each` may have been called then.
///
/// # Errors
///
/// The first error of `each`.
pub fn compose<'a, E, B, P, I, R>(
    outer: &'a Layout<E, B, P, I>,
    most: usize,
    key: impl Fn(u32) -> Option<Inner<'a, E, B, P, I>>,
    mut each: impl FnMut(Place, Block) -> Result<(), R>,
) -> Result<Option<Counts>, R>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    let mut result = Ok(());
    let mut left = most;
    let each = |place: Place, block| {
        left = left.checked_sub(1)?;
        each(place, block).map_err(|error| result = Err(error)).ok()
    };
    let counts = compose_blocks(outer, key, each);
    result.map(|()| counts)
}

/// Does the work of [`compose`]. Ends if `each` returns [`None`].
fn compose_blocks<'a, E, B, P, I>(
    outer: &'a Layout<E, B, P, I>,
    key: impl Fn(u32) -> Option<Inner<'a, E, B, P, I>>,
    mut each: impl FnMut(Place, Block) -> Option<()>,
) -> Option<Counts>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    let Layout::Interleaved(interleaved) = outer else {
        return None;
    };
    let outer = interleaved.pattern();
    let axes = axes(&outer, &key)?;
    if axes.used == 0 {
        // Without repetition, a list has no more parts, and is smaller.
        return None;
    }
    let mut counts = Counts::of(&axes);
    for part in outer.parts() {
        let strides = || axes.strides(&part).map(|(_, stride)| stride);
        let leaf = part.leaf;
        let Some(inner) = key(leaf) else {
            let place = Place {
                outer: leaf,
                inner: None,
            };
            let strides = Strides::of(strides())?.strides;
            each(place, Block::new(0, part.addr, part.len, strides))?;
            continue;
        };
        let range = range(&outer, &part, inner)?;
        // The repetitions within the only block become dimensions, if there is room.
        let dims = outer.only().and_then(|_| range.whole());
        let all = dims.and_then(|dims| counts.with(&dims));
        let (dims, last) = match (dims, all) {
            (Some(dims), Some(all)) => {
                counts = all;
                let group = range.inner.group.checked_sub(1)?;
                (dims, range.first.checked_add(group)?)
            }
            _ => ([1; MAX_DIMS], range.last),
        };
        range.runs(last, |inner_part, addr, len| {
            let far = strides().map(|stride| inner_part.distance(&range.inner, stride?));
            let mut strides = Strides::of(far)?;
            for (count, stride) in dims.iter().zip(inner_part.strides).rev() {
                if *count != 1 {
                    strides.push(stride)?;
                }
            }
            let inner = Some(inner_part.leaf);
            let place = Place { outer: leaf, inner };
            each(place, Block::new(0, addr, len, strides.strides))
        })?;
    }
    Some(counts)
}

/// Calls `each` with all pieces of memory of `outer`, in order, as rows. `key` returns the key of
/// a leaf of `outer`.
///
/// # Errors
///
/// The first error of `each`; [`Error::Range`] for a layout that is not within a key.
pub fn pieces<'a, E, B, P, I, R>(
    outer: &'a Layout<E, B, P, I>,
    key: impl Fn(u32) -> Option<Inner<'a, E, B, P, I>>,
    mut each: impl FnMut(Place, Row) -> Result<(), R>,
) -> Result<(), R>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
    R: From<Error>,
{
    for row in outer.rows(0, outer.length())? {
        let leaf = row.leaf;
        let Some((layout, offset)) = key(leaf) else {
            let place = Place {
                outer: leaf,
                inner: None,
            };
            each(place, row)?;
            continue;
        };
        for at in 0..row.count {
            let piece = row.skip(at).piece();
            let addr = piece.addr.wrapping_add(offset);
            for row in layout.rows(addr, piece.len)? {
                let inner = Some(row.leaf);
                each(Place { outer: leaf, inner }, row)?;
            }
        }
    }
    Ok(())
}
