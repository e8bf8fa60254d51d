// SPDX-License-Identifier: GPL-2.0

//! mkeyctl: inspects memory keys from a shell.
//!
//! Exit status: 0 for success; 1 for an error, with the reason on standard error; 2 for an invalid
//! command line.

#![forbid(unsafe_code)]

mod ascii;
mod caps;
mod command_line;
mod completion;
mod debugfs;
mod demo;
mod describe;
mod devices;
mod doctor;
mod draw;
mod ls;
mod picture;
mod rdma;
mod referrers;
mod regions;
mod stat;
mod svg;
mod table;
mod watch;

use std::{
    error::Error,
    fmt::Display,
    io::{
        stderr,
        Write, //
    },
    process::ExitCode, //
};

use clap::{
    Parser,
    Subcommand, //
};
use command_line::Usage;

#[derive(Parser)]
#[command(
    name = "mkeyctl",
    version,
    about = "Looks at memory keys and device memory"
)]
#[command(propagate_version = false)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what devices can do
    Caps(caps::Args),
    /// Print the script with which a shell completes command lines
    Completion(completion::Args),
    /// Move bytes from a strided key to another, and show where they went
    Demo(demo::Args),
    /// Look for problems that keep keys from working, and print remedies
    Doctor(doctor::Args),
    /// Draw which bytes of memory a layout describes
    Draw(draw::Args),
    /// List memory regions, keys and device memory
    Ls(ls::Args),
    /// Show what devices have counted
    Stat(stat::Args),
    /// Print the numbers of bound keys, accesses and refused accesses each second
    Watch(watch::Args),
    /// Show which keys refer to memory regions, so that these cannot be deregistered
    Who(referrers::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        // It is not an error if the reader of a pipe closes it early.
        Err(error) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            report(error.as_ref());
            if error.is::<Usage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let Some(Cli { json, command }) = command_line::parse()? else {
        return Ok(ExitCode::SUCCESS);
    };

    match command {
        Command::Caps(args) => caps::run(&args, json),
        Command::Completion(_) if json => {
            Err(Usage::of("completion", "--json is not for a script").into())
        }
        Command::Completion(args) => completion::run(&args),
        Command::Demo(args) => demo::run(&args, json),
        Command::Doctor(args) => doctor::run(&args, json),
        Command::Draw(args) => draw::run(&args, json),
        Command::Ls(args) => ls::run(&args, json),
        Command::Stat(args) => stat::run(&args, json),
        Command::Watch(args) => watch::run(&args, json),
        Command::Who(args) => referrers::run(&args, json),
    }
}

/// Prints an error in one line. Ignores that standard error is full, because nothing else can tell it.
fn report(error: impl Display) {
    let _ = writeln!(stderr(), "mkeyctl: {error}");
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
