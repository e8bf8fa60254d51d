// SPDX-License-Identifier: GPL-2.0

//! Flat lists: the ranges of memory below a layout over keys, as one list.
//!
//! An access to a nest searches once for each piece and level. An access to its flat list searches
//! once.

use core::borrow::Borrow;
use core::ops::DerefMut;

use super::{AsIndexed, Block, Entry, Error, Layout, Order, Row, RowsOf, Run, Shape};

/// The largest number of ranges that replace one piece of a layout.
///
/// A piece of more ranges stays a range of its key. An access to that range searches once at each
/// level below.
pub const MAX_PARTS: usize = 16;

/// The largest number of places that are searched for to replace one piece.
///
/// Lists need fewer searches for [`MAX_PARTS`] ranges. Only levels that could not become a list
/// need more.
const MAX_LOOKS: usize = 2 * MAX_PARTS;

/// A key that is a leaf of a layout.
pub trait Below<'a>: Copy {
    /// Storage of the entries.
    type Entries: DerefMut<Target = [Entry]> + 'a;
    /// Storage of the blocks.
    type Blocks: DerefMut<Target = [Block]> + 'a;
    /// The rest of an interleaved layout.
    type Shape: Borrow<Shape> + 'a;
    /// An indexed layout.
    type Indexed: AsIndexed + 'a;

    /// Returns the key's layout.
    fn layout(self) -> LayoutOf<'a, Self>;

    /// Returns the key that a leaf of the layout is; [`None`] for memory.
    fn below(self, leaf: u32) -> Option<Self>;
}

/// The layout of a key.
type LayoutOf<'a, K> = &'a Layout<
    <K as Below<'a>>::Entries,
    <K as Below<'a>>::Blocks,
    <K as Below<'a>>::Shape,
    <K as Below<'a>>::Indexed,
>;

/// The rows of one level.
type LevelRows<'a, K> = RowsOf<
    'a,
    <K as Below<'a>>::Entries,
    <K as Below<'a>>::Blocks,
    <K as Below<'a>>::Shape,
    <K as Below<'a>>::Indexed,
>;

/// The rest of a piece in one key of a nest.
struct Level<'a, K: Below<'a>> {
    key: K,
    rows: LevelRows<'a, K>,
}

/// An iterator over the rows in memory of a piece of a key, in order, each with the key that has
/// the memory as a leaf.
struct Bottom<'a, K: Below<'a>, const LEVELS: usize> {
    levels: [Option<Level<'a, K>>; LEVELS],
    used: usize,
    /// The number of places that were searched for.
    looks: usize,
}

impl<'a, K: Below<'a>, const LEVELS: usize> Bottom<'a, K, LEVELS> {
    fn new(key: K, piece: Run) -> Result<Self, Error> {
        let mut bottom = Self {
            levels: [const { None }; LEVELS],
            used: 0,
            looks: 0,
        };
        bottom.push(key, Row::of(piece.leaf, piece.addr, piece.len))?;
        Ok(bottom)
    }

    fn push(&mut self, key: K, outer: Row) -> Result<(), Error> {
        let rows = key.layout().rows_of(outer, Order::Strict)?;
        let level = self.levels.get_mut(self.used).ok_or(Error::Range)?;
        *level = Some(Level { key, rows });
        self.used = self.used.saturating_add(1);
        self.looks = self.looks.saturating_add(1);
        Ok(())
    }

    /// Returns the next row; [`None`] after the last one.
    fn next(&mut self) -> Result<Option<(K, Row)>, Error> {
        while let Some(at) = self.used.checked_sub(1) {
            let Some(Some(level)) = self.levels.get_mut(at) else {
                break;
            };
            let key = level.key;
            match level.rows.next() {
                None => self.used = at,
                Some(row) => match key.below(row.leaf) {
                    None => return Ok(Some((key, row))),
                    Some(inner) => self.push(inner, row)?,
                },
            }
        }
        Ok(None)
    }
}

