// SPDX-License-Identifier: GPL-2.0

//! mkeyctl: inspects memory keys from a shell.
//!
//! Exit status: 0 for success; 1 for an error, with the reason on standard error; 2 for an invalid
//! command line.

#![forbid(unsafe_code)]

mod ascii;
mod caps;
mod command_line;
mod debugfs;
mod demo;
mod describe;
mod devices;
mod doctor;
mod draw;
mod generated;
mod ls;
mod picture;
mod rdma;
mod referrers;
mod regions;
mod stat;
mod svg;
mod table;
mod watch;
mod why;

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

const LONG_ABOUT: &str = "\
Shows the memory keys and the device memory that the kernel module ib_mkey adds to RDMA devices. A memory key is a \
memory region (MR) that has no memory itself and describes bytes of other MRs. Each command has its own page, such \
as mkeyctl-draw(8).";

const AFTER_HELP: &str = "\
Commands with --json print the fields that their pages name. A value is null if it is unknown or does not apply. An \
lkey, rkey or address is a string in hexadecimal, such as \"0x00001a2b\". Sizes are in bytes. pid is 0 and user is \
\"kernel\" for a user in the kernel.

The exit status is 0 for success; 1 if the command failed, with the reason on standard error, or if doctor found a \
problem; and 2 if the command line is wrong.

To find out why a program finds no keys: mkeyctl doctor rxe0
To list the processes that have device memory: mkeyctl ls dm

See also ibmkey(7), rdma(8), ibv_devinfo(1).";

