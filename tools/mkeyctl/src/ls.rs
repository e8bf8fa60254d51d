// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl ls`: lists the objects of extended devices.

use std::{
    collections::BTreeMap,
    error::Error,
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

use ibmkey::{
    sys::ib_uverbs_mkey_caps,
    Errno, //
};
use serde_json::{
    json,
    Value, //
};

use crate::{
    debugfs::{
        self,
        Owner,
        Pool, //
    },
    devices,
    rdma::{
        self,
        Mr, //
    },
    regions::{
        self,
        Region, //
    },
    table::{
        or_dash,
        printable,
        render,
        size, //
    },
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`; all of them if left out
    device: Option<String>,

    #[command(subcommand)]
    what: Option<What>,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR, global = true)]
    debugfs: PathBuf,
}

#[derive(clap::Subcommand)]
enum What {
    /// Keys of all processes: kinds, sizes, references and owners
    ///
    /// Lists the keys of all processes, the memory windows over them, and the MRs over device memory and
    /// dma-bufs, each with its layout, the number of bindings that refer to it, and its owner. KIND is
    /// unbound, list, interleaved or indexed for a key, window for a memory window, and dm, dmabuf or
    /// fast_reg for an MR over device memory, over a dma-buf, or for fast registration. Reads debugfs, so it
    /// is for root.
    ///
    /// JSON: an array of objects with device, lkey, kind, bytes, entries, max_entries, levels, leaves, pins
    /// (bindings that refer to it), base (the address of its first byte), pid, comm. max_entries is 0 for an MR or window that is not a key.
    Keys {
        /// Device; all of them if left out
        device: Option<String>,
    },
    /// Device memory by class and by process
    ///
    /// Lists device memory by class and by user. Reads debugfs, so it is for root.
    ///
    /// JSON: pools and owners. Both have device, high, and buffers. pools has class, total, and used, and
    /// owners has user, bytes, and limit.
    Dm {
        /// Device; all of them if left out
        device: Option<String>,
    },
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    match &args.what {
        Some(What::Keys { device }) => {
            ls_keys(args, json, device.as_ref().or(args.device.as_ref()))
        }
        Some(What::Dm { device }) => ls_dm(args, json, device.as_ref().or(args.device.as_ref())),
        None => ls(args, json, args.device.as_deref()),
    }
}

/// An extended device.
struct Line {
    name: String,
    caps: ib_uverbs_mkey_caps,
    mrs: Vec<Mr>,
    /// The kind of each region of ib_mkey, by its lkey. Empty if this user may not read debugfs.
    kinds: BTreeMap<u32, String>,
    /// `None` if this user may not read debugfs, or the kernel does not show the pools.
    pools: Option<Vec<Pool>>,
}

fn ls(args: &Args, json: bool, name: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let lines = look(name, &args.debugfs)?;
    let mut out = stdout().lock();

    if json {
        let all = lines.iter().map(to_json).collect();
        writeln!(out, "{:#}", Value::Array(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", render(&device_rows(&lines)))?;
    if lines.iter().any(|line| !line.mrs.is_empty()) {
        write!(out, "\n{}", render(&mr_rows(&lines)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look(name: Option<&str>, debugfs: &Path) -> Result<Vec<Line>, String> {
    let devices = devices::list()?;
    let mut lines = Vec::new();

    for device in devices::choose(&devices, name)? {
        let context = device
            .open()
            .map_err(|errno| devices::not_opened(device.name(), errno))?;
        match context.caps() {
            Ok(caps) => lines.push(Line {
                name: device.name().to_owned(),
                caps,
                mrs: Vec::new(),
                kinds: BTreeMap::new(),
                pools: None,
            }),
            Err(Errno::EOPNOTSUPP) if name.is_none() => {}
            Err(Errno::EOPNOTSUPP) => {
                return Err(devices::not_extended(device.name()));
            }
            Err(errno) => {
                return Err(format!("{}: cannot be queried: {errno}", device.name()));
            }
        }
    }
    if lines.is_empty() {
        return Err("no device is extended by ib_mkey; mkeyctl doctor has the remedy".to_owned());
    }

    for mr in rdma::mrs()? {
        if let Some(line) = lines.iter_mut().find(|line| line.name == mr.device) {
            line.mrs.push(mr);
        }
    }
    // Ignore errors: only administrators may read debugfs, and all users may see the rest.
    for region in regions::regions(debugfs).unwrap_or_default() {
        if let Some(line) = lines.iter_mut().find(|line| line.name == region.device) {
            line.kinds.insert(region.lkey.0, region.kind);
        }
    }
    if let Ok(Some(pools)) = debugfs::pools(debugfs) {
        for line in &mut lines {
            line.pools = Some(Vec::new());
        }
        for pool in pools {
            let line = lines.iter_mut().find(|line| line.name == pool.device);
            if let Some(pools) = line.and_then(|line| line.pools.as_mut()) {
                pools.push(pool);
            }
        }
    }
    Ok(lines)
}

impl Line {
    fn sum(&self, number: impl Fn(&Pool) -> Option<u64>) -> Option<u64> {
        let pools = self.pools.as_ref()?;

        Some(pools.iter().filter_map(number).fold(0, u64::saturating_add))
    }
}

fn device_rows(lines: &[Line]) -> Vec<[String; 6]> {
    let heading = [
        "DEVICE",
        "REGIONS",
        "BYTES",
        "DEVICE MEMORY",
        "USED",
        "BUFFERS",
    ];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(lines.iter().map(|line| {
        let bytes = line.mrs.iter().map(|mr| mr.mrlen);

        [
            line.name.clone(),
            line.mrs.len().to_string(),
            size(bytes.fold(0, u64::saturating_add)),
            size(line.caps.max_dm_size),
            or_dash(line.sum(|pool| pool.used).map(size)),
            or_dash(line.sum(|pool| pool.buffers)),
        ]
    }));
    rows
}

fn mr_rows(lines: &[Line]) -> Vec<[String; 9]> {
    let heading = [
        "DEVICE", "MR", "KIND", "BYTES", "LKEY", "RKEY", "PD", "PID", "COMMAND",
    ];
    let mut rows = vec![heading.map(str::to_owned)];

    for (line, mr) in lines
        .iter()
        .flat_map(|line| line.mrs.iter().map(move |mr| (line, mr)))
    {
        let comm = mr.comm.as_deref();

        rows.push([
            mr.device.clone(),
            mr.mrn.to_string(),
            // An ordinary MR has no row in debugfs.
            or_dash(mr.lkey.and_then(|lkey| line.kinds.get(&lkey.0))),
            mr.mrlen.to_string(),
            or_dash(mr.lkey),
            or_dash(mr.rkey),
            or_dash(mr.pdn),
            or_dash(mr.pid),
            match mr.pid {
                Some(_) => or_dash(comm.map(printable)),
                // The rdma program also shows the names of kernel users in brackets.
                None => or_dash(comm.map(|comm| format!("[{}]", printable(comm)))),
            },
        ]);
    }
    rows
}

fn to_json(line: &Line) -> Value {
    json!({
        "device": line.name,
        "max_dm_size": line.caps.max_dm_size,
        "mrs": line.mrs,
        "pools": line.pools,
    })
}

fn ls_keys(args: &Args, json: bool, name: Option<&String>) -> Result<ExitCode, Box<dyn Error>> {
    let mut regions = regions::regions(&args.debugfs)?;
    let mut out = stdout().lock();

    if let Some(name) = name {
        devices::choose(&devices::list()?, Some(name))?;
        regions.retain(|region| region.device == *name);
    }
    if json {
        writeln!(out, "{:#}", json!(regions))?;
    } else {
        write!(out, "{}", render(&region_rows(&regions)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn region_rows(regions: &[Region]) -> Vec<[String; 11]> {
    let heading = [
        "DEVICE",
        "LKEY",
        "KIND",
        "BYTES",
        "ENTRIES",
        "MAX",
        "LEAVES",
        "LEVELS",
        "REFERRERS",
        "PID",
        "COMMAND",
    ];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(regions.iter().map(|region| {
        let most = region.max_entries.filter(|_| region.is_key());

        [
            region.device.clone(),
            region.lkey.to_string(),
            region.kind.clone(),
            or_dash(region.bytes),
            or_dash(region.entries),
            or_dash(most),
            or_dash(region.leaves),
            or_dash(region.levels),
            or_dash(region.pins),
            or_dash(Some(region.pid).filter(|&pid| pid != 0)),
            printable(&region.comm),
        ]
    }));
    rows
}

fn ls_dm(args: &Args, json: bool, name: Option<&String>) -> Result<ExitCode, Box<dyn Error>> {
    let shown = |file: &str| {
        format!(
            "{} is not there: is ib_mkey loaded, and debugfs mounted?",
            args.debugfs.join(file).display()
        )
    };
    debugfs::allowed(
        &args.debugfs.join("pools"),
        "the device memory of all users",
    )?;
    let mut pools = debugfs::pools(&args.debugfs)?.ok_or_else(|| shown("pools"))?;
    let mut owners = debugfs::owners(&args.debugfs)?.ok_or_else(|| shown("owners"))?;
    let mut out = stdout().lock();

    if let Some(name) = name {
        pools.retain(|pool| pool.device == *name);
        owners.retain(|owner| owner.device == *name);
        if pools.is_empty() {
            return Err(format!("no device {name} with device memory of ib_mkey").into());
        }
    }
    if json {
        writeln!(out, "{:#}", json!({ "pools": pools, "owners": owners }))?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", render(&pool_rows(&pools)))?;
    if !owners.is_empty() {
        write!(out, "\n{}", render(&owner_rows(&owners)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn pool_rows(pools: &[Pool]) -> Vec<[String; 6]> {
    let heading = ["DEVICE", "CLASS", "TOTAL", "USED", "HIGH", "BUFFERS"];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(pools.iter().map(|pool| {
        [
            pool.device.clone(),
            pool.class.clone(),
            or_dash(pool.total.map(size)),
            or_dash(pool.used.map(size)),
            or_dash(pool.high.map(size)),
            or_dash(pool.buffers),
        ]
    }));
    rows
}

fn owner_rows(owners: &[Owner]) -> Vec<[String; 6]> {
    let heading = ["DEVICE", "CLASS", "USER", "USED", "HIGH", "BUFFERS"];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(owners.iter().map(|owner| {
        [
            owner.device.clone(),
            or_dash(owner.class.as_ref()),
            or_dash(owner.user.as_ref()),
            or_dash(owner.bytes.map(size)),
            or_dash(owner.high.map(size)),
            or_dash(owner.buffers),
        ]
    }));
    rows
}
