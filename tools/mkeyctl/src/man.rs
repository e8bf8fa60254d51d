// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl man DIR`: writes a man page for each command, for the installation.

use std::{
    error::Error,
    fs,
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode, //
};

use clap::{
    Command,
    CommandFactory, //
};
use clap_mangen::Man;

#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut command = crate::Cli::command().disable_help_subcommand(true);

    command.build();
    fs::create_dir_all(&args.dir)?;
    write_pages(&args.dir, &command)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of those below it.
fn write_pages(dir: &Path, command: &Command) -> Result<(), Box<dyn Error>> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_pages(dir, below)?;
    }

    let page = Man::new(command.clone())
        .section("8")
        .manual("System Manager's Manual")
        .source("ib_mkey");
    let mut text = Vec::new();

    page.render(&mut text)?;
    fs::write(dir.join(page.get_filename()), text)?;
    Ok(())
}
