// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl draw`: draws the bytes of memory that a layout contains.

use std::{
    error::Error,
    fs,
    io::{
        read_to_string,
        stdin,
        stdout,
        Write, //
    },
    num::{
        NonZeroU64,
        NonZeroUsize, //
    },
    path::PathBuf,
    process::ExitCode,
};

use clap::{
    ArgGroup,
    ValueEnum, //
};

use crate::{
    ascii,
    describe::{
        number,
        Description, //
    },
    picture::Picture,
    svg, //
};

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
  mkeyctl draw --format svg -o column.svg column.json
          the same from a file such as
          {\"interleaved\": {\"repeat_count\": [8], \"blocks\": [
              {\"leaf\": \"A\", \"addr\": 16, \"bytes_count\": 4, \"stride\": [64]}]}}
          or {\"list\": [{\"leaf\": \"A\", \"addr\": \"0x10\", \"length\": 4}]}
          or {\"indexed\": {\"leaf\": \"A\", \"addr\": 0, \"unit\": 64, \"bytes_count\": 64,
              \"indices\": [9, 3, 4]}}

Numbers are decimal, or hexadecimal with 0x, and may end in K, M or G.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("layout").required(true).args(["file", "list", "block", "indexed"]))]
pub struct Args {
    /// File that describes the layout in JSON; - is standard input
    file: Option<PathBuf>,

    /// Ranges, one after another
    #[arg(long, value_name = "[LEAF@]ADDRESS+BYTES", value_delimiter = ',')]
    list: Vec<String>,

    /// A block; with --repeat, and as often as there are blocks
    #[arg(
        long,
        value_name = "[LEAF@]ADDRESS+BYTES:STRIDE,...",
        requires = "repeat"
    )]
    block: Vec<String>,

    /// Repetitions of the blocks, outermost dimension first
    #[arg(long, value_name = "COUNT,...", requires = "block")]
    #[arg(conflicts_with_all = ["file", "list"])]
    repeat: Option<String>,

    /// Block of index 0; with --indices
    #[arg(long, value_name = "[LEAF@]ADDRESS+BYTES:UNIT", requires = "indices")]
    indexed: Option<String>,

    /// Indices of the blocks, in their order
    #[arg(long, value_name = "INDEX,...", requires = "indexed")]
    #[arg(conflicts_with_all = ["file", "list", "block"])]
    indices: Option<String>,

    /// Format of the drawing
    #[arg(long, value_enum, default_value_t = Format::Ascii)]
    format: Format,

    /// File to write to instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Bytes of memory in one row of the picture [default: from the strides]
    #[arg(long, value_name = "BYTES", value_parser = pitch)]
    pitch: Option<NonZeroU64>,

    /// Rows to draw of each leaf, at most
    #[arg(long, default_value = "32")]
    rows: NonZeroUsize,

    /// Characters in one row, at most
    #[arg(long, default_value = "64")]
    columns: NonZeroUsize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Characters
    Ascii,
    /// Scalable vector graphics
    Svg,
}

fn pitch(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(number(text)?).ok_or_else(|| "a row has at least one byte".to_owned())
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let description = match (&args.file, &args.repeat) {
        (Some(file), _) => {
            let stdin_or_file = if file.as_os_str() == "-" {
                read_to_string(stdin())
            } else {
                fs::read_to_string(file)
            };

            stdin_or_file
                .map_err(|error| error.to_string())
                .and_then(|text| Description::from_json(&text))
                .map_err(|error| format!("{}: {error}", file.display()))?
        }
        (None, Some(repeat)) => Description::from_blocks(repeat, &args.block)?,
        (None, None) => match (&args.indexed, &args.indices) {
            (Some(block), Some(indices)) => Description::from_indices(block, indices)?,
            _ => Description::from_ranges(&args.list)?,
        },
    };
    let picture = Picture::new(&description, args.pitch, args.rows);
    let text = match args.format {
        Format::Ascii => ascii::render(&picture, args.columns),
        Format::Svg => svg::render(&picture),
    };

    match &args.output {
        Some(file) => {
            fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        None => stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
