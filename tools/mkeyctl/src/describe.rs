// SPDX-License-Identifier: GPL-2.0

//! Descriptions of layouts. `describe/text.rs` parses the forms of the command line, and
//! `describe/json.rs` parses JSON.

mod json;
mod text;

use std::iter;

use ib_mkey_layout::{
    Block,
    Entry,
    Error,
    IndexSlice,
    Indexed,
    Indices,
    Interleaved,
    Layout,
    List,
    Part,
    Run,
    Shape,
    MAX_DIMS, //
};
use ibmkey::sys::{
    IB_MKEY_MAX_ENTRIES,
    IB_MKEY_MAX_INDICES, //
};
use text::{
    block,
    check_name,
    indexed_block,
    numbers,
    range,
    Range, //
};

pub use text::{
    block_text,
    indexed_text,
    number,
    numbers_text,
    range_text, //
};

/// The indices of an indexed layout.
#[derive(Debug)]
pub struct VecIndices(Vec<u64>);

impl Indices for VecIndices {
    fn as_slice(&self) -> IndexSlice<'_> {
        IndexSlice::U64(&self.0)
    }
}

/// A layout, and the names of its leaves.
///
/// In the layout, the number of the leaf of an entry or block is the index of that entry or block.
/// So the leaf of a run tells the entry. An indexed layout has one leaf.
#[derive(Debug)]
pub struct Description {
    pub layout: Layout<Vec<Entry>, Vec<Block>, Shape, Indexed<VecIndices>>,
    /// The name of the leaf of each entry or block.
    pub leaves: Vec<String>,
}

/// Checks that each block has a stride for each number in `repeat`, and that there are not too many
/// dimensions.
pub fn check_dims(repeat: &str, blocks: &[String]) -> Result<(), String> {
    let dims = numbers(repeat)?.len();

    if dims > MAX_DIMS {
        return Err(too_many_dims());
    }
    blocks.iter().try_for_each(|text| {
        let (_, given) = block(text)?;
        strides(&given, dims).map(drop)
    })
}

fn too_many_dims() -> String {
    format!("more than {MAX_DIMS} dimensions")
}

/// Returns the first block whose strides lead to an address below 0.
fn below_zero(repeat_count: &[u64], blocks: &[(Range, Vec<i64>)]) -> Option<usize> {
    blocks.iter().position(|(range, stride)| {
        let back = repeat_count.iter().zip(stride).map(|(&count, &stride)| {
            let steps = i128::from(count).saturating_sub(1);
            steps.saturating_mul(i128::from(stride).min(0))
        });

        back.fold(i128::from(range.addr), i128::saturating_add) < 0
    })
}

/// Returns the strides in an array for the largest number of dimensions.
fn strides(given: &[i64], num_dims: usize) -> Result<[i64; MAX_DIMS], String> {
    if given.len() != num_dims {
        return Err(format!(
            "a block needs one stride for each of the {num_dims} dimensions, not {}",
            given.len()
        ));
    }

    let mut all = [0; MAX_DIMS];
    for (to, from) in all.iter_mut().zip(given) {
        *to = *from;
    }
    Ok(all)
}

/// Checks that a key of the kernel can have so many entries.
fn at_most(count: usize, most: u32, what: &str) -> Result<(), String> {
    if count > most as usize {
        return Err(format!("{count} {what}, and a key has at most {most}"));
    }
    Ok(())
}

/// Returns the number of the leaf of entry or block `at`.
fn index(at: usize) -> Result<u32, String> {
    u32::try_from(at).map_err(|_| "too many entries".to_owned())
}

impl Description {
    /// Returns the contiguous bytes in order, each run as long as possible.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let rows = self.layout.rows(0, self.layout.length());
        let mut pieces = rows
            .into_iter()
            .flatten()
            .flat_map(|row| (0..row.count).map(move |at| row.skip(at).piece()))
            .peekable();

