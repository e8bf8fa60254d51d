// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl draw`: draws the bytes of memory that a layout contains.

use std::{
    error::Error,
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
    path::PathBuf,
    process::ExitCode,
};

use clap::{
    error::ErrorKind,
    ArgGroup,
    CommandFactory,
    ValueEnum, //
};

use crate::{
    ascii, debugfs,
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

    /// Directory in which debugfs shows ib_mkey; with --key
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,

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
    #[arg(long, default_value = "32", value_parser = side)]
    rows: NonZeroUsize,

    /// Characters in one row, at most
    #[arg(long, default_value = "64", value_parser = side)]
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

/// Parses a number of rows or columns.
fn side(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|&side: &NonZeroUsize| side.get() <= MAX_SIDE)
        .ok_or_else(|| format!("not a number from 1 to {MAX_SIDE}"))
}

/// Ends the program because of a value on the command line.
fn invalid(why: String) -> ! {
    crate::Cli::command()
        .error(ErrorKind::ValueValidation, why)
        .exit()
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    if let [device, lkey] = args.key.as_slice() {
        let lkey = lkey.parse().unwrap_or_else(|why| invalid(why));
        return draw_key(args, device, lkey);
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
            if let Err(why) = check_dims(repeat, &args.block) {
                invalid(why);
            }
            Description::from_blocks(repeat, &args.block)?
        }
        (None, None) => match (&args.indexed, &args.indices) {
            (Some(block), Some(indices)) => Description::from_indices(block, indices)?,
            _ => Description::from_ranges(&args.list)?,
        },
    };
    put(args, &picture_of(args, &description))
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

fn picture_of(args: &Args, description: &Description) -> String {
    let picture = Picture::new(description, args.pitch, args.rows);

    match args.format {
        Format::Ascii => ascii::render(&picture, args.columns),
        Format::Svg => svg::render(&picture),
    }
}

fn put(args: &Args, text: &str) -> Result<ExitCode, Box<dyn Error>> {
    match &args.output {
        Some(file) => {
            fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        None => stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws the layout of a key of a running program, and then those of the keys below it. An SVG has
/// one key only.
fn draw_key(args: &Args, device: &str, lkey: Lkey) -> Result<ExitCode, Box<dyn Error>> {
    let regions = regions::regions(&args.debugfs)?;
    let pieces = regions::pieces(&args.debugfs)?;
    let mut text = String::new();
    let mut wanted = vec![lkey];
    let mut at = 0usize;

    while let Some(&lkey) = wanted.get(at) {
        let region = regions
            .iter()
            .find(|region| region.device == device && region.lkey == lkey);
        let description = regions::layout(&pieces, device, lkey)?;
        match (region, description) {
            (Some(region), Some(description)) => {
                if matches!(args.format, Format::Svg) {
                    return put(args, &picture_of(args, &description));
                }
                text.push_str(&heading(region, at));
                text.push_str(&picture_of(args, &description));
            }
            // A leaf that is not a key has no layout.
            _ if at > 0 => {}
            (Some(region), None) if region.is_key() => {
                return Err(format!("{lkey} of {device} is not bound").into());
            }
            (Some(Region { kind, .. }), None) => {
                return Err(format!("{lkey} of {device} is no key: its kind is {kind}").into());
            }
            _ => return Err(format!("{device} has no key {lkey}: see mkeyctl ls keys").into()),
        }
        for leaf in regions::leaves(&pieces, device, lkey) {
            if !wanted.contains(&leaf) {
                wanted.push(leaf);
            }
        }
        at = at.saturating_add(1);
    }
    put(args, &text)
}

fn heading(region: &Region, at: usize) -> String {
    let gap = if at > 0 { "\n" } else { "" };
    let more = match region.entries {
        Some(entries) if entries > SHOWN => format!(", the first {SHOWN} drawn"),
        _ => String::new(),
    };

    format!(
        "{gap}Key {} of {}, {} of {} bytes, entries: {}{more}\n",
        region.lkey,
        region.device,
        region.kind,
        or_dash(region.bytes),
        or_dash(region.entries),
    )
}
