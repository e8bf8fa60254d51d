// SPDX-License-Identifier: GPL-2.0

//! mkey_picture: files of pictures, and tables, for mkey_demo, which has plain pixels and cells only.
//!
//! Status 0: done, or the program that reads the output has ended. 1: could not be done, standard
//! error says why. 2: the command line makes no sense.

mod table;

use std::{
    error::Error,
    fs::File,
    io::{
        self,
        stderr,
        stdin,
        stdout,
        BufReader,
        BufWriter,
        ErrorKind,
        Read,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode,
};

use clap::{
    value_parser,
    Arg,
    ArgMatches,
    Command, //
};
use image::{
    codecs::png::{
        CompressionType,
        FilterType,
        PngEncoder, //
    },
    imageops,
    ImageReader,
    Limits,
    RgbImage, //
};

const MAX_SIDE: u32 = 16 << 10;
const MAX_PIXELS: u64 = 16 << 20;

// Without clap's macros, whose crates take longer to build than this program.
fn command_line() -> Command {
    let file = |help: &'static str| {
        Arg::new("file")
            .value_name("FILE")
            .help(help)
            .required(true)
            .value_parser(value_parser!(PathBuf))
    };

    Command::new("mkey_picture")
        .about("Reads, writes and shows the pictures and tables of mkey_demo")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("read")
                .about(
                    "Read a PNG, JPEG or PNM picture, and write it as PPM (P6) to standard output",
                )
                .arg(file("File with the picture")),
        )
        .subcommand(
            Command::new("png")
                .about("Read a PPM picture from standard input, and write it as PNG")
                .arg(file("File to write")),
        )
        .subcommand(
            Command::new("show")
                .about("Draw a picture in the terminal, by half blocks in 24-bit colour")
                .arg(file("File with the picture"))
                .arg(
                    Arg::new("columns")
                        .long("columns")
                        .value_name("COLUMNS")
                        .help("Characters in one row, at most")
                        .default_value("80")
                        .value_parser(value_parser!(u32)),
                ),
        )
        .subcommand(
            Command::new("table")
                .about("Read lines of cells, which tabs separate, from standard input, and print them in columns")
                .arg(
                    Arg::new("kind")
                        .value_name("KIND")
                        .help("figures: align all columns but the first to the right; text: none")
                        .required(true)
                        .value_parser(["figures", "text"]),
                ),
        )
}

/// The place of an error.
enum Failure<'a> {
    File(&'a Path, Box<dyn Error>),
    Input(Box<dyn Error>),
    Output(io::Error),
}

impl Failure<'_> {
    /// Prints the error, unless the reader of the output has ended.
    fn report(&self) -> ExitCode {
        let line = match self {
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Output(error) => format!("standard output: {error}"),
            Self::Input(error) => format!("standard input: {}", first_line(error.as_ref())),
            Self::File(file, error) => {
                format!("{}: {}", file.display(), first_line(error.as_ref()))
            }
        };

        // An error of standard error cannot be printed.
        let _ = writeln!(stderr(), "mkey_picture: {line}");
        ExitCode::FAILURE
    }
}

/// Some decoders say why on several lines.
fn first_line(error: &dyn Error) -> String {
    let why = error.to_string();

    why.lines().next().unwrap_or("unreadable").to_owned()
}

fn run<'a>(command: &str, arguments: &ArgMatches, file: &'a Path) -> Result<(), Failure<'a>> {
    let at_file = |error| Failure::File(file, error);

    match command {
        "read" => write_ppm(&load(file).map_err(at_file)?).map_err(Failure::Output),
        "png" => {
            let image = read_ppm().map_err(Failure::Input)?;
            write_png(&image, file).map_err(at_file)
        }
        "table" => {
            let kind = arguments.get_one::<String>("kind").map(String::as_str);
            let text = io::read_to_string(stdin()).map_err(|error| Failure::Input(error.into()))?;
            print_table(&text, kind == Some("figures")).map_err(Failure::Output)
        }
        _ => {
            let columns = arguments.get_one("columns").copied().unwrap_or(80);
            show(&load(file).map_err(at_file)?, columns).map_err(Failure::Output)
        }
    }
}

/// Prints help, or an error of the command line.
fn explain(text: &clap::Error) -> ExitCode {
    match (text.print(), text.use_stderr()) {
        (_, true) => ExitCode::from(2),
        (Ok(()), false) => ExitCode::SUCCESS,
        (Err(error), false) => Failure::Output(error).report(),
    }
}

