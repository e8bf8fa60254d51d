// SPDX-License-Identifier: GPL-2.0

//! The meaning of a layout, by its definition: every byte, one after another.

// The fuzz targets use only a part of this.
#![allow(dead_code, unreachable_pub)]

pub mod bodies;
pub mod flat;
pub mod numbers;
pub mod rows;
pub mod runs;
pub mod small;

use self::runs::HasRuns;
use ib_mkey_layout::{
    Block, Entry, Error, Extent, IndexSlice, Indexed, Indices, Interleaved, Layout, List, Part,
    Reach, Run, Shape, MAX_DIMS,
};

pub const ZERO: Error = Error::Zero(Part::All);
pub const OVERFLOW: Error = Error::Overflow(Part::All);

/// Returns the error without the part that is wrong.
pub fn coarse(error: Error) -> Error {
    match error {
        Error::Zero(_) => ZERO,
        Error::Overflow(_) => OVERFLOW,
        other => other,
    }
}

/// A layout over vectors.
pub type VecLayout = Layout<Vec<Entry>, Vec<Block>, Shape, Indexed<VecIndices>>;

/// Indices in a vector.
#[derive(Clone, Debug)]
pub enum VecIndices {
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl VecIndices {
    /// Uses 32-bit indices if all indices fit and `wide` is not set.
    pub fn new(indices: &[u64], wide: bool) -> Self {
        let narrow: Result<Vec<_>, _> = indices.iter().map(|i| u32::try_from(*i)).collect();
        match narrow {
            Ok(narrow) if !wide => Self::U32(narrow),
            _ => Self::U64(indices.to_vec()),
        }
    }
}

impl Indices for VecIndices {
    fn as_slice(&self) -> IndexSlice<'_> {
        match self {
            Self::U32(indices) => IndexSlice::U32(indices),
            Self::U64(indices) => IndexSlice::U64(indices),
        }
    }
}

/// A byte: leaf, address, and the number of the repetition of a block that it is in.
pub type Byte = (u32, u64, usize);

/// A layout as a user describes it.
#[derive(Clone, Debug)]
pub enum Spec {
    /// Leaf, address and length of each entry.
    List(Vec<(u32, u64, u64)>),
    /// Repeat counts; leaf, address, bytes and strides of each block.
    Interleaved(Vec<u64>, Vec<(u32, u64, u64, Vec<i64>)>),
    /// Leaf, address, unit and block length; indices.
    Indexed((u32, u64, u64, u64), Vec<u64>),
}

/// Makes a list of ranges.
fn list(ranges: &[(u32, u64, u64)]) -> Result<List<Vec<Entry>>, Error> {
    let entry = |&(leaf, addr, length): &_| Entry::new(leaf, addr, length);
    List::new(ranges.iter().map(entry).collect())
}

impl Spec {
    /// Makes the layout under test.
    pub fn build(&self) -> Result<VecLayout, Error> {
        Ok(match self {
            Spec::List(entries) => Layout::List(list(entries)?),
            Spec::Interleaved(counts, blocks) => Layout::Interleaved(Interleaved::new(
                counts,
                blocks
                    .iter()
                    .map(|(leaf, addr, bytes, strides)| {
                        let mut stride = [0; MAX_DIMS];
                        stride[..strides.len()].copy_from_slice(strides);
                        Block::new(*leaf, *addr, *bytes, stride)
                    })
                    .collect(),
            )?),
            Spec::Indexed(_, indices) => {
                let wide = self.wide(false)?;
                let narrow = self.wide(true);
                // The size of the indices makes no difference.
                assert_eq!(narrow.map(|layout| layout.length()), Ok(wide.length()));
                if indices.len() % 2 == 0 {
                    return Ok(Layout::Indexed(wide));
                }
                Layout::Indexed(self.wide(true)?)
            }
        })
    }

    fn wide(&self, wide: bool) -> Result<Indexed<VecIndices>, Error> {
        let Spec::Indexed((leaf, addr, unit, len), indices) = self else {
            unreachable!()
        };
        Indexed::new(*leaf, *addr, *unit, *len, VecIndices::new(indices, wide))
    }

