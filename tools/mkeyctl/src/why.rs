// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl why`: shows why keys have refused accesses.

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use serde_json::json;

use crate::{
    debugfs, devices,
    regions::{
        self,
        Lkey,
        Refusal, //
    },
    table::printable,
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`
    device: String,

    /// The lkey or rkey of a key; all keys that have refused an access if left out
    key: Option<Lkey>,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let all = regions::refusals(&args.debugfs)?;
    let found: Vec<_> = all.iter().filter(|refusal| args.wants(refusal)).collect();
    if found.is_empty() {
        devices::check(&args.device)?;
    }
    let mut out = stdout().lock();

    if json {
        let answer = json!({ "device": args.device, "refused": found });
        writeln!(out, "{answer:#}")?;
    } else if found.is_empty() {
        let subject = match args.key {
            Some(key) => format!("The key {key} of {}", args.device),
            None => format!("No key of {}", args.device),
        };
        let none = if args.key.is_some() { "no" } else { "an" };
        writeln!(out, "{subject} has refused {none} access.")?;
    } else {
        for refusal in found {
            writeln!(out, "{}", line(refusal))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Returns `true` for the key that the user names, by any key portion, or for any key.
    fn wants(&self, refusal: &Refusal) -> bool {
        let index = |Lkey(key): Lkey| key >> 8;

        refusal.device == self.device
            && self.key.is_none_or(|key| index(key) == index(refusal.lkey))
    }
}

/// Returns the line for a refused access.
pub fn line(refusal: &Refusal) -> String {
    let Refusal { why, kind, pid, .. } = refusal;

    match pid {
        0 => format!("{why} ({kind}, of the kernel)"),
        pid => format!(
            "{why} ({kind}, of process {pid} {})",
            printable(&refusal.comm)
        ),
    }
}