        iter::from_fn(move || {
            let mut run = pieces.next()?;

            // Address zero does not follow the last address.
            while let Some(next) = pieces.next_if(|next| {
                next.leaf == run.leaf && run.addr.checked_add(run.len) == Some(next.addr)
            }) {
                run.len = run.len.saturating_add(next.len);
            }
            Some(run)
        })
    }

    /// Parses ranges such as `A@0+64`, which follow one another in the key.
    pub fn from_ranges(texts: &[String]) -> Result<Self, String> {
        Self::list(
            texts
                .iter()
                .map(|text| range(text))
                .collect::<Result<_, _>>()?,
        )
    }

    /// Parses `3,4` and `A@0+16:256,64`.
    pub fn from_blocks(repeat: &str, texts: &[String]) -> Result<Self, String> {
        let repeat_count = numbers(repeat)?;
        let blocks = texts.iter().map(|text| block(text));

        Self::interleaved(&repeat_count, blocks.collect::<Result<_, String>>()?)
    }

    /// Parses `A@0+16:64` and `3,0,7`.
    pub fn from_indices(text: &str, indices: &str) -> Result<Self, String> {
        let (place, unit) = indexed_block(text)?;

        Self::indexed(place, unit, numbers(indices)?)
    }

    fn list(ranges: Vec<Range>) -> Result<Self, String> {
        let mut entries = Vec::new();
        let mut leaves = Vec::new();

        if ranges.is_empty() {
            return Err("the list has no entries".to_owned());
        }
        at_most(ranges.len(), IB_MKEY_MAX_ENTRIES, "entries")?;
        for (at, range) in ranges.into_iter().enumerate() {
            check_name(&range.leaf)?;
            if range.bytes == 0 {
                return Err(format!("entry {at} of the list has no bytes"));
            }
            entries.push(Entry::new(index(at)?, range.addr, range.bytes));
            leaves.push(range.leaf);
        }

        Ok(Self {
            layout: Layout::List(List::new(entries).map_err(wrong)?),
            leaves,
        })
    }

    fn indexed(range: Range, unit: u64, indices: Vec<u64>) -> Result<Self, String> {
        check_name(&range.leaf)?;
        at_most(indices.len(), IB_MKEY_MAX_INDICES, "indices")?;
        let indexed = Indexed::new(0, range.addr, unit, range.bytes, VecIndices(indices));

        Ok(Self {
            layout: Layout::Indexed(indexed.map_err(wrong)?),
            leaves: vec![range.leaf],
        })
    }

    fn interleaved(repeat_count: &[u64], given: Vec<(Range, Vec<i64>)>) -> Result<Self, String> {
        let mut blocks = Vec::new();
        let mut leaves = Vec::new();

        if repeat_count.len() > MAX_DIMS {
            return Err(too_many_dims());
        }
        if let Some(at) = repeat_count.iter().position(|&count| count == 0) {
            return Err(format!("repeat_count[{at}] is 0"));
        }
        if given.is_empty() {
            return Err("there are no blocks".to_owned());
        }
        at_most(given.len(), IB_MKEY_MAX_ENTRIES, "blocks")?;
        let below = below_zero(repeat_count, &given);
        for (at, (range, stride)) in given.into_iter().enumerate() {
            let stride = strides(&stride, repeat_count.len())?;

            check_name(&range.leaf)?;
            if range.bytes == 0 {
                return Err(format!("blocks[{at}] has no bytes"));
            }
            blocks.push(Block::new(index(at)?, range.addr, range.bytes, stride));
            leaves.push(range.leaf);
        }

        Ok(Self {
            layout: Layout::Interleaved(Interleaved::new(repeat_count, blocks).map_err(
                |error| match (error, below) {
                    (Error::Overflow(_), Some(at)) => {
                        format!("blocks[{at}]: its strides lead to addresses below 0")
                    }
                    _ => wrong(error),
                },
            )?),
            leaves,
        })
    }
}

