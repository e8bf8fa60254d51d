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

use super::extent::Extent;
use super::{AsIndexed, Block, Entry, Error, Layout, Order, Row, Shape, MAX_DIMS};

/// The digits of an offset: the position in a tuple, then the indices, innermost first.
type Digits = [u64; MAX_DIMS + 1];

/// A repeated block of an inner layout.
struct Part {
    leaf: u32,
    addr: u64,
    len: u64,
    /// Offset of the first byte among those of one index tuple.
    start: u64,
    /// Innermost first.
    strides: [i64; MAX_DIMS],
}

/// The blocks of a [`Pattern`].
enum Parts<'a> {
    /// A block that is all bytes of an index tuple.
    One(Part),
    /// The blocks of a layout of so many dimensions.
    Many(&'a [Block], usize),
}

/// Blocks that repeat in some dimensions: an interleaved layout, or pieces of another layout that
/// are at one distance.
pub(super) struct Pattern<'a> {
    /// Offset of the first byte in the layout.
    start: u64,
    /// Bytes of an index tuple.
    group: u64,
    /// Repeat counts, innermost first. Those beyond the dimensions are one.
    counts: [u64; MAX_DIMS],
    parts: Parts<'a>,
}

impl<'a> Pattern<'a> {
    /// Makes a pattern of pieces at one distance. The first one is at `start` of the layout.
    fn of_row(start: u64, row: &Row) -> Self {
        let (mut counts, mut strides) = ([1; MAX_DIMS], [0; MAX_DIMS]);
        let ([count, ..], [stride, ..]) = (&mut counts, &mut strides);
        *count = row.count;
        *stride = row.stride;
        Self::repeated(start, counts, row, strides)
    }

    /// Makes a pattern of the first piece of `row`, repeated `counts` times.
    pub(super) fn repeated(
        start: u64,
        counts: [u64; MAX_DIMS],
        row: &Row,
        strides: [i64; MAX_DIMS],
    ) -> Self {
        Self {
            start,
            group: row.len,
            counts,
            parts: Parts::One(Part {
                leaf: row.leaf,
                addr: row.addr,
                len: row.len,
                start: 0,
                strides,
            }),
        }
    }

    /// Makes a pattern of all `blocks`, with `group` bytes for each index tuple of `dims`
    /// dimensions.
    pub(super) fn of_blocks(
        group: u64,
        counts: [u64; MAX_DIMS],
        (blocks, dims): (&'a [Block], usize),
    ) -> Self {
        Self {
            start: 0,
            group,
            counts,
            parts: Parts::Many(blocks, dims),
        }
    }

    /// Returns the pattern of `layout` that has the bytes `low..=high`.
    fn around<E, B, P, I>(layout: &'a Layout<E, B, P, I>, low: u64, high: u64) -> Option<Self>
    where
        E: DerefMut<Target = [Entry]>,
        B: DerefMut<Target = [Block]>,
        P: Borrow<Shape>,
        I: AsIndexed,
    {
        if high >= layout.length() {
            return None;
        }
        let place = match layout {
            Layout::Interleaved(interleaved) => return Some(interleaved.pattern()),
            Layout::List(list) => list.place(low)?,
            Layout::Indexed(indexed) => indexed.as_indexed().place(low)?,
        };
        let start = low.checked_sub(place.pos)?;
        let pattern = Self::of_row(start, &place.row);
        let bytes = place.row.len.checked_mul(place.row.count)?;
        (high.checked_sub(start)? < bytes).then_some(pattern)
    }

    /// Returns the digits of `at`. The last one may be any number.
    fn digits(&self, at: u64) -> Option<Digits> {
        let mut digits = [0; MAX_DIMS + 1];
        let (position, indices) = digits.split_first_mut()?;
        *position = at.checked_rem(self.group)?;
        let mut rest = at.checked_div(self.group)?;
        for (digit, count) in indices.iter_mut().zip(self.counts) {
            *digit = rest.checked_rem(count)?;
            rest = rest.checked_div(count)?;
        }
        // What is left is more than the layout has.
        let last = indices.last_mut()?;
        *last = last.checked_add(rest.checked_mul(self.counts.last().copied()?)?)?;
        Some(digits)
    }

    /// Returns the largest number of each digit, plus one.
    fn radices(&self) -> impl Iterator<Item = u64> {
        core::iter::once(self.group).chain(self.counts)
    }

    /// Returns the block with the byte at `position` of an index tuple.
    fn part(&self, position: u64) -> Option<Part> {
        match &self.parts {
            Parts::One(part) => Some(Part { ..*part }),
            Parts::Many(blocks, dims) => {
                let after = blocks.partition_point(|block| block.start() <= position);
                let block = blocks.get(after.checked_sub(1)?)?;
                let mut strides = [0; MAX_DIMS];
                let used = block.stride().iter().take(*dims).rev();
                for (own, stride) in strides.iter_mut().zip(used) {
                    *own = *stride;
                }
                Some(Part {
                    leaf: block.leaf(),
                    addr: block.addr(),
                    len: block.bytes_count(),
                    start: block.start(),
                    strides,
                })
            }
        }
    }

    /// Returns the only block, if there is one.
    fn only(&self) -> Option<Part> {
        match &self.parts {
            Parts::Many(blocks, _) if blocks.len() != 1 => None,
            _ => self.part(0),
        }
    }
}

impl Clone for Part {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl Part {
    /// Returns the distance in memory of two repetitions whose offsets have the distance `far`.
    fn distance(&self, pattern: &Pattern<'_>, far: i64) -> Option<i64> {
        let digits = pattern.digits(far.unsigned_abs())?;
        let (position, indices) = digits.split_first()?;
        let mut sum = i64::try_from(*position).ok()?;
        for (index, stride) in indices.iter().zip(self.strides) {
            if *index != 0 {
                sum = sum.checked_add(i64::try_from(*index).ok()?.checked_mul(stride)?)?;
            }
        }
        if far < 0 {
            sum.checked_neg()
        } else {
            Some(sum)
        }
    }
}

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

/// What the repetitions of an outer block are in the inner layout.
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
        let (mut low, mut high) = (from.map(i128::from), to.map(i128::from));
        for (axis, (count, stride)) in axes.enumerate() {
            let stride = stride?;
            let steps = i128::from(count).saturating_sub(1);
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
                let reach = i128::from(*digit).saturating_mul(steps);
                if stride < 0 {
                    *low = low.saturating_sub(reach);
                } else {
                    *high = high.saturating_add(reach);
                }
            }
        }
        let mut spans = low.iter().zip(&high).zip(self.inner.radices());
        if !spans.all(|((low, high), radix)| *low >= 0 && *high < i128::from(radix)) {
            return None;
        }
        // Blocks of a tuple have own strides, so a position must stay within its block.
        let (low, high) = (
            u64::try_from(*low.first()?).ok()?,
            u64::try_from(*high.first()?).ok()?,
        );
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

/// An inner key: its layout, and the offset in that layout at which the key begins.
pub type Inner<'a, E, B, P, I> = (&'a Layout<E, B, P, I>, u64);

/// The repeat counts of a composed layout.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    counts: [u64; MAX_DIMS],
    used: usize,
}

