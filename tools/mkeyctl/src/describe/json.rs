// SPDX-License-Identifier: GPL-2.0

//! Descriptions of layouts in JSON.

use serde::{
    de,
    Deserialize,
    Deserializer, //
};

use super::{
    text::{
        number,
        Range,
        UNNAMED, //
    },
    Description, //
};

impl Description {
    /// Parses a [`File`].
    pub fn from_json(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
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
                    (range, block.stride)
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
    stride: Vec<i64>,
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