/// Says why there is no such layout.
fn wrong(error: Error) -> String {
    match error {
        Error::Overflow(Part::Entry(at)) => format!("entry {at}: an address does not fit 64 bits"),
        Error::Overflow(_) => "the length does not fit 64 bits".to_owned(),
        Error::Zero(Part::Entry(at)) => format!("entry {at} has zero bytes"),
        _ => "a count or a distance is zero".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn runs(description: &Description) -> Vec<(u32, u64, u64)> {
        description
            .runs()
            .map(|run| (run.leaf, run.addr, run.len))
            .collect()
    }

    #[test]
    fn a_list() {
        let list = Description::from_ranges(&["A@0x10+4".into(), "8+2".into()]).unwrap();

        assert_eq!(runs(&list), [(0, 16, 4), (1, 8, 2)]);
        assert_eq!(list.leaves, ["A", "memory"]);
    }

    #[test]
    fn blocks() {
        let blocks =
            Description::from_blocks("2,2", &["A@0+1:100,10".into(), "B@50+1:-10,-1".into()])
                .unwrap();

        assert_eq!(
            runs(&blocks),
            [
                (0, 0, 1),
                (1, 50, 1),
                (0, 10, 1),
                (1, 49, 1),
                (0, 100, 1),
                (1, 40, 1),
                (0, 110, 1),
                (1, 39, 1),
            ]
        );
    }

    #[test]
    fn indices() {
        let table = Description::from_indices("A@16+4:64", "3,0,0x2,2").unwrap();

        // These blocks are not adjacent; adjacent blocks would be one run.
        assert_eq!(
            runs(&table),
            [(0, 208, 4), (0, 16, 4), (0, 144, 4), (0, 144, 4)]
        );
        assert_eq!(table.leaves, ["A"]);
    }

    #[test]
    fn json_says_the_same() {
        let list = r#"{"list": [{"leaf": "A", "addr": "0x10", "length": 4},
                                {"addr": 8, "length": 2}]}"#;
        let blocks = r#"{"interleaved": {"repeat_count": [2, 2], "blocks": [
            {"leaf": "A", "addr": 0, "bytes_count": 1, "stride": [100, 10]}]}}"#;

        assert_eq!(
            runs(&Description::from_json(list).unwrap()),
            [(0, 16, 4), (1, 8, 2)]
        );
        assert_eq!(
            runs(&Description::from_json(blocks).unwrap()),
            runs(&Description::from_blocks("2,2", &["A@0+1:100,10".into()]).unwrap())
        );
        let table = r#"{"indexed": {"leaf": "A", "addr": 16, "unit": "0x40", "bytes_count": 4,
                                    "indices": [3, 0]}}"#;
        assert_eq!(
            runs(&Description::from_json(table).unwrap()),
            runs(&Description::from_indices("A@16+4:64", "3,0").unwrap())
        );
    }

    #[test]
    fn json_is_what_is_read() {
        let list = [
            "A@0xfffffffffffffff0+8".to_owned(),
            "8+0x40000000000000".into(),
        ];
        let all = [
            Description::from_ranges(&list),
            Description::from_blocks("2", &["A@0x40000000000000+1:-0x40000000000000".into()]),
            Description::from_blocks("3", &["A@64+2:-8".into(), "B@0+1:8".into()]),
            Description::from_indices("A@16+4:64", "3,0"),
        ];

        for text in all.iter().flatten().map(|it| it.to_json().to_string()) {
            let again = Description::from_json(&text).unwrap();
            assert_eq!(again.to_json().to_string(), text);
        }
        assert_eq!(
            all[0].as_ref().unwrap().to_json(),
            serde_json::json!({"list": [
                {"leaf": "A", "addr": "0xfffffffffffffff0", "length": 8},
                {"leaf": "memory", "addr": "0x8", "length": "0x40000000000000"},
            ]})
        );
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(
            all[1].as_ref().unwrap().to_json()["interleaved"]["blocks"][0]["stride"],
            serde_json::json!(["-18014398509481984"])
        );
        assert_eq!(
            all[2].as_ref().unwrap().to_json()["interleaved"]["blocks"][0]["stride"],
            serde_json::json!([-8])
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |result: Result<Description, String>, why: &str| {
            assert!(result.unwrap_err().contains(why), "{why}");
        };
        let ranges = |text: &str| Description::from_ranges(&[text.to_owned()]);
        let blocks = |repeat, text: &str| Description::from_blocks(repeat, &[text.to_owned()]);

        refused(ranges("A@0"), "LEAF@ADDRESS+BYTES");
        refused(ranges("A@0+0"), "entry 0 of the list has no bytes");
        refused(ranges("A\n@0+1"), "control character");
        refused(ranges("A@0xffffffffffffffff+2"), "64 bits");
        refused(blocks("2", "A@0+1"), "STRIDE");
        refused(blocks("2,2", "A@0+1:1"), "one stride for each of the 2");
        refused(blocks("0", "A@0+1:1"), "repeat_count[0] is 0");
        refused(blocks("1", "A@0+0:1"), "blocks[0] has no bytes");
        refused(Description::from_indices("A@0+1", "0"), "UNIT");
        refused(Description::from_indices("A@0+1:0", "0"), "zero");
        refused(Description::from_indices("A@0+1:2", ""), "no number");
        refused(
            Description::from_indices("A@1+1:1", "0xffffffffffffffff"),
            "64 bits",
        );
        refused(
            blocks("2", "A@0+1:-1"),
            "blocks[0]: its strides lead to addresses below 0",
        );
        refused(blocks("4", "m@16+8:-8"), "below 0");
        refused(blocks("4", "A@0+1:0x7fffffffffffffff"), "64 bits");
        refused(
            blocks("1,1,1,1,1,1,1,1,1", "A@0+1:1,1,1,1,1,1,1,1,1"),
            "8 dimensions",
        );
        let many = |count: usize, text: &str| vec![text; count].join(",");
        let indices = many((1 << 20) | 1, "1");
        refused(
            Description::from_indices("A@0+1:2", &indices),
            "1048577 indices, and a key has at most 1048576",
        );
        let entries = many(65_537, r#"{"addr": 1, "length": 1}"#);
        refused(
            Description::from_json(&format!("{{\"list\": [{entries}]}}")),
            "65537 entries, and a key has at most 65536",
        );
        for nothing in ["{}", " { } ", "[]", "7", ""] {
            refused(
                Description::from_json(nothing),
                "an object with one member: list, interleaved or indexed",
            );
        }
        refused(Description::from_json("{\"lists\": []}"), "unknown variant");
        refused(
            Description::from_json(r#"{"list": [{"leaf": "", "addr": 1, "length": 1}]}"#),
            "the name of a leaf is empty",
        );
        refused(
            Description::from_json(r#"{"list": [{"address": 1}]}"#),
            "address",
        );
    }
}