impl Counts {
    /// Returns the counts, outermost first.
    pub fn as_slice(&self) -> &[u64] {
        self.counts.get(..self.used).unwrap_or(&self.counts)
    }
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
    let first = part.addr.checked_add(offset)?;
    let mut extent = Extent::new(part.leaf, first, part.len).ok()?;
    for (count, stride) in outer.counts.iter().zip(part.strides) {
        extent = extent.repeat(*count, stride).ok()?;
    }
    let inner = Pattern::around(layout, extent.start(), extent.last())?;
    let first = first.checked_sub(inner.start)?;
    let last = first.checked_add(part.len)?.checked_sub(1)?;
    Some(Range { inner, first, last })
}

/// Calls `each` with a function that returns each block of a pattern.
fn parts<'p>(pattern: &'p Pattern<'_>) -> impl Iterator<Item = Part> + 'p {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= pattern.group {
            return None;
        }
        let part = pattern.part(at)?;
        at = part.start.saturating_add(part.len);
        Some(part)
    })
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
    for part in parts(outer) {
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
    let mut counts = Counts {
        counts: [1; MAX_DIMS],
        used: axes.used,
    };
    for (count, axis) in counts.counts.iter_mut().zip(axes.iter()) {
        *count = axis.count;
    }
    for part in parts(&outer) {
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
        let mut last = range.last;
        // The repetitions within the only block become dimensions, if there is room.
        let mut more = None;
        if outer.only().is_some() {
            if let Some(dims) = range.whole() {
                let mut all = counts;
                let used = dims.iter().rev().filter(|count| **count != 1);
                let mut room = true;
                for count in used {
                    match all.counts.get_mut(all.used) {
                        Some(place) => *place = *count,
                        None => room = false,
                    }
                    all.used = all.used.saturating_add(1);
                }
                if room {
                    counts = all;
                    last = range.first.checked_add(range.inner.group)?.checked_sub(1)?;
                    more = Some(dims);
                }
            }
        }
        range.runs(last, |inner_part, addr, len| {
            let far = strides().map(|stride| inner_part.distance(&range.inner, stride?));
            let mut strides = Strides::of(far)?;
            let dims = more.unwrap_or([1; MAX_DIMS]);
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
    for row in outer.rows(0, outer.length(), Order::Strict)? {
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
            let addr = piece.addr.checked_add(offset).ok_or(Error::Range)?;
            for row in layout.rows(addr, piece.len, Order::Strict)? {
                let inner = Some(row.leaf);
                each(Place { outer: leaf, inner }, row)?;
            }
        }
    }
    Ok(())
}
