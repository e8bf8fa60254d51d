// SPDX-License-Identifier: GPL-2.0

//! Descriptions of layouts in JSON.

use ib_mkey_layout::{
    IndexSlice,
    Layout, //
};
use serde::{
    de,
    Deserialize,
    Deserializer, //
};
use serde_json::{
    json,
    Value, //
};

use super::{
    text::{
        number,
        signed,
        Range,
        UNNAMED, //
    },
    Description, //
};

impl Description {
    /// Parses a [`File`].
    pub fn from_json(text: &str) -> Result<Self, String> {
        let file = serde_json::from_str(text).map_err(|error| {
            let inside = text.trim_start().strip_prefix('{').map(str::trim_start);

            match inside {
                Some(inside) if !inside.starts_with('}') => error.to_string(),
                _ => "a description is an object with one member: list, interleaved or indexed"
                    .to_owned(),
            }
        })?;

        match file {
            File::List(entries) => Self::list(
                entries
                    .into_iter()
                    .map(|entry| Range {
                        leaf: entry.leaf,
                        addr: entry.addr.0,
                        bytes: entry.length.0,
                    })
                    .collect(),
            ),
            File::Interleaved(file) => {
                let repeat_count: Vec<_> = file.repeat_count.iter().map(|n| n.0).collect();
                let blocks = file.blocks.into_iter().map(|block| {
                    let range = Range {
                        leaf: block.leaf,
                        addr: block.addr.0,
                        bytes: block.bytes_count.0,
                    };
                    (range, block.stride.iter().map(|n| n.0).collect())
                });

                Self::interleaved(&repeat_count, blocks.collect())
            }
            File::Indexed(file) => {
                let range = Range {
                    leaf: file.leaf,
                    addr: file.addr.0,
                    bytes: file.bytes_count.0,
                };
                let indices = file.indices.iter().map(|n| n.0).collect();

                Self::indexed(range, file.unit.0, indices)
            }
        }
    }
}

/// The largest number that a program can read exactly as floating point.
const MAX_EXACT: u64 = 1 << 53;

/// Returns a number, or a string if many programs would read the number inexactly.
fn exact(value: u64) -> Value {
    match value {
        0..=MAX_EXACT => value.into(),
        _ => format!("{value:#x}").into(),
    }
}

/// The same for a stride.
fn exact_signed(value: i64) -> Value {
    match value.unsigned_abs() {
        0..=MAX_EXACT => value.into(),
        _ => value.to_string().into(),
    }
}

fn address(value: u64) -> Value {
    format!("{value:#x}").into()
}

impl Description {
    /// Returns the form that [`Self::from_json`] parses.
    pub fn to_json(&self) -> Value {
        let leaves = self.leaves.iter();

        match &self.layout {
            Layout::List(list) => {
                let entries = leaves.zip(list.entries()).map(|(leaf, entry)| {
                    json!({
                        "leaf": leaf,
                        "addr": address(entry.addr()),
                        "length": exact(entry.length()),
                    })
                });

                json!({ "list": entries.collect::<Value>() })
            }
            Layout::Interleaved(interleaved) => {
                let counts = interleaved.repeat_counts();
                let dims = counts.len();
                let blocks = leaves.zip(interleaved.blocks()).map(|(leaf, block)| {
                    let strides = block.stride().iter().take(dims);

                    json!({
                        "leaf": leaf,
                        "addr": address(block.addr()),
                        "bytes_count": exact(block.bytes_count()),
                        "stride": strides.map(|&stride| exact_signed(stride)).collect::<Value>(),
                    })
                });

                json!({ "interleaved": {
                    "repeat_count": counts.map(exact).collect::<Value>(),
                    "blocks": blocks.collect::<Value>(),
                }})
            }
            Layout::Indexed(indexed) => {
                let indices: Value = match indexed.indices() {
                    IndexSlice::U32(all) => all.iter().map(|&index| exact(index.into())).collect(),
                    IndexSlice::U64(all) => all.iter().map(|&index| exact(index)).collect(),
                };

                json!({ "indexed": {
                    "leaf": self.leaves.first(),
                    "addr": address(indexed.addr()),
                    "unit": exact(indexed.unit()),
                    "bytes_count": exact(indexed.block_len()),
                    "indices": indices,
                }})
            }
        }
    }
}

/// A JSON description; the names are those of `<infiniband/mkey.h>`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum File {
    List(Vec<JsonEntry>),
    Interleaved(JsonInterleaved),
    Indexed(JsonIndexed),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonInterleaved {
    repeat_count: Vec<Number>,
    blocks: Vec<JsonBlock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonIndexed {
    #[serde(default = "unnamed")]
    leaf: String,
    addr: Number,
    unit: Number,
    bytes_count: Number,
    indices: Vec<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    #[serde(default = "unnamed")]
    leaf: String,
    addr: Number,
    length: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonBlock {
    #[serde(default = "unnamed")]
    leaf: String,
    addr: Number,
    bytes_count: Number,
    stride: Vec<Signed>,
}

fn unnamed() -> String {
    UNNAMED.to_owned()
}

/// A JSON number, or a string as on the command line.
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a number of 64 bits, or a string like \"0x40\""
        )]
        enum Form {
            Number(u64),
            Text(String),
        }

        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(Self(value)),
            Form::Text(text) => number(&text).map(Self).map_err(de::Error::custom),
        }
    }
}

/// The same with a sign.
struct Signed(i64);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a signed number of 64 bits, or a string like \"-0x40\""
        )]
        enum Form {
            Number(i64),
            Text(String),
        }

        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(Self(value)),
            Form::Text(text) => signed(&text).map(Self).map_err(de::Error::custom),
        }
    }
}
