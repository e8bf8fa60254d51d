// SPDX-License-Identifier: GPL-2.0

//! Generated from the command line by clap: the script with which a shell completes command lines
//! (`mkeyctl completion`), and the man pages for an installation (`mkeyctl man`).

use std::{
    error::Error,
    fs,
    io::{
        stdout,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode,
};

use clap::{
    Command,
    CommandFactory, //
};
use clap_complete::{
    generate,
    Shell, //
};
use clap_mangen::Man;

#[derive(clap::Args)]
pub struct CompletionArgs {
    /// Shell that the script is for
    shell: Shell,
}

pub fn completion(args: &CompletionArgs) -> Result<ExitCode, Box<dyn Error>> {
    let mut script = Vec::new();

    // The generator panics if it cannot write, so let it write to a vector.
    generate(
        args.shell,
        &mut crate::Cli::command(),
        "mkeyctl",
        &mut script,
    );
    stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub struct ManArgs {
    dir: PathBuf,
}

pub fn man(args: &ManArgs) -> Result<ExitCode, Box<dyn Error>> {
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
