// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl draw`: draws the bytes of memory that a layout contains.

use std::{
    error::Error,
    ffi::OsStr,
    fs,
    io::{
        stdin,
        stdout,
        Read,
        Write, //
    },
    num::{
        NonZeroU64,
        NonZeroUsize, //
    },
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode,
};

use clap::{
    ArgGroup,
    ValueEnum, //
};
use serde_json::{
    json,
    Value, //
};

use crate::{
    ascii,
    command_line::Usage,
    debugfs,
    describe::{
        block_text,
        check_dims,
        indexed_text,
        number,
        numbers_text,
        range_text,
        Description, //
    },
    picture::Picture,
    regions::{
        self,
        Lkey,
        Region, //
    },
    svg,
    table::or_dash,
};

/// The number of entries of a key that the kernel shows.
const SHOWN: u64 = 256;

/// The largest number of rows, and of characters in a row.
const MAX_SIDE: usize = 10_000;
const ROWS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);
const COLUMNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

const EXAMPLES: &str = "\
Examples:
  mkeyctl draw --repeat 8 --block A@16+4:64
          a column, 4 bytes wide, of a matrix with 8 rows of 64 bytes
  mkeyctl draw --repeat 4,3 --block A@0+3:48,12
          every fourth pixel of 3 bytes, in 4 rows of a picture
  mkeyctl draw --list header@0+16,payload@0x100+64
          two ranges as one region
  mkeyctl draw --indexed cache@0+64:64 --indices 9,3,4
          blocks 9, 3 and 4 of a table with blocks of 64 bytes
  mkeyctl draw --key rxe0 0x1a2b
          what a running program has bound a key to
  mkeyctl draw --format svg -o column.svg column.json
          the same from a file such as
          {\"interleaved\": {\"repeat_count\": [8], \"blocks\": [
              {\"leaf\": \"A\", \"addr\": 16, \"bytes_count\": 4, \"stride\": [64]}]}}
          or {\"list\": [{\"leaf\": \"A\", \"addr\": \"0x10\", \"length\": 4}]}
          or {\"indexed\": {\"leaf\": \"A\", \"addr\": 0, \"unit\": 64, \"bytes_count\": 64,
              \"indices\": [9, 3, 4]}}

Numbers are decimal, or hexadecimal with 0x, and may end in K, M or G.";

/// The longest file that is read, in bytes. A million indices take 8 MiB.
const MAX_FILE: u64 = 64 << 20;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("layout").required(true).args(["file", "list", "block", "indexed", "key"]))]
pub struct Args {
    /// File that describes the layout in JSON; - is standard input
    file: Option<PathBuf>,

    /// Ranges, one after another
    #[arg(long, value_name = "[LEAF@]ADDRESS+BYTES", value_delimiter = ',', value_parser = range_text)]
    list: Vec<String>,

    /// A block; with --repeat, and as often as there are blocks
    #[arg(
        long,
        value_name = "[LEAF@]ADDRESS+BYTES:STRIDE,...",
        value_parser = block_text,
        requires = "repeat"
    )]
    block: Vec<String>,

    /// Repetitions of the blocks, outermost dimension first
    #[arg(long, value_name = "COUNT,...", requires = "block", value_parser = numbers_text)]
    #[arg(conflicts_with_all = ["file", "list"])]
    repeat: Option<String>,

    /// Block of index 0; with --indices
    #[arg(long, value_name = "[LEAF@]ADDRESS+BYTES:UNIT", requires = "indices", value_parser = indexed_text)]
    indexed: Option<String>,

    /// Indices of the blocks, in their order
    #[arg(long, value_name = "INDEX,...", requires = "indexed", value_parser = numbers_text)]
    #[arg(conflicts_with_all = ["file", "list", "block"])]
    indices: Option<String>,

    /// A key of a running program, and the keys below it; `mkeyctl ls keys` shows lkeys
    #[arg(long, num_args = 2, value_names = ["DEVICE", "LKEY"])]
    key: Vec<String>,

    /// Directory in which debugfs shows ib_mkey; with --key [default: /sys/kernel/debug/ib_mkey]
    #[arg(long, value_name = "DIR")]
    debugfs: Option<PathBuf>,

    /// Format of the drawing [default: that of FILE's suffix, or ascii]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// File to write to instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Bytes of memory in one row of the picture [default: from the strides]
    #[arg(long, value_name = "BYTES", value_parser = pitch)]
    pitch: Option<NonZeroU64>,

    /// Rows to draw of each leaf, at most [default: 32]
    #[arg(long, value_parser = side, allow_negative_numbers = true)]
    rows: Option<NonZeroUsize>,

    /// Characters in one row, at most [default: 64]
    #[arg(long, value_parser = side, allow_negative_numbers = true)]
    columns: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// Characters
    Ascii,
    /// Scalable vector graphics
    Svg,
}

