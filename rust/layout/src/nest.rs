// SPDX-License-Identifier: GPL-2.0

//! The rows of a row: the bytes that a key over a key addresses.

use core::borrow::Borrow;
use core::iter::FusedIterator;
use core::ops::DerefMut;

use super::rows::{Place, Rows};
use super::{AsIndexed, Block, Entry, Error, Layout, Order, Row, Shape};

/// The rows of the pieces of a row; an iterator over [`Row`].
///
/// Each step searches the layout at most once, and takes as many of the remaining pieces as the
/// result covers.
#[derive(Debug)]
pub struct RowsOf<'a, E, B, P, I> {
    layout: &'a Layout<E, B, P, I>,
    order: Order,
    /// The pieces that `rows` does not cover yet, unless `count` is zero.
    outer: Row,
    /// The rows of one piece of the outer row.
    rows: Rows<'a>,
    /// Position of that piece in the access.
    at: u64,
    /// The number of pieces that are taken together with that one.
    times: u64,
    /// Their distance in the leaf.
    far: i64,
}

impl<'a, E, B, P, I> RowsOf<'a, E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    #[inline]
    pub(super) fn new(
        layout: &'a Layout<E, B, P, I>,
        outer: Row,
        order: Order,
    ) -> Result<Self, Error> {
        let mut rows = Self {
            layout,
            order,
            outer,
            rows: Rows::EMPTY,
            at: outer.at,
            times: 1,
            far: 0,
        };
        if outer.count == 1 {
            rows.rows = layout.rows(outer.addr, outer.len, order)?;
            rows.outer.count = 0;
        } else {
            outer.check_within(layout.length())?;
        }
        Ok(rows)
    }

    /// Takes pieces of the outer row. Returns one row for them, or sets the piece that the next
    /// rows belong to.
    fn take(&mut self) -> Option<Row> {
        let outer = self.outer;
        let mut times = 1;
        self.far = 0;
        if outer.count > 1 {
            let place = self.layout.place(outer.addr)?;
            if let Some(row) = within_pieces(&outer, &place) {
                self.outer = outer.skip(row.count);
                return Some(row);
            }
            if let Some((many, far)) = self.columns(&outer, &place) {
                times = many;
                self.far = far;
            }
        }
        self.rows = self.layout.rows(outer.addr, outer.len, self.order).ok()?;
        self.at = outer.at;
        self.times = times;
        self.outer = outer.skip(times);
        None
    }

    /// Returns the number of outer pieces that cover the same bytes of a row, and their distance in
    /// the leaf, if one row for all is shorter than one row for each.
    fn columns(&self, outer: &Row, place: &Place) -> Option<(u64, i64)> {
        let row = &place.row;
        // With several blocks, each has its own distance.
        if row.step != row.len || self.order == Order::Strict {
            return None;
        }
        let (stride, len) = (outer.stride.unsigned_abs(), row.stride.unsigned_abs());
        if self.order == Order::Leaf && (stride < outer.len || len < row.len) {
            return None;
        }
        let last = place.pos.checked_add(outer.len)?.checked_sub(1)?;
        let last = last.checked_div(row.len)?;
        let rest = row.count.checked_sub(1)?.checked_sub(last)?;
        let (times, far) = advance(outer, row, rest, place.before)?;
        (times > last.saturating_add(1)).then_some((times, far))
    }
}

/// The largest piece of a row that [`take_row`] takes apart. Larger pieces get a cursor, which
/// takes longer to make and less time for each row.
pub(super) const SHORT: u64 = 32;

