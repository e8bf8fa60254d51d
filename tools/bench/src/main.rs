// SPDX-License-Identifier: GPL-2.0

//! mkey-bench-report: prints the results of `mkey_bench` as tables, and writes them as JSON and SVG
//! to a directory.

mod group;
mod plot;
mod record;
mod stats;
mod summary;
mod table;
mod text;

use std::{
    error::Error,
    fs::{
        create_dir_all,
        write,
        File, //
    },
    io::{
        stdout,
        BufReader,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;

use crate::{
    record::Records,
    summary::Summary, //
};

#[derive(Parser)]
#[command(
    version,
    about = "Makes tables, plots and a summary of what mkey_bench measured"
)]
struct Cli {
    /// Directory for bench.json and the plots
    #[arg(long, default_value = ".")]
    out: PathBuf,

    /// Output of mkey_bench
    records: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mkey-bench-report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let at_records = |error: String| format!("{}: {error}", cli.records.display());
    let file = File::open(&cli.records).map_err(|error| at_records(error.to_string()))?;
    let records = Records::read(BufReader::new(file)).map_err(at_records)?;

    create_dir_all(&cli.out).map_err(|error| format!("{}: {error}", cli.out.display()))?;
    let json = cli.out.join("bench.json");
    let text = format!("{:#}\n", serde_json::to_value(Summary::new(&records))?);
    write(&json, text).map_err(|error| format!("{}: {error}", json.display()))?;
    let plots = plot::all(&records, &cli.out)?;

    let mut out = stdout().lock();
    writeln!(out, "{}", table::all(&records))?;
    writeln!(out, "{}", json.display())?;
    for plot in plots {
        writeln!(out, "{}", plot.display())?;
    }
    Ok(())
}