#[derive(Parser)]
#[command(
    name = "mkeyctl",
    version,
    about = "Looks at memory keys and device memory",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP
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
    ///
    /// Shows the capabilities of devices: device memory and its classes, and the limits of keys. With a
    /// device, the exit status is 1 if ib_mkey has not extended it.
    ///
    /// JSON: an array of objects with device, supported, flags, max_dm_size, dm_classes, coherent_dm_classes,
    /// max_entries, max_indices, max_dims, max_depth. Only device and supported are there if ib_mkey has not extended
    /// the device.
    Caps(caps::Args),
    /// Print the script with which a shell completes command lines
    Completion(generated::CompletionArgs),
    /// Move bytes from a strided key to another, and show where they went
    ///
    /// Writes bytes from a strided key to another by one RDMA WRITE, and shows the memory of both. With
    /// --picture, sends a tile of a picture to another place of a dim copy of the picture.
    ///
    /// JSON: from, to, bytes, right. from and to have device, rows, row_bytes, stride, and memory, an array
    /// of strings, one for each row of memory. right is true if each byte is where it belongs.
    Demo(demo::Args),
    /// Look for problems that keep keys from working, and print remedies
    ///
    /// Prints a line for each check, and a line with the remedy for each problem. Checks the kernel and its
    /// options, the module and its signature, which rdma_rxe is loaded, and ib_uverbs; for each device the
    /// port, the address, the permission to open it, the provider library, and whether ib_mkey has extended
    /// it; the links at the next start, the libraries, the program rdma(8), the limits of memory, the lines
    /// of ib_mkey in the kernel's log, and to root the last access that a key refused. A line that begins with ? is a check that could not be made; the
    /// remedy says why. Run the command as root to make all checks. The exit status is 1 if there is a
    /// problem.
    ///
    /// JSON: problems, their number, and checks, an array of objects with check, status (ok, note, unknown,
    /// problem), found, and remedy if there is one.
    Doctor(doctor::Args),
    /// Draw which bytes of memory a layout describes
    ///
    /// Needs no device, except with --key: that draws the layout of a key of a running program, the first
    /// 256 entries of each key, and then the layouts of the keys below it.
    ///
    /// JSON: an array of objects with device, lkey, entries, base (null without --key), length, layout. layout is a
    /// description in the form of FILE. A number above 2^53 is a string there, because many programs read JSON
    /// numbers as floating point. --json refuses --format, --pitch, --rows and --columns.
    Draw(draw::Args),
    /// List memory regions, keys and device memory
    ///
    /// Lists extended devices with the size of their MRs and their device memory, and then all MRs of these
    /// devices, including keys. Runs rdma(8), which shows lkeys and rkeys only to root.
    /// KIND is that of `mkeyctl ls keys`, and - for an ordinary MR, or for a user who may not read debugfs.
    ///
    /// JSON: an array of objects with device, max_dm_size, mrs, pools. mrs has device, mrn, mrlen, lkey, rkey,
    /// pdn, pid, comm. pools has device, class, total, used, high, buffers.
    Ls(ls::Args),
    /// Show what devices have counted
    ///
    /// Shows objects and counters of devices side by side, and to root their device memory and the bytes of
    /// kernel memory that the keys of each user take. Then shows to root the counts of ib_mkey for all
    /// devices together: binds, unbinds, accesses, refused accesses by reason, and pages that were faulted
    /// in. Runs rdma(8).
    ///
    /// JSON: an array of objects with device, objects, counters, device_memory, key_memory. These four have
    /// numbers by their names, as the text shows them. To root, the last object has only module: the counts
    /// for all devices together.
    Stat(stat::Args),
    /// Print the numbers of bound keys, accesses and refused accesses each second
    ///
    /// Prints a line each second: the number of keys, the number of bound keys, and the counts of ib_mkey
    /// since the line before. It is for root.
    ///
    /// JSON: an object in one line each second: keys, bound, and the counts binds, unbinds, accesses,
    /// refused_unbound, refused_rights, refused_memory, refused_other, odp_faults.
    Watch(watch::Args),
    /// Show which keys refer to memory regions, so that these cannot be deregistered
    ///
    /// Shows why the MR with this LKEY cannot be deregistered: lists the keys and windows that refer to it,
    /// directly or through other keys. Without LKEY, shows all MRs to which a key or a window refers, each
    /// with the keys and windows that refer to it directly. After ibv_dereg_mr() has failed with EBUSY, ls
    /// does not list the MR any more, but this command still shows it, with a dash as its number of bytes.
    /// It is for root.
    ///
    /// JSON: with LKEY device, lkey, region, referrers, binds_in_progress; without it device and busy, an
    /// array of objects with lkey, bytes, referrers, and binds_in_progress. region and referrers have the
    /// fields of ls keys: device, lkey, kind, bytes, entries, max_entries, levels, leaves, pins, base, pid, comm.
    /// With LKEY, a referrer also has distance, which is 1 for a direct reference.
    Who(referrers::Args),
    /// Show why keys have refused accesses
    ///
    /// A completion such as "Work Request Flushed Error" does not say why an access failed. This command
    /// prints a line for the last refused access of each key, and of each MR over device memory, that has
    /// refused one, the latest first: the key, the address, the bytes, the reason and the process. The
    /// record ends with the key. A program gets the sentence from ibmkey_why(3). It is for root.
    ///
    /// JSON: device, and refused, an array of objects with device, lkey, kind, number, addr, length, access,
    /// remote, reason, why, pid, comm. number is that of the refusal among all since ib_mkey was loaded,
    /// reason that of enum ib_uverbs_mkey_reason, and why the sentence.
    Why(why::Args),
    /// Write the man pages of all commands into a directory
    #[command(hide = true)]
    Man(generated::ManArgs),
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
        Command::Completion(args) => generated::completion(&args),
        Command::Demo(args) => demo::run(&args, json),
        Command::Doctor(args) => doctor::run(&args, json),
        Command::Draw(args) => draw::run(&args, json),
        Command::Ls(args) => ls::run(&args, json),
        Command::Man(args) => generated::man(&args),
        Command::Stat(args) => stat::run(&args, json),
        Command::Watch(args) => watch::run(&args, json),
        Command::Who(args) => referrers::run(&args, json),
        Command::Why(args) => why::run(&args, json),
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
