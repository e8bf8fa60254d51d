// SPDX-License-Identifier: GPL-2.0

//! mkey-bench-report: prints the results of `mkey_bench` as tables, and draws the growth.

#![forbid(unsafe_code)]

mod group;
mod plot;
mod record;
mod stats;
mod table;
mod text;

use std::{
    error::Error,
    fs::File,
    io::{
        stderr,
        stdout,
        BufReader,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;

use crate::record::Records;

#[derive(Parser)]
#[command(version, about = "Makes tables and a plot of what mkey_bench measured")]
struct Cli {
    /// SVG file of the group growth, if it was measured
    #[arg(long)]
    growth: Option<PathBuf>,

    /// Output of mkey_bench
    records: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error of standard error cannot be printed.
            let _ = writeln!(stderr(), "mkey-bench-report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let at_records = |error: String| format!("{}: {error}", cli.records.display());
    let file = File::open(&cli.records).map_err(|error| at_records(error.to_string()))?;
    let records = Records::read(BufReader::new(file)).map_err(at_records)?;

    if let Some(path) = &cli.growth {
        plot::growth(&records, path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    writeln!(stdout(), "{}", table::all(&records))?;
    Ok(())
}
