// SPDX-License-Identifier: GPL-2.0

//! mkeyctl: inspects memory keys from a shell.
//!
//! Exit status: 0 for success; 1 for an error, with the reason on standard error; 2 for an invalid
//! command line.

mod ascii;
mod caps;
mod debugfs;
mod demo;
mod describe;
mod devices;
mod draw;
mod ls;
mod picture;
mod rdma;
mod stat;
mod svg;
mod table;

use std::{
    error::Error,
    process::ExitCode, //
};

use clap::{
    Parser,
    Subcommand, //
};

#[derive(Parser)]
#[command(
    name = "mkeyctl",
    version,
    about = "Looks at memory keys and device memory"
)]
#[command(propagate_version = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what devices can do
    Caps(caps::Args),
    /// Move bytes from a strided key to another, and show where they went
    Demo(demo::Args),
    /// Draw which bytes of memory a layout names
    Draw(draw::Args),
    /// List memory regions, keys and device memory
    Ls(ls::Args),
    /// Show what devices have counted
    Stat(stat::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Caps(args) => caps::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Draw(args) => draw::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Stat(args) => stat::run(&args),
    };

    match result {
        Ok(status) => status,
        // A reader that closes the pipe early is not an error.
        Err(error) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mkeyctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