    /// Lists every byte. Addresses may be outside of 64 bits.
    pub fn wide_bytes(&self) -> Vec<(u32, i128, usize)> {
        let mut bytes = Vec::new();
        let mut piece = 0;
        let mut add = |leaf: u32, addr: i128, len: u64| {
            bytes.extend((0..i128::from(len)).map(|byte| (leaf, addr + byte, piece)));
            piece += 1;
        };
        match self {
            Spec::List(entries) => {
                for &(leaf, addr, length) in entries {
                    add(leaf, i128::from(addr), length);
                }
            }
            Spec::Interleaved(counts, blocks) => {
                for tuple in tuples(counts) {
                    for (leaf, addr, bytes_count, strides) in blocks {
                        let mut start = i128::from(*addr);
                        for (index, stride) in tuple.iter().zip(strides) {
                            start += i128::from(*index) * i128::from(*stride);
                        }
                        add(*leaf, start, *bytes_count);
                    }
                }
            }
            Spec::Indexed((leaf, addr, unit, len), indices) => {
                for index in indices {
                    add(
                        *leaf,
                        i128::from(*addr) + i128::from(*index) * i128::from(*unit),
                        *len,
                    );
                }
            }
        }
        bytes
    }

    /// Returns what is wrong with the layout, without the part. It must have few bytes.
    pub fn verdict(&self) -> Result<(), Error> {
        let (dims, zero) = match self {
            // The first wrong entry is the reason.
            Spec::List(entries) => {
                let beyond = |addr: u64, len: u64| addr.checked_add(len - 1).is_none();
                let wrong = entries
                    .iter()
                    .find(|&&(_, addr, len)| len == 0 || beyond(addr, len));
                (1, wrong.is_some_and(|entry| entry.2 == 0))
            }
            Spec::Interleaved(counts, blocks) => (
                counts.len(),
                counts.is_empty() || counts.contains(&0) || blocks.iter().any(|block| block.2 == 0),
            ),
            Spec::Indexed((_, _, unit, len), _) => (1, *unit == 0 || *len == 0),
        };
        if dims > MAX_DIMS {
            return Err(Error::TooManyDims);
        }
        let bytes = self.wide_bytes();
        if zero || bytes.is_empty() {
            return Err(ZERO);
        }
        if bytes
            .iter()
            .any(|byte| byte.1 < 0 || byte.1 > i128::from(u64::MAX))
        {
            return Err(OVERFLOW);
        }
        Ok(())
    }

    /// Lists every byte of a valid layout.
    pub fn bytes(&self) -> Vec<Byte> {
        self.wide_bytes()
            .into_iter()
            .map(|(leaf, addr, piece)| (leaf, u64::try_from(addr).unwrap(), piece))
            .collect()
    }

    /// Returns the number of entries or blocks, whose pieces repeat in turn.
    pub fn count(&self) -> usize {
        match self {
            Spec::List(entries) => entries.len(),
            Spec::Interleaved(_, blocks) => blocks.len(),
            Spec::Indexed(_, indices) => indices.len(),
        }
    }

    /// Returns the number of extents, whose pieces repeat in turn.
    pub fn extents(&self) -> usize {
        match self {
            Spec::Indexed(..) => 1,
            _ => self.count(),
        }
    }
}

/// Returns all index tuples; the last index changes fastest.
fn tuples(counts: &[u64]) -> Vec<Vec<u64>> {
    let mut tuples = vec![vec![]];
    for &count in counts {
        let mut longer = Vec::new();
        for tuple in &tuples {
            for index in 0..count {
                longer.push([tuple.as_slice(), &[index]].concat());
            }
        }
        tuples = longer;
    }
    tuples
}

/// Joins bytes to the longest possible runs.
pub fn join(bytes: &[Byte]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &(leaf, addr, _) in bytes {
        match runs.last_mut() {
            Some(run) if run.leaf == leaf && run.addr.checked_add(run.len) == Some(addr) => {
                run.len += 1;
            }
            _ => runs.push(Run { leaf, addr, len: 1 }),
        }
    }
    runs
}

