// SPDX-License-Identifier: GPL-2.0

//! Computes the contents of a drawing, independently of its format.
//!
//! A leaf is drawn as rows of equal length, like the memory of a matrix. Rows without bytes of the
//! layout are left out. The number of pieces that are examined is limited, because a layout may have
//! many more runs than can be drawn, and any process may make one. So a drawing takes at most some
//! tens of megabytes and some seconds.

use std::{
    collections::{
        BTreeMap,
        HashMap, //
    },
    num::{
        NonZeroU64,
        NonZeroUsize, //
    },
};

use ib_mkey_layout::{
    Layout,
    Run, //
};

use crate::describe::Description;

/// The largest number of pieces that are examined. A piece is the part of a run that is in one row.
const MAX_PIECES: usize = 1 << 20;

/// The largest number of runs that are listed.
const MAX_LISTED: usize = 8;

/// The largest number of entries, blocks or indices that are put into words.
const MAX_WORDS: usize = 32;

/// The number of bytes in a row if the layout does not suggest another one.
const DEFAULT_PITCH: NonZeroU64 = NonZeroU64::MIN.saturating_add(63);

/// The smallest stride that is taken for that of a row. Smaller ones are probably within a row.
const MIN_PITCH: u64 = 32;

pub struct Picture {
    /// The layout in words.
    pub summary: String,
    /// The word for an entry: range, block, or position of an index.
    pub kind: &'static str,
    /// The leaf and the address of the first entries, in words.
    pub entries: Vec<String>,
    pub num_entries: usize,
    /// The first runs, with their offsets in the key.
    pub runs: Vec<ListedRun>,
    /// The number of runs; [`None`] if there are too many to examine.
    pub num_runs: Option<usize>,
    /// The bytes in the panels that the layout has more than once.
    pub repeated: u64,
    pub panels: Vec<Panel>,
}

pub struct ListedRun {
    pub offset: u64,
    pub entry: usize,
    pub addr: u64,
    pub len: u64,
}

/// The memory of one leaf.
pub struct Panel {
    pub leaf: String,
    /// Bytes in a row.
    pub pitch: NonZeroU64,
    /// The rows with bytes of the layout, by their number. Row 0 begins at address 0.
    pub rows: BTreeMap<u64, Vec<Span>>,
    /// `true` if there are more rows.
    pub more: bool,
}

/// Bytes `from..to` of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub entry: usize,
}

impl Picture {
    pub fn new(description: &Description, pitch: Option<NonZeroU64>, rows: NonZeroUsize) -> Self {
        let pitch = pitch.unwrap_or_else(|| natural_pitch(description));
        let mut panels: Vec<Panel> = Vec::new();
        // The number of the panel of each entry.
        let mut panel_of = Vec::new();
        let mut known = HashMap::new();

        for leaf in &description.leaves {
            panel_of.push(*known.entry(leaf).or_insert_with(|| {
                panels.push(Panel {
                    leaf: leaf.clone(),
                    pitch,
                    rows: BTreeMap::new(),
                    more: false,
                });
                panels.len().saturating_sub(1)
            }));
        }

        let mut listed = Vec::new();
        let mut num_runs = 0usize;
        let mut offset = 0u64;
        let mut left = MAX_PIECES;
        // The order of indices is of interest, so their blocks are not joined to runs.
        let mut all: Box<dyn Iterator<Item = (usize, Run)>> = match &description.layout {
            Layout::Indexed(indexed) => Box::new(
                (0..indexed.indices().len()).filter_map(|at| Some((at, indexed.block(at)?))),
            ),
            _ => Box::new(description.runs().map(|run| (run.leaf as usize, run))),
        };
        while let Some((entry, run)) = (left > 0).then(|| all.next()).flatten() {
            if listed.len() < MAX_LISTED {
                listed.push(ListedRun {
                    offset,
                    entry,
                    addr: run.addr,
                    len: run.len,
                });
            }
            let panel = panel_of.get(run.leaf as usize);
            if let Some(panel) = panel.and_then(|&at| panels.get_mut(at)) {
                panel.add(entry, run.addr, run.len, rows.get(), &mut left);
            }
            offset = offset.saturating_add(run.len);
            num_runs = num_runs.saturating_add(1);
        }
        let complete = left > 0;

        Self {
            summary: summary(description),
            kind: match &description.layout {
                Layout::List(_) => "range",
                Layout::Interleaved(_) => "block",
                Layout::Indexed(_) => "position",
            },
            entries: entries(description),
            num_entries: description.layout.count(),
            runs: listed,
            num_runs: complete.then_some(num_runs),
            repeated: panels
                .iter()
                .map(Panel::repeated)
                .fold(0, u64::saturating_add),
            panels,
        }
    }
}

