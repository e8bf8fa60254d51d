// SPDX-License-Identifier: GPL-2.0

//! The cursor over the rows of a list.

use super::row::distance;
use super::rows::{Place, Walk};
use super::segments::At;
use super::steps::step;
use super::{Entry, Pieces, Places, Row, Scattered};

/// A cursor over the rows of a [`List`](super::List).
#[derive(Clone, Debug)]
pub(super) struct ListWalk<'a> {
    /// The entries of the current row and those after it.
    rest: &'a [Entry],
    /// The number of entries of the current row.
    held: usize,
    /// The number of the entries that are the rest of a scattered segment; zero in a row.
    scattered: usize,
}

impl<'a> ListWalk<'a> {
    /// Returns the place of `pos` in entry `index`, and a cursor to the rows after it.
    #[inline(always)]
    pub(super) fn at(entries: &'a [Entry], index: usize, pos: u64) -> Option<(Place, Self)> {
        let rest = entries.get(index..)?;
        let entry = rest.first()?;
        let (back, first) = match entry.mark().get() {
            At::First { .. } => (0, entry),
            At::After(back) => {
                let back = back as usize;
                (back, entries.get(index.checked_sub(back)?)?)
            }
        };
        match first.mark().get() {
            At::First {
                count,
                is_scattered: true,
            } => {
                step();
                let place = Place {
                    row: Row::of(entry.leaf(), entry.addr(), entry.length()),
                    pos,
                };
                let walk = Self {
                    rest,
                    held: 1,
                    scattered: (count as usize).checked_sub(back)?,
                };
                Some((place, walk))
            }
            _ => Self::in_row(entries.get(index.checked_sub(back)?..)?, back, pos),
        }
    }

    /// Returns the place of `pos` in entry `back` of the row that begins with the first of
    /// `entries`, and a cursor to the rows after it.
    fn in_row(entries: &'a [Entry], back: usize, pos: u64) -> Option<(Place, Self)> {
        let entry = entries.get(back)?;
        let mut walk = Self {
            rest: entries,
            held: 0,
            scattered: 0,
        };
        let row = walk.next_row()?;
        let back = back as u64;
        let place = if row.count > back {
            Place {
                row: row.skip(back),
                pos,
            }
        } else {
            // Entries that continue one another form one piece.
            Place {
                row,
                pos: pos.wrapping_add(entry.length().wrapping_mul(back)),
            }
        };
        Some((place, walk))
    }

    /// Returns the next row, if there is one.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Row> {
        step();
        self.rest = self.rest.get(self.held..)?;
        self.scattered = self.scattered.saturating_sub(self.held);
        let entry = self.rest.first()?;
        let next = self.rest.get(1).unwrap_or(entry);
        let row = |count: usize| Row {
            leaf: entry.leaf(),
            addr: entry.addr(),
            len: entry.length(),
            // The stride has no meaning in a row of one entry.
            stride: next.addr().wrapping_sub(entry.addr()) as i64,
            count: count as u64,
            at: 0,
            step: entry.length(),
        };
        if self.scattered == 0 {
            let At::First {
                count,
                is_scattered,
            } = entry.mark().get()
            else {
                return None;
            };
            if !is_scattered {
                self.held = count as usize;
                return Some(if count == 1 {
                    row(1)
                } else {
                    row(count as usize).joined()
                });
            }
            self.scattered = count as usize;
        }
        // Two entries are a row, unless they are one piece or no stride has their distance.
        let is_pair = self.scattered > 1
            && distance(entry.addr(), next.addr())
                .is_some_and(|distance| u64::try_from(distance) != Ok(entry.length()));
        self.held = if is_pair { 2 } else { 1 };
        Some(row(self.held))
    }
}

/// Returns `entries`, those of `all` from `index` on, as pieces. Returns [`None`] unless they are a
/// part of one row or of one scattered segment.
#[inline(always)]
pub(super) fn only_pieces<'a>(
    all: &[Entry],
    index: usize,
    entries: &'a [Entry],
) -> Option<Pieces<'a>> {
    let (entry, rest) = entries.split_first()?;
    let (back, first) = match entry.mark().get() {
        At::First { .. } => (0, entry),
        At::After(back) => {
            let back = back as usize;
            (back, all.get(index.checked_sub(back)?)?)
        }
    };
    let At::First {
        count,
        is_scattered,
    } = first.mark().get()
    else {
        return None;
    };
    if entries.len() > (count as usize).checked_sub(back)? {
        return None;
    }
    step();
    let row = Row::of(entry.leaf(), entry.addr(), entry.length());
    let Some(next) = rest.first() else {
        return Some(Pieces::Row(row));
    };
    Some(if is_scattered {
        Pieces::Scattered(Scattered {
            leaf: row.leaf,
            len: row.len,
            at: 0,
            places: Places::Entries(entries),
        })
    } else {
        let row = Row {
            stride: next.addr().wrapping_sub(entry.addr()) as i64,
            count: entries.len() as u64,
            ..row
        };
        Pieces::Row(row.joined())
    })
}

impl<'a> Walk<'a> for ListWalk<'a> {
    #[inline(always)]
    fn next_row(&mut self, _left: u64) -> Option<Row> {
        self.next_row()
    }

    #[inline(always)]
    fn take(&mut self, held: &Row, left: u64, at: u64) -> Option<Pieces<'a>> {
        if self.scattered == 0 {
            return None;
        }
        let most = usize::try_from(left.checked_div(held.len)?).ok()?;
        let taken = self.held.checked_sub(usize::try_from(held.count).ok()?)?;
        let count = self.scattered.checked_sub(taken)?.min(most);
        if count < 2 {
            return None;
        }
        let after = taken.checked_add(count)?;
        let entries = self.rest.get(taken..after)?;
        step();
        self.held = after;
        Some(Pieces::Scattered(Scattered {
            leaf: held.leaf,
            len: held.len,
            at,
            places: Places::Entries(entries),
        }))
    }
}
