// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl completion`: prints the script with which a shell completes command lines.

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::{
    generate,
    Shell, //
};

#[derive(clap::Args)]
pub struct Args {
    /// Shell that the script is for
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
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