impl Panel {
    /// Adds the bytes of a run. Keeps at most `max` rows, those with the lowest addresses. Examines
    /// at most `pieces` pieces, and subtracts those that it has examined.
    fn add(&mut self, entry: usize, addr: u64, len: u64, max: usize, pieces: &mut usize) {
        let (mut at, mut left) = (addr, len);

        while left > 0 {
            *pieces = match pieces.checked_sub(1) {
                Some(rest) => rest,
                None => {
                    self.more = true;
                    return;
                }
            };
            let (row, from) = (at / self.pitch, at % self.pitch);
            let take = self.pitch.get().saturating_sub(from).min(left);
            let is_full = self.rows.len() >= max && !self.rows.contains_key(&row);

            if is_full {
                self.more = true;
                if self
                    .rows
                    .last_key_value()
                    .is_none_or(|(&last, _)| row > last)
                {
                    return;
                }
                self.rows.pop_last();
            }
            let span = Span {
                from,
                to: from.saturating_add(take),
                entry,
            };
            let spans = self.rows.entry(row).or_default();
            // A block with the stride 0 has the same bytes any number of times, and two show it.
            if !spans.ends_with(&[span, span]) {
                spans.push(span);
            }
            // The last byte of memory may be the last one of the run. Nothing follows it.
            at = at.saturating_add(take);
            left = left.saturating_sub(take);
        }
    }
}

impl Panel {
    /// Returns the number of bytes that more than one span has.
    fn repeated(&self) -> u64 {
        let of_row = |spans: &Vec<Span>| {
            repeats(spans)
                .iter()
                .map(|(from, to)| to.saturating_sub(*from))
                .fold(0, u64::saturating_add)
        };

        self.rows.values().map(of_row).fold(0, u64::saturating_add)
    }
}

/// Returns the bytes that more than one of the spans of a row have, as ranges that do not overlap.
pub fn repeats(spans: &[Span]) -> Vec<(u64, u64)> {
    let mut sorted: Vec<_> = spans.iter().map(|span| (span.from, span.to)).collect();
    let mut found: Vec<(u64, u64)> = Vec::new();
    // The end of the bytes that the spans so far have, and that of those that they repeat.
    let (mut end, mut repeated) = (0, 0);

    sorted.sort_unstable();
    for (from, to) in sorted {
        let twice = (from.max(repeated), to.min(end));
        if twice.0 < twice.1 {
            found.push(twice);
            repeated = twice.1;
        }
        end = end.max(to);
    }
    found
}

/// Returns the smallest stride that can be that of a row. If there is none, returns the largest
/// stride, unless blocks overlap at that stride.
fn natural_pitch(description: &Description) -> NonZeroU64 {
    let interleaved = match &description.layout {
        Layout::List(_) => return DEFAULT_PITCH,
        Layout::Interleaved(interleaved) => interleaved,
        Layout::Indexed(indexed) if indexed.unit() < MIN_PITCH => return DEFAULT_PITCH,
        Layout::Indexed(indexed) => {
            return NonZeroU64::new(indexed.unit()).unwrap_or(DEFAULT_PITCH);
        }
    };
    let strides = || {
        let blocks = interleaved.blocks().iter();

        blocks.flat_map(|block| block.stride().iter().map(|stride| stride.unsigned_abs()))
    };

    let bytes = interleaved.blocks().iter().map(|block| block.bytes_count());
    let longest = bytes.max().unwrap_or(0);

    strides()
        .filter(|&stride| stride >= MIN_PITCH)
        .min()
        .or_else(|| strides().max().filter(|&stride| stride >= longest))
        .and_then(NonZeroU64::new)
        .unwrap_or(DEFAULT_PITCH)
}

fn plural(count: u64, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {what}s"),
    }
}

