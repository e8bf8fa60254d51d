// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl who`: shows what keeps a memory region from being deregistered.
//!
//! After a deregistration has failed with EBUSY, the kernel may no longer list the region. The user
//! then cannot look up its lkey, so the command works without an lkey, too.

use std::{
    collections::{
        BTreeMap,
        BTreeSet, //
    },
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
    debugfs, devices,
    rdma::{
        self,
        Mr, //
    },
    regions::{
        self,
        Lkey,
        Reference,
        Region, //
    },
    table::{
        or_dash,
        printable,
        render, //
    },
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`
    device: String,

    /// The lkey of the memory region; all regions that something refers to if left out
    lkey: Option<Lkey>,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,
}

/// A region that refers to the given region, directly or through other regions.
#[derive(Debug, PartialEq, Serialize)]
struct Referrer {
    /// 1 for a direct reference.
    distance: usize,
    #[serde(flatten)]
    region: Region,
}

/// A region that cannot be deregistered.
#[derive(Debug, PartialEq, Serialize)]
struct Busy {
    lkey: Lkey,
    /// `None` if the kernel no longer lists the region.
    bytes: Option<u64>,
    /// The regions that refer to it directly.
    referrers: Vec<Region>,
    binds_in_progress: u64,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let regions = regions::regions(&args.debugfs)?;
    let references = regions::references(&args.debugfs)?;

    match args.lkey {
        Some(lkey) => run_one(args, lkey, &regions, &references, json),
        None => run_all(args, &regions, &references, json),
    }
}

/// Shows all regions that something refers to.
fn run_all(
    args: &Args,
    regions: &[Region],
    references: &[Reference],
    json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    // Ignore an error: if the `rdma` program is missing, only some numbers of bytes are missing.
    let mrs = rdma::mrs().unwrap_or_default();
    let found = busy(regions, references, &mrs, &args.device);
    if found.is_empty() {
        devices::check(&args.device)?;
    }
    let mut out = stdout().lock();

    if json {
        let answer = json!({ "device": args.device, "busy": found });
        writeln!(out, "{answer:#}")?;
    } else if found.is_empty() {
        writeln!(
            out,
            "No key and no memory window over a key refers to a region of {}.",
            args.device
        )?;
    } else {
        writeln!(
            out,
            "These regions of {} cannot be deregistered while their referrers are bound to them:\n",
            args.device
        )?;
        write!(out, "{}", render(&busy_rows(&found)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the regions of a device by their lkeys.
fn by_lkey<'a>(regions: &'a [Region], device: &str) -> BTreeMap<Lkey, &'a Region> {
    regions
        .iter()
        .filter(|region| region.device == device)
        .map(|region| (region.lkey, region))
        .collect()
}

/// Returns the lkeys of the regions that refer to each leaf of a device. A key may have a million
/// leaves, so no list is searched for each of them.
fn by_leaf(references: &[Reference], device: &str) -> BTreeMap<Lkey, BTreeSet<Lkey>> {
    let mut leaves: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();

    for one in references.iter().filter(|one| one.device == device) {
        leaves.entry(one.leaf).or_default().insert(one.lkey);
    }
    leaves
}

/// Returns the regions of a device that something refers to, by their lkeys.
fn busy(regions: &[Region], references: &[Reference], mrs: &[Mr], device: &str) -> Vec<Busy> {
    let own = by_lkey(regions, device);
    let lengths: BTreeMap<_, _> = mrs
        .iter()
        .filter(|mr| mr.device == device)
        .filter_map(|mr| Some((mr.lkey?, mr.mrlen)))
        .collect();
    let mut wanted = by_leaf(references, device);
    for region in own.values().filter(|region| region.pins.unwrap_or(0) > 0) {
        wanted.entry(region.lkey).or_default();
    }

    wanted
        .into_iter()
        .map(|(lkey, direct)| {
            let region = own.get(&lkey).copied();

            Busy {
                lkey,
                bytes: match region {
                    Some(region) => region.bytes,
                    None => lengths.get(&lkey).copied(),
                },
                binds_in_progress: binds_in_progress(region, direct.len()),
                referrers: direct
                    .iter()
                    .filter_map(|lkey| own.get(lkey).copied())
                    .cloned()
                    .collect(),
            }
        })
        // The regions that referred to it may have been destroyed between the reads of the two
        // files.
        .filter(|one| !one.referrers.is_empty() || one.binds_in_progress > 0)
        .collect()
}

/// Returns the number of binds in progress. Such a bind has pinned the region, but is not in the
/// list of references yet.
fn binds_in_progress(own: Option<&Region>, direct: usize) -> u64 {
    own.and_then(|region| region.pins)
        .map_or(0, |pins| pins.saturating_sub(direct as u64))
}

fn busy_rows(found: &[Busy]) -> Vec<[String; 6]> {
    let heading = ["LKEY", "BYTES", "REFERRER", "KIND", "PID", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned)];

    for one in found {
        rows.extend(one.referrers.iter().map(|region| {
            [
                one.lkey.to_string(),
                or_dash(one.bytes),
                region.lkey.to_string(),
                region.kind.clone(),
                or_dash(Some(region.pid).filter(|&pid| pid != 0)),
                printable(&region.comm),
            ]
        }));
        if one.binds_in_progress > 0 {
            rows.push([
                one.lkey.to_string(),
                or_dash(one.bytes),
                "-".to_owned(),
                format!("binds in progress: {}", one.binds_in_progress),
                "-".to_owned(),
                "-".to_owned(),
            ]);
        }
    }
    rows
}

/// Shows what refers to one region.
fn run_one(
    args: &Args,
    lkey: Lkey,
    regions: &[Region],
    references: &[Reference],
    json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let found = referrers(regions, references, &args.device, lkey);
    let direct = found.iter().filter(|one| one.distance == 1).count();
    let own = regions
        .iter()
        .find(|region| region.device == args.device && region.lkey == lkey);
    let binds = binds_in_progress(own, direct);
    if own.is_none() && found.is_empty() {
        check_lkey(&args.device, lkey)?;
    }
    let mut out = stdout().lock();

    if json {
        let answer = json!({
            "device": args.device, "lkey": lkey, "region": own,
            "referrers": found, "binds_in_progress": binds,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() && binds == 0 {
        writeln!(
            out,
            "No key and no memory window over a key refers to {lkey} of {}.",
            args.device
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "{lkey} of {} cannot be deregistered while these refer to it:\n",
        args.device
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

/// Returns an error if the device has no such region. debugfs shows only the regions of ib_mkey, so
/// this asks the `rdma` program, which shows all of them. Without that program, checks the device
/// only.
fn check_lkey(device: &str, lkey: Lkey) -> Result<(), String> {
    devices::check(device)?;
    let Ok(mrs) = rdma::mrs() else {
        return Ok(());
    };

    if mrs.iter().any(|mr| mr.is(device, lkey.0)) {
        Ok(())
    } else {
        Err(format!(
            "{device} has no memory region {lkey}: see mkeyctl ls, or mkeyctl who {device}, which also \
             shows what mkeyctl ls lists no more after EBUSY"
        ))
    }
}

/// Returns the regions that refer to `lkey`, each once. Those with the smallest distance come
/// first.
fn referrers(
    regions: &[Region],
    references: &[Reference],
    device: &str,
    lkey: Lkey,
) -> Vec<Referrer> {
    let (own, leaves) = (by_lkey(regions, device), by_leaf(references, device));
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([lkey]);
    let mut level = vec![lkey];
    let mut distance = 0usize;

    while !level.is_empty() {
        distance = distance.saturating_add(1);
        let next: BTreeSet<_> = level
            .iter()
            .filter_map(|leaf| leaves.get(leaf))
            .flatten()
            .copied()
            .filter(|lkey| !seen.contains(lkey))
            .collect();
        for &lkey in &next {
            seen.insert(lkey);
            // A region that was destroyed between the reads of the two files refers to nothing any
            // more.
            if let Some(&region) = own.get(&lkey) {
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
            printable(&region.comm),
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
            base: Some(0),
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

    #[test]
    fn all_busy_regions_are_found() {
        let pinned = Region {
            bytes: Some(800),
            pins: Some(3),
            ..region(2)
        };
        let regions = [pinned, region(3), region(4)];
        let references = [
            // Region 7 is no longer listed.
            reference("rxe0", 2, 7),
            reference("rxe0", 3, 7),
            reference("rxe0", 3, 2),
            reference("rxe0", 3, 1),
            reference("rxe1", 9, 6),
            // It went before the regions were read.
            reference("rxe0", 5, 8),
        ];
        let mrs = [Mr {
            device: "rxe0".to_owned(),
            mrn: 1,
            mrlen: 64,
            lkey: Some(Lkey(1)),
            rkey: None,
            pdn: None,
            pid: None,
            comm: None,
        }];
        let found = busy(&regions, &references, &mrs, "rxe0");
        let rows: Vec<_> = busy_rows(&found).iter().map(|row| row.join(" ")).collect();

        assert_eq!(
            rows,
            [
                "LKEY BYTES REFERRER KIND PID COMMAND",
                "0x00000001 64 0x00000003 list 7 prog",
                "0x00000002 800 0x00000003 list 7 prog",
                "0x00000002 800 - binds in progress: 2 - -",
                "0x00000007 - 0x00000002 list 7 prog",
                "0x00000007 - 0x00000003 list 7 prog",
            ]
        );
        assert!(busy(&regions, &references, &mrs, "rxe2").is_empty());
    }
}