/// See [`Layout::take_row`].
#[inline(always)]
pub(super) fn take_row<E, B, P, I>(layout: &Layout<E, B, P, I>, outer: &mut Row) -> Option<Row>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    match outer.count {
        0 => return None,
        1 => {
            let rest = layout.rest(outer.addr)?;
            if outer.len <= rest.len {
                outer.count = 0;
                return Some(Row {
                    leaf: rest.leaf,
                    addr: rest.addr,
                    count: 1,
                    ..*outer
                });
            }
            if outer.len > SHORT {
                return None;
            }
        }
        _ => {}
    }
    let place = layout.place(outer.addr)?;
    if outer.count > 1 {
        let row = within_pieces(outer, &place)?;
        *outer = outer.skip(row.count);
        return Some(row);
    }
    let (row, pos) = (&place.row, place.pos);
    let room = row.len.wrapping_sub(pos);
    let mut part = Row {
        leaf: row.leaf,
        addr: row.addr.wrapping_add(pos),
        ..*outer
    };
    part.len = room.min(outer.len);
    if pos == 0 && row.step == row.len && outer.len > room {
        part.count = outer.len.checked_div(row.len)?.min(row.count);
        part.stride = row.stride;
        part.step = row.len;
    }
    let taken = part.len.wrapping_mul(part.count);
    if taken == outer.len {
        outer.count = 0;
    } else {
        outer.addr = outer.addr.wrapping_add(taken);
        outer.at = outer.at.wrapping_add(taken);
        outer.len = outer.len.wrapping_sub(taken);
    }
    Some(part)
}

/// Returns the number of pieces of `outer` that begin at the same position in a piece of `row` as
/// the first one, and their distance in memory, if they advance by whole pieces. There are `after`
/// pieces after the first one and `before` before it.
#[inline]
fn advance(outer: &Row, row: &Row, after: u64, before: u64) -> Option<(u64, i64)> {
    let stride = outer.stride.unsigned_abs();
    let pieces = stride.checked_div(row.step)?;
    if pieces.wrapping_mul(row.step) != stride {
        return None;
    }
    if pieces == 0 {
        return Some((outer.count, 0));
    }
    let room = if outer.stride < 0 { before } else { after };
    let more = room.checked_div(pieces)?;
    let times = outer.count.min(more.saturating_add(1));
    if times == 1 {
        return Some((1, 0));
    }
    let far = i64::try_from(pieces).ok()?.checked_mul(row.stride)?;
    Some((
        times,
        if outer.stride < 0 {
            far.checked_neg()?
        } else {
            far
        },
    ))
}

/// Returns a row of as many pieces of `outer` as possible, if each is in the piece at `place`, or
/// each in a piece of its row.
#[inline]
fn within_pieces(outer: &Row, place: &Place) -> Option<Row> {
    let row = &place.row;
    let room = row.len.checked_sub(place.pos)?.checked_sub(outer.len)?;
    let (count, stride) = match advance(outer, row, row.count.saturating_sub(1), place.before) {
        Some(found) => found,
        // Several pieces of `outer` are in one piece of the row.
        None => {
            let room = if outer.stride < 0 { place.pos } else { room };
            let more = room.checked_div(outer.stride.unsigned_abs())?;
            (outer.count.min(more.saturating_add(1)), outer.stride)
        }
    };
    Some(Row {
        leaf: row.leaf,
        addr: row.addr.wrapping_add(place.pos),
        stride,
        count,
        ..*outer
    })
}

impl<E, B, P, I> Iterator for RowsOf<'_, E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
    type Item = Row;

    #[inline]
    fn next(&mut self) -> Option<Row> {
        loop {
            let most = if self.times > 1 { 1 } else { u64::MAX };
            if let Some(mut row) = self.rows.next_of(most) {
                row.at = row.at.wrapping_add(self.at);
                if self.times > 1 {
                    row.count = self.times;
                    row.stride = self.far;
                    row.step = self.outer.step;
                }
                return Some(row);
            }
            if self.outer.count == 0 {
                return None;
            }
            if let Some(row) = self.take() {
                return Some(row);
            }
        }
    }
}

impl<E, B, P, I> FusedIterator for RowsOf<'_, E, B, P, I>
where
    E: DerefMut<Target = [Entry]>,
    B: DerefMut<Target = [Block]>,
    P: Borrow<Shape>,
    I: AsIndexed,
{
}