fn summary(description: &Description) -> String {
    let layout = &description.layout;
    let count = layout.count() as u64;
    let bytes = plural(layout.length(), "byte");

    match layout {
        Layout::List(_) => format!("list of {}: {bytes}", plural(count, "entry")),
        Layout::Indexed(indexed) => format!(
            "indexed, {} of {} and unit {}: {bytes}",
            plural(count, "block"),
            plural(indexed.block_len(), "byte"),
            indexed.unit(),
        ),
        Layout::Interleaved(interleaved) => {
            let counts: Vec<_> = interleaved.repeat_counts().map(|n| n.to_string()).collect();

            format!(
                "interleaved, {} repeated {}: {bytes}",
                plural(count, "block"),
                counts.join(" x "),
            )
        }
    }
}

fn entries(description: &Description) -> Vec<String> {
    let leaves = description.leaves.iter();

    match &description.layout {
        Layout::List(list) => leaves
            .zip(list.entries())
            .take(MAX_WORDS)
            .map(|(leaf, entry)| {
                format!(
                    "{leaf} at {:#x}, {}",
                    entry.addr(),
                    plural(entry.length(), "byte")
                )
            })
            .collect(),
        Layout::Indexed(indexed) => (0..MAX_WORDS)
            .filter_map(|at| {
                let (index, block) = (indexed.indices().get(at)?, indexed.block(at)?);
                Some(format!("index {index} at {:#x}", block.addr))
            })
            .collect(),
        Layout::Interleaved(interleaved) => {
            let num_dims = interleaved.repeat_counts().len();

            leaves
                .zip(interleaved.blocks())
                .take(MAX_WORDS)
                .map(|(leaf, block)| {
                    let strides: Vec<_> = block
                        .stride()
                        .iter()
                        .take(num_dims)
                        .map(i64::to_string)
                        .collect();

                    format!(
                        "{leaf} at {:#x}, {}, stride {}",
                        block.addr(),
                        plural(block.bytes_count(), "byte"),
                        strides.join(", "),
                    )
                })
                .collect()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn blocks(repeat: &str, blocks: &[&str], pitch: Option<u64>, rows: usize) -> Picture {
        let blocks: Vec<_> = blocks.iter().map(|&block| block.to_owned()).collect();
        let description = Description::from_blocks(repeat, &blocks).unwrap();

        Picture::new(
            &description,
            pitch.and_then(NonZeroU64::new),
            NonZeroUsize::new(rows).unwrap(),
        )
    }

    fn span(from: u64, to: u64, entry: usize) -> Span {
        Span { from, to, entry }
    }

    #[test]
    fn a_column_has_one_span_a_row() {
        let picture = blocks("3", &["A@16+4:64"], None, 32);
        let panel = &picture.panels[0];

        assert_eq!(panel.pitch.get(), 64);
        assert!(!panel.more);
        assert_eq!(panel.rows.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(panel.rows.values().all(|spans| *spans == [span(16, 20, 0)]));
        assert_eq!(picture.num_runs, Some(3));
        assert_eq!(picture.summary, "interleaved, 1 block repeated 3: 12 bytes");
        assert_eq!(picture.entries, ["A at 0x10, 4 bytes, stride 64"]);
    }

    #[test]
    fn a_run_is_split_at_the_end_of_a_row() {
        let picture = blocks("1", &["A@60+10:64"], Some(32), 32);

        assert_eq!(
            picture.panels[0].rows,
            BTreeMap::from([(1, vec![span(28, 32, 0)]), (2, vec![span(0, 6, 0)])])
        );
        assert_eq!(picture.num_runs, Some(1));
    }

    #[test]
    fn the_lowest_rows_are_kept() {
        // The blocks go from the highest address to the lowest.
        let picture = blocks("100", &["A@0x10000+1:-64"], Some(64), 2);
        let panel = &picture.panels[0];

        assert!(panel.more);
        assert_eq!(
            panel.rows.keys().copied().collect::<Vec<_>>(),
            [1024 - 99, 1024 - 98]
        );
    }

    /// Returns the number of spans in memory.
    fn num_spans(picture: &Picture) -> usize {
        let rows = picture.panels.iter().flat_map(|panel| panel.rows.values());

        rows.map(Vec::len).sum()
    }

    #[test]
    fn a_block_with_stride_zero_takes_no_more_memory_than_one_block() {
        let picture = blocks("0x100000", &["A@0+64:0"], Some(64), 32);

        assert_eq!(num_spans(&picture), 2);
        assert!(num_spans(&blocks("0x100000", &["A@0+2048:0"], Some(64), 32)) <= MAX_PIECES);
    }

    #[test]
    fn a_layout_of_any_size_is_a_bounded_number_of_pieces() {
        // Each run replaces all rows.
        let block = "A@0x400000000+10000:-10000";
        let picture = blocks("0x100000", &[block], Some(1), 10000);

        assert_eq!(picture.num_runs, None);
        assert!(picture.panels[0].more);
        assert!(num_spans(&picture) <= MAX_PIECES);
        let picture = blocks("0x100000", &["A@0+640000:0"], Some(64), 10000);
        assert_eq!(picture.num_runs, None);
        assert!(num_spans(&picture) <= MAX_PIECES);
    }

    #[test]
    fn leaves_have_panels_of_their_own() {
        let picture = blocks("2", &["A@0+1:64", "B@0+1:64", "A@8+1:64"], None, 32);

        assert_eq!(picture.panels.len(), 2);
        assert_eq!(picture.panels[0].rows[&1], [span(0, 1, 0), span(8, 9, 2)]);
        assert_eq!(picture.panels[1].rows[&1], [span(0, 1, 1)]);
        assert_eq!(picture.runs[2].offset, 2);
        assert_eq!(picture.runs[2].entry, 2);
    }

    #[test]
    fn indexed_blocks_are_of_one_leaf() {
        let description = Description::from_indices("A@0+8:64", "5,1,5,6").unwrap();
        let picture = Picture::new(&description, None, NonZeroUsize::MAX);

        assert_eq!(picture.panels.len(), 1);
        assert_eq!(picture.panels[0].pitch.get(), 64);
        assert_eq!(
            picture.panels[0].rows,
            BTreeMap::from([
                (1, vec![span(0, 8, 1)]),
                (5, vec![span(0, 8, 0), span(0, 8, 2)]),
                (6, vec![span(0, 8, 3)]),
            ])
        );
        assert_eq!(picture.repeated, 8);
        assert_eq!(
            picture.summary,
            "indexed, 4 blocks of 8 bytes and unit 64: 32 bytes"
        );
        assert_eq!(
            picture.entries,
            [
                "index 5 at 0x140",
                "index 1 at 0x40",
                "index 5 at 0x140",
                "index 6 at 0x180"
            ]
        );
    }

    #[test]
    fn bytes_that_the_layout_repeats_are_counted() {
        assert_eq!(blocks("3", &["A@0+8:4"], Some(64), 32).repeated, 8);
        assert_eq!(blocks("9", &["A@0+8:0"], Some(64), 32).repeated, 8);
        assert_eq!(blocks("3", &["A@0+8:8"], Some(64), 32).repeated, 0);
        let three = [span(0, 9, 0), span(2, 4, 1), span(3, 7, 2)];
        assert_eq!(repeats(&three), [(2, 4), (4, 7)]);
    }

    #[test]
    fn the_last_byte_of_memory_is_drawn() {
        let picture = blocks("1", &["A@0xffffffffffffffc1+63:0"], Some(64), 2);

        assert_eq!(
            picture.panels[0].rows,
            BTreeMap::from([(u64::MAX / 64, vec![span(1, 64, 0)])])
        );
    }

    #[test]
    fn an_exabyte_is_drawn_at_once() {
        let picture = blocks("0x10000000", &["A@0+1G:2G"], Some(64), 16);

        assert_eq!(picture.num_runs, None);
        assert!(picture.panels[0].more);
        assert_eq!(picture.panels[0].rows.len(), 16);
    }

    #[test]
    fn rows_are_as_long_as_a_stride_that_could_be_theirs() {
        let pitch = |repeat, block| blocks(repeat, &[block], None, 1).panels[0].pitch.get();

        // The layouts are pixels in rows, rows in planes, and bytes next to each other.
        assert_eq!(pitch("2,2", "A@0+3:48,12"), 48);
        assert_eq!(pitch("2,2", "A@0x1000+8:4096,-64"), 64);
        assert_eq!(pitch("2", "A@0+1:3"), 3);
        assert_eq!(pitch("2", "A@0+1:0"), DEFAULT_PITCH.get());
    }
}