/// Checks rows, runs and resolution of `len` bytes from `offset` on.
pub fn check_access(layout: &VecLayout, bytes: &[Byte], offset: usize, len: usize) {
    rows::check(layout, bytes, offset, len);
    let runs = layout.runs(offset as u64, len as u64);
    let place = layout.resolve(offset as u64, len as u64);
    let Some(wanted) = bytes.get(offset..offset + len) else {
        assert_eq!(runs.map(|_| ()), Err(Error::Range));
        assert_eq!(place, Err(Error::Range));
        return;
    };

    let mut runs = runs.unwrap();
    for run in join(wanted) {
        assert_eq!(runs.next(), Some(run));
    }
    assert_eq!((runs.next(), runs.next()), (None, None));

    assert_eq!(
        place,
        match (wanted.first(), wanted.last()) {
            (Some(first), Some(last)) if first.2 == last.2 => Ok(Run {
                leaf: first.0,
                addr: first.1,
                len: len as u64,
            }),
            (Some(_), Some(_)) => Err(Error::Straddles),
            _ => Err(ZERO),
        }
    );
}

/// Checks length, extents and reaches.
pub fn check_shape(spec: &Spec, layout: &VecLayout, bytes: &[Byte]) {
    assert_eq!(layout.length(), bytes.len() as u64);
    assert_eq!(layout.count(), spec.count());
    check_position(spec, layout, bytes);
    let extents = spec.extents();
    let mut first = 0;
    let all = reaches(layout);
    if let (Spec::Interleaved(..), [reach]) = (spec, all.as_slice()) {
        // Pieces that continue one another may count as one.
        check_extent(reach.extent, || bytes.iter());
        assert_eq!(bytes.len() as u64 % reach.count, 0);
        return;
    }
    for reach in all {
        // Adjacent entries, or a block of each tuple, or all.
        let count = reach.count as usize;
        let is_list = matches!(spec, Spec::List(_));
        let mine = || {
            bytes.iter().filter(|byte| match is_list {
                true => (first..first + count).contains(&byte.2),
                false => byte.2 % extents == first,
            })
        };
        check_extent(reach.extent, mine);
        let mut pieces: Vec<usize> = mine().map(|byte| byte.2).collect();
        pieces.dedup();
        assert_eq!(pieces.len(), count);
        first += if is_list { count } else { 1 };
    }
    assert_eq!(first, extents);
}

/// Checks that a byte is found by its address in the first entry, block or index with that byte.
fn check_position(spec: &Spec, layout: &VecLayout, bytes: &[Byte]) {
    let count = spec.count();
    let lowest = bytes.iter().map(|byte| byte.1).min();
    let first = |byte: &&Byte| Some(byte.1) == lowest;
    let wanted = bytes.iter().filter(first).map(|byte| byte.2 % count).min();
    let found = layout.position(|extent| Some(extent.start()) == lowest);
    assert_eq!(found, wanted);
    assert_eq!(layout.position(|_| false), None);
}

/// Returns the reaches of the layout.
pub fn reaches(layout: &VecLayout) -> Vec<Reach> {
    let mut all = Vec::new();
    let each = |reach| -> Result<(), ()> {
        all.push(reach);
        Ok(())
    };
    layout.reach(each).unwrap();
    // The first error ends the calls.
    let (first, mut seen) = (all.first().copied(), Vec::new());
    let refuse = |reach| {
        seen.push(reach);
        Err(reach)
    };
    assert_eq!(layout.reach(refuse), first.map_or(Ok(()), Err));
    assert_eq!(seen.len(), 1);
    all
}

fn check_extent<'a, I: Iterator<Item = &'a Byte>>(extent: Extent, mine: impl Fn() -> I) {
    let start = mine().map(|byte| byte.1).min().unwrap();
    let last = mine().map(|byte| byte.1).max().unwrap();
    assert!(mine().all(|byte| byte.0 == extent.leaf()));
    assert_eq!((extent.start(), extent.last()), (start, last));
}