fn pitch(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(number(text)?).ok_or_else(|| "a row has at least one byte".to_owned())
}

/// Parses a number of rows or columns.
fn side(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|&side: &NonZeroUsize| side.get() <= MAX_SIDE)
        .ok_or_else(|| format!("not a number from 1 to {MAX_SIDE}"))
}

impl Args {
    /// Returns the format of the drawing. Refuses options that would have no effect on it.
    fn format(&self) -> Result<Format, Usage> {
        let by_suffix = match &self.output {
            Some(file) => match file.extension().and_then(OsStr::to_str) {
                Some("svg") => Some(Format::Svg),
                None | Some("txt") => Some(Format::Ascii),
                Some(_) => None,
            },
            None => Some(Format::Ascii),
        };
        let format = self.format.or(by_suffix).ok_or_else(|| {
            usage("--output: the suffix is none of .svg and .txt: name the format by --format")
        })?;

        if format == Format::Svg && self.columns.is_some() {
            return Err(usage("--columns is for the format ascii"));
        }
        Ok(format)
    }

    /// Refuses the options that have no effect on JSON.
    fn check_json(&self) -> Result<(), Usage> {
        let given = [
            ("--format", self.format.is_some()),
            ("--pitch", self.pitch.is_some()),
            ("--rows", self.rows.is_some()),
            ("--columns", self.columns.is_some()),
        ];

        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(usage(&format!("{option} is not for --json"))),
            None => Ok(()),
        }
    }
}

fn usage(why: &str) -> Usage {
    Usage::of("draw", why)
}

/// A layout, and the key that a running program has bound to it.
struct Drawing {
    key: Option<Region>,
    description: Description,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let format = if json {
        args.check_json()?;
        None
    } else {
        Some(args.format()?)
    };
    if args.debugfs.is_some() && args.key.is_empty() {
        return Err(usage("--debugfs is for --key").into());
    }
    let drawings = drawings(args)?;
    let text = match format {
        Some(Format::Ascii) => ascii_of(args, &drawings),
        Some(Format::Svg) => svg_of(args, &drawings),
        None => json_of(&drawings),
    };