fn main() -> ExitCode {
    let matches = match command_line().try_get_matches() {
        Ok(matches) => matches,
        Err(text) => return explain(&text),
    };
    // clap refuses a command line without a command.
    let Some((command, arguments)) = matches.subcommand() else {
        return ExitCode::FAILURE;
    };
    // Only the table has no file.
    let file = match arguments.try_get_one::<PathBuf>("file") {
        Ok(Some(file)) => file,
        _ => Path::new(""),
    };

    match run(command, arguments, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn print_table(text: &str, figures: bool) -> io::Result<()> {
    let mut out = stdout().lock();

    out.write_all(table::arrange(text, figures).as_bytes())?;
    out.flush()
}

fn load(file: &Path) -> Result<RgbImage, Box<dyn Error>> {
    let mut reader = ImageReader::new(BufReader::new(File::open(file)?)).with_guessed_format()?;
    let mut limits = Limits::default();

    if reader.format().is_none() {
        return Err("not a PNG, JPEG or PNM picture".into());
    }
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    reader.limits(limits);
    let image = reader.decode()?;
    let pixels = u64::from(image.width()).saturating_mul(image.height().into());
    if pixels > MAX_PIXELS {
        return Err(format!(
            "{} x {} is more than {MAX_PIXELS} pixels: make it smaller",
            image.width(),
            image.height()
        )
        .into());
    }
    Ok(image.into_rgb8())
}

fn write_ppm(image: &RgbImage) -> io::Result<()> {
    let mut out = stdout().lock();

    write!(out, "P6\n{} {}\n255\n", image.width(), image.height())?;
    out.write_all(image.as_raw())?;
    out.flush()
}

fn read_ppm() -> Result<RgbImage, Box<dyn Error>> {
    let mut bytes = Vec::new();

    stdin().lock().read_to_end(&mut bytes)?;
    Ok(image::load_from_memory_with_format(&bytes, image::ImageFormat::Pnm)?.into_rgb8())
}

/// An emulated machine has no time to compress well.
fn write_png(image: &RgbImage, file: &Path) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(file)?);

    image.write_with_encoder(PngEncoder::new_with_quality(
        &mut out,
        CompressionType::Fast,
        FilterType::NoFilter,
    ))?;
    Ok(out.flush()?)
}

/// A character is two pixels, one above the other.
fn show(image: &RgbImage, columns: u32) -> io::Result<()> {
    let width = image.width().min(columns.max(1));
    let height = u64::from(image.height())
        .saturating_mul(width.into())
        .checked_div(image.width().into())
        .and_then(|height| u32::try_from(height).ok())
        .unwrap_or(1)
        .max(2);
    let small = imageops::resize(image, width, height, imageops::FilterType::Triangle);
    let mut out = BufWriter::new(stdout().lock());
    let rows: Vec<_> = small.rows().collect();

    for pair in rows.chunks(2) {
        let [upper, lower] = pair else {
            continue;
        };
        for (above, below) in upper.clone().zip(lower.clone()) {
            let ([r, g, b], [s, h, c]) = (above.0, below.0);
            write!(out, "\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m\u{2580}")?;
        }
        writeln!(out, "\x1b[0m")?;
    }
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use image::{
        ImageFormat,
        Rgb, //
    };

    use super::*;

    /// A file that goes with the test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let name = format!("mkey-picture-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn picture() -> RgbImage {
        RgbImage::from_fn(24, 16, |x, _| {
            if x < 12 {
                Rgb([250, 10, 10])
            } else {
                Rgb([10, 10, 250])
            }
        })
    }

    #[test]
    fn each_format_is_read_whatever_the_name() {
        for format in [ImageFormat::Png, ImageFormat::Pnm, ImageFormat::Jpeg] {
            let file = Temporary::new(format!("{format:?}").as_str());
            picture().save_with_format(&file.0, format).unwrap();

            let read = load(&file.0).unwrap();
            assert_eq!(read.dimensions(), (24, 16), "{format:?}");
            // JPEG is not exact.
            assert!(
                read.pixels().zip(picture().pixels()).all(|(a, b)| a
                    .0
                    .iter()
                    .zip(b.0)
                    .all(|(&a, b)| a.abs_diff(b) < 40)),
                "{format:?}"
            );
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = Temporary::new("png");

        write_png(&picture(), &file.0).unwrap();
        assert_eq!(load(&file.0).unwrap(), picture());
        assert!(write_png(&picture(), Path::new("/nonexistent/x")).is_err());
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let file = Temporary::new("text");

        std::fs::write(&file.0, "no picture").unwrap();
        assert!(load(&file.0).unwrap_err().to_string().contains("not a PNG"));
        std::fs::write(&file.0, "P6\n10 10\n255\nshort").unwrap();
        assert!(load(&file.0).is_err());
        std::fs::write(&file.0, "P6\n16000 16000\n255\n").unwrap();
        assert!(load(&file.0).is_err());
    }
}
