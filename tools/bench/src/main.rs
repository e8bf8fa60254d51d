// SPDX-License-Identifier: GPL-2.0

//! mkey-bench-report: prints the results of `mkey_bench` as tables, and writes them as JSON and SVG
//! to a directory.

mod baseline;
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
        stderr,
        stdout,
        BufReader,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;

use crate::{
    baseline::{
        Baseline,
        Costs, //
    },
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

    /// File of earlier figures to compare with
    #[arg(long)]
    baseline: Option<PathBuf>,

    /// Store the figures in the baseline instead of comparing with it
    #[arg(long, requires = "baseline")]
    save: bool,

    /// Fail if a row costs more than in the baseline
    #[arg(long, requires = "baseline")]
    strict: bool,

    /// Output of mkey_bench
    records: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // An error of standard error cannot be printed.
            let _ = writeln!(stderr(), "mkey-bench-report: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Compares with the baseline, or replaces it. Returns `false` if a row costs more than before and
/// the caller asked to be told.
fn compare(cli: &Cli, records: &Records, out: &mut impl Write) -> Result<bool, Box<dyn Error>> {
    let Some(path) = &cli.baseline else {
        return Ok(true);
    };
    let at_path = |error: String| format!("{}: {error}", path.display());
    if cli.save {
        Baseline::save(path, records).map_err(at_path)?;
        writeln!(out, "{}", path.display())?;
        return Ok(true);
    }
    let baseline = Baseline::read(path).map_err(at_path)?;
    match Costs::of(records, &baseline) {
        Ok(costs) => {
            let changes = costs.since(&baseline);
            write!(out, "{}", changes.report())?;
            Ok(!(cli.strict && changes.slower()))
        }
        Err(why) if cli.strict => {
            Err(format!("cannot be compared with the baseline: {why}").into())
        }
        Err(why) => {
            writeln!(out, "Not compared with the baseline: {why}.")?;
            Ok(true)
        }
    }
}

/// Returns `false` as for [`compare`].
fn run(cli: &Cli) -> Result<bool, Box<dyn Error>> {
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
    compare(cli, &records, &mut out)
}
