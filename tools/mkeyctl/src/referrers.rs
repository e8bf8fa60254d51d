// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl who`: shows what keeps a memory region from being deregistered.

use std::{
    collections::BTreeSet,
    error::Error,
    io::{
        stdout,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use serde::Serialize;
use serde_json::json;

use crate::{
    debugfs, devices, rdma,
    regions::{
        self,
        Lkey,
        Reference,
        Region, //
    },
    table::{
        or_dash,
        render, //
    },
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`
    device: String,

    /// The lkey of the memory region, which `mkeyctl ls` shows
    lkey: Lkey,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,
}

/// A region that refers to the one in question, directly or by way of others.
#[derive(Debug, PartialEq, Serialize)]
struct Referrer {
    /// 1 for a direct reference.
    distance: usize,
    #[serde(flatten)]
    region: Region,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let regions = regions::regions(&args.debugfs)?;
    let references = regions::references(&args.debugfs)?;
    let found = referrers(&regions, &references, &args.device, args.lkey);
    let direct = found.iter().filter(|one| one.distance == 1).count();
    let own = regions
        .iter()
        .find(|region| region.device == args.device && region.lkey == args.lkey);
    // A bind in progress has pinned what it refers to, and is in no list yet.
    let binds = own
        .and_then(|region| region.pins)
        .map_or(0, |pins| pins.saturating_sub(direct as u64));
    if own.is_none() && found.is_empty() {
        check_lkey(&args.device, args.lkey)?;
    }
    let mut out = stdout().lock();

    if json {
        let answer = json!({
            "device": args.device, "lkey": args.lkey, "region": own,
            "referrers": found, "binds_in_progress": binds,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() && binds == 0 {
        writeln!(
            out,
            "No key and no memory window over a key refers to {} of {}.",
            args.lkey, args.device
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "{} of {} cannot be deregistered while these refer to it:\n",
        args.lkey, args.device
    )?;
    write!(out, "{}", render(&rows(&found)))?;
    match binds {
        0 => {}
        1 => writeln!(out, "and a bind in progress")?,
        _ => writeln!(out, "and {binds} binds in progress")?,
    }
    writeln!(
        out,
        "\nBind them to something else, unbind or destroy them, those with the largest distance \
         first."
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if the device has no such region. debugfs shows the regions of ib_mkey alone,
/// the `rdma` program all of them, if it is installed.
fn check_lkey(device: &str, lkey: Lkey) -> Result<(), String> {
    devices::choose(&devices::list()?, Some(device))?;
    let Ok(mrs) = rdma::mrs() else {
        return Ok(());
    };
    let is_shown = mrs.iter().any(|mr| {
        let shown = mr.lkey.as_deref().unwrap_or_default();

        mr.device == device && u32::from_str_radix(shown, 16) == Ok(lkey.0)
    });

    if is_shown {
        Ok(())
    } else {
        Err(format!(
            "{device} has no memory region {lkey}: see mkeyctl ls"
        ))
    }
}

/// Returns what refers to `lkey`, the nearest first. Each region is found once.
fn referrers(
    regions: &[Region],
    references: &[Reference],
    device: &str,
    lkey: Lkey,
) -> Vec<Referrer> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([lkey]);
    let mut level = vec![lkey];
    let mut distance = 0usize;

    while !level.is_empty() {
        distance = distance.saturating_add(1);
        let next: BTreeSet<_> = references
            .iter()
            .filter(|one| one.device == device && level.contains(&one.leaf))
            .map(|one| one.lkey)
            .filter(|lkey| !seen.contains(lkey))
            .collect();
        for &lkey in &next {
            seen.insert(lkey);
            let region = regions
                .iter()
                .find(|region| region.device == device && region.lkey == lkey);
            // A region that went between the two files is no referrer any more.
            if let Some(region) = region {
                found.push(Referrer {
                    distance,
                    region: region.clone(),
                });
            }
        }
        level = next.into_iter().collect();
    }
    found
}

fn rows(found: &[Referrer]) -> Vec<[String; 6]> {
    let heading = ["DISTANCE", "LKEY", "KIND", "BYTES", "PID", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(found.iter().map(|one| {
        let region = &one.region;

        [
            one.distance.to_string(),
            region.lkey.to_string(),
            region.kind.clone(),
            or_dash(region.bytes),
            or_dash(Some(region.pid).filter(|&pid| pid != 0)),
            region.comm.clone(),
        ]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(lkey: u32) -> Region {
        Region {
            device: "rxe0".to_owned(),
            lkey: Lkey(lkey),
            kind: "list".to_owned(),
            bytes: Some(1),
            entries: Some(1),
            max_entries: Some(1),
            levels: Some(1),
            leaves: Some(1),
            pins: Some(0),
            pid: 7,
            comm: "prog".to_owned(),
        }
    }

    fn reference(device: &str, lkey: u32, leaf: u32) -> Reference {
        Reference {
            device: device.to_owned(),
            lkey: Lkey(lkey),
            leaf: Lkey(leaf),
        }
    }

    #[test]
    fn references_are_followed_to_the_end() {
        let regions = [region(2), region(3), region(4)];
        let references = [
            reference("rxe0", 2, 1),
            reference("rxe0", 3, 2),
            reference("rxe0", 3, 1),
            reference("rxe0", 4, 3),
            reference("rxe1", 9, 1),
            // It went before the regions were read.
            reference("rxe0", 5, 1),
        ];
        let found: Vec<_> = referrers(&regions, &references, "rxe0", Lkey(1))
            .iter()
            .map(|one| (one.distance, one.region.lkey.0))
            .collect();

        assert_eq!(found, [(1, 2), (1, 3), (2, 4)]);
        assert!(referrers(&regions, &references, "rxe1", Lkey(2)).is_empty());
    }
}