    match &args.output {
        Some(file) => {
            fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        None => stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn drawings(args: &Args) -> Result<Vec<Drawing>, Box<dyn Error>> {
    if let [device, lkey] = args.key.as_slice() {
        let lkey = lkey.parse().map_err(|why: String| usage(&why))?;
        let dir = args.debugfs.as_deref().unwrap_or(Path::new(debugfs::DIR));
        return Ok(keys(dir, device, lkey)?);
    }
    let description = match (&args.file, &args.repeat) {
        (Some(file), _) => {
            let text = if file.as_os_str() == "-" {
                read(stdin())
            } else {
                fs::File::open(file)
                    .map_err(|error| error.to_string())
                    .and_then(read)
            };

            text.and_then(|text| Description::from_json(&text))
                .map_err(|error| format!("{}: {error}", file.display()))?
        }
        (None, Some(repeat)) => {
            check_dims(repeat, &args.block).map_err(|why| usage(&why))?;
            Description::from_blocks(repeat, &args.block)?
        }
        (None, None) => match (&args.indexed, &args.indices) {
            (Some(block), Some(indices)) => Description::from_indices(block, indices)?,
            _ => Description::from_ranges(&args.list)?,
        },
    };

    Ok(vec![Drawing {
        key: None,
        description,
    }])
}

/// Reads a description of a layout.
fn read(source: impl Read) -> Result<String, String> {
    let mut text = String::new();

    source
        .take(MAX_FILE.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!(
            "more than {} MiB are no description",
            MAX_FILE >> 20
        ));
    }
    Ok(text)
}

fn picture_of(args: &Args, description: &Description) -> Picture {
    Picture::new(description, args.pitch, args.rows.unwrap_or(ROWS))
}

fn ascii_of(args: &Args, drawings: &[Drawing]) -> String {
    let mut text = String::new();

    for Drawing { key, description } in drawings {
        if !text.is_empty() {
            text.push('\n');
        }
        if let Some(region) = key {
            text.push_str(&heading(region));
            text.push('\n');
        }
        let picture = picture_of(args, description);
        text.push_str(&ascii::render(&picture, args.columns.unwrap_or(COLUMNS)));
    }
    text
}

fn svg_of(args: &Args, drawings: &[Drawing]) -> String {
    let pictures: Vec<_> = drawings
        .iter()
        .map(|Drawing { key, description }| {
            (key.as_ref().map(heading), picture_of(args, description))
        })
        .collect();

    svg::render(&pictures)
}

/// Returns the layouts in the form of a description in a file, each with its key.
fn json_of(drawings: &[Drawing]) -> String {
    let all = drawings.iter().map(|Drawing { key, description }| {
        json!({
            "device": key.as_ref().map(|key| &key.device),
            "lkey": key.as_ref().map(|key| key.lkey),
            "entries": key.as_ref().and_then(|key| key.entries),
            "base": key.as_ref().and_then(|key| key.base),
            "length": description.layout.length(),
            "layout": description.to_json(),
        })
    });

    format!("{:#}\n", all.collect::<Value>())
}

/// Returns the layout of a key of a running program, and then those of the keys below it.
fn keys(dir: &Path, device: &str, lkey: Lkey) -> Result<Vec<Drawing>, String> {
    let regions = regions::regions(dir)?;
    let pieces = regions::pieces(dir)?;
    let mut drawings = Vec::new();
    let mut wanted = vec![lkey];
    let mut at = 0usize;

    while let Some(&lkey) = wanted.get(at) {
        let region = regions
            .iter()
            .find(|region| region.device == device && region.lkey == lkey);
        let description = regions::layout(&pieces, device, lkey)?;
        match (region, description) {
            (Some(region), Some(description)) => drawings.push(Drawing {
                key: Some(region.clone()),
                description,
            }),
            // A leaf that is not a key has no layout.
            _ if at > 0 => {}
            (Some(region), None) if region.is_key() => {
                return Err(format!("{lkey} of {device} is not bound"));
            }
            (Some(Region { kind, .. }), None) => {
                return Err(format!("{lkey} of {device} is no key: its kind is {kind}"));
            }
            _ => return Err(format!("{device} has no key {lkey}: see mkeyctl ls keys")),
        }
        for leaf in regions::leaves(&pieces, device, lkey) {
            if !wanted.contains(&leaf) {
                wanted.push(leaf);
            }
        }
        at = at.saturating_add(1);
    }
    Ok(drawings)
}

fn heading(region: &Region) -> String {
    let more = match region.entries {
        Some(entries) if entries > SHOWN => format!(", the first {SHOWN} drawn"),
        _ => String::new(),
    };

    let from = match region.base {
        Some(base) if base != 0 => format!(" from {base:#x} on"),
        _ => String::new(),
    };

    format!(
        "Key {} of {}, {} of {} bytes{from}, entries: {}{more}",
        region.lkey,
        region.device,
        region.kind,
        or_dash(region.bytes),
        or_dash(region.entries),
    )
}