/// The parts of one piece in memory.
struct Parts<K> {
    parts: [Option<(K, Run)>; MAX_PARTS],
}

impl<K: Copy> Parts<K> {
    /// Finds the ranges of `piece` of `key` in memory; [`None`] if there are more than `most`, or
    /// if the search takes more than [`MAX_LOOKS`].
    fn find<'a, const LEVELS: usize>(key: K, piece: Run, most: usize) -> Result<Option<Self>, Error>
    where
        K: Below<'a>,
    {
        let mut parts = [None; MAX_PARTS];
        let mut free = parts.iter_mut().take(most);
        let mut bottom = Bottom::<K, LEVELS>::new(key, piece)?;
        while let Some((key, row)) = bottom.next()? {
            if bottom.looks > MAX_LOOKS {
                return Ok(None);
            }
            for at in 0..row.count {
                let Some(part) = free.next() else {
                    return Ok(None);
                };
                *part = Some((key, row.skip(at).piece()));
            }
        }
        Ok(Some(Self { parts }))
    }
}

/// Calls `each` with all ranges of `layout` in memory, in order. Its first argument is the key to
/// which the range's leaf belongs, [`None`] for a leaf of `layout`.
///
/// In contrast to [`flatten`], every range of a key is replaced by ranges of memory, regardless of
/// their number and of the time that the search takes. An error of `each` ends the work.
///
/// # Errors
///
/// Those of [`flatten`].
pub fn flatten_all<'a, K, R, const LEVELS: usize>(
    layout: LayoutOf<'a, K>,
    key: impl Fn(u32) -> Option<K>,
    mut each: impl FnMut(Option<K>, Run) -> Result<(), R>,
) -> Result<(), R>
where
    K: Below<'a>,
    R: From<Error>,
{
    for row in layout.rows(0, layout.length(), Order::Strict)? {
        let Some(key) = key(row.leaf) else {
            (0..row.count).try_for_each(|at| each(None, row.skip(at).piece()))?;
            continue;
        };
        for at in 0..row.count {
            let mut bottom = Bottom::<K, LEVELS>::new(key, row.skip(at).piece())?;
            while let Some((key, row)) = bottom.next()? {
                (0..row.count).try_for_each(|at| each(Some(key), row.skip(at).piece()))?;
            }
        }
    }
    Ok(())
}

/// Calls `each` with the ranges of `layout`, in order. A range of memory that is reached through a
/// key comes with that key. All other ranges are ranges of a leaf of `layout`, and come without a
/// key. A range of a key is left as it is if it consists of more than `most` ranges of memory or
/// more than [`MAX_PARTS`], or if these take too long to find.
///
/// `key` returns the key of a leaf of `layout`. There are up to `LEVELS` levels of keys. The work
/// is that of an access to the whole layout, so the caller must know its number of pieces.
///
/// # Errors
///
/// The first error of `each`; [`Error::Range`] for a layout that is not within a key, or for more
/// than `LEVELS` levels.
pub fn flatten<'a, K, R, const LEVELS: usize>(
    layout: LayoutOf<'a, K>,
    key: impl Fn(u32) -> Option<K>,
    most: usize,
    mut each: impl FnMut(Option<K>, Run) -> Result<(), R>,
) -> Result<(), R>
where
    K: Below<'a>,
    R: From<Error>,
{
    for row in layout.rows(0, layout.length(), Order::Strict)? {
        let key = key(row.leaf);
        for at in 0..row.count {
            let piece = row.skip(at).piece();
            let parts = match key {
                Some(key) => Parts::find::<LEVELS>(key, piece, most)?,
                None => None,
            };
            let Some(parts) = parts else {
                each(None, piece)?;
                continue;
            };
            for (key, run) in parts.parts.into_iter().flatten() {
                each(Some(key), run)?;
            }
        }
    }
    Ok(())
}
