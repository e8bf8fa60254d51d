// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl draw`: which bytes of memory a layout names.

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
  mkeyctl draw --format svg -o column.svg column.json
          the same from a file such as
          {\"interleaved\": {\"repeat_count\": [8], \"blocks\": [
              {\"leaf\": \"A\", \"addr\": 16, \"bytes_count\": 4, \"stride\": [64]}]}}
          or {\"list\": [{\"leaf\": \"A\", \"addr\": \"0x10\", \"length\": 4}]}

Numbers are decimal, or hexadecimal with 0x, and may end in K, M or G.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("layout").required(true).args(["file", "list", "block"]))]
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
        (None, None) => Description::from_ranges(&args.list)?,
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
