// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl stat`: shows numbers of devices side by side.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{
        stdout,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use serde_json::{
    json,
    Value, //
};

use crate::{
    debugfs::{
        self,
        Owner,
        Pool,
        KERNEL, //
    },
    devices,
    rdma::{
        self,
        Numbers, //
    },
    regions,
    table::{
        or_dash,
        render_numbers, //
    },
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`; all of them if left out
    device: Option<String>,

    /// Show also rows that are zero for all devices
    #[arg(long)]
    all: bool,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,
}

/// Numbers of one kind, by name and then by device.
type Group = BTreeMap<String, BTreeMap<String, u64>>;

const GROUPS: [&str; 4] = ["objects", "counters", "device memory", "key memory"];

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let objects = rdma::objects()?;
    let known: Vec<_> = objects
        .iter()
        .map(|numbers| numbers.ifname.as_str())
        .collect();
    let mut devices: Vec<_> = objects.iter().map(|numbers| &numbers.ifname).collect();
    devices.retain(|&name| args.device.as_ref().is_none_or(|wanted| wanted == name));
    if devices.is_empty() {
        return Err(match &args.device {
            Some(name) => devices::unknown(name, &known),
            None => devices::NONE.to_owned(),
        }
        .into());
    }

    // Ignore errors of debugfs: only administrators may read it, and all users may see the rest.
    let pools = debugfs::pools(&args.debugfs).ok().flatten();
    let key_owners = debugfs::key_owners(&args.debugfs).ok().flatten();
    let groups = [
        of_objects(&objects),
        of_ports(&rdma::counters()?),
        of_pools(&pools.unwrap_or_default()),
        of_key_owners(&key_owners.unwrap_or_default()),
    ];
    // Ignore an error, as above.
    let counted = regions::counters(&args.debugfs).unwrap_or_default();
    let mut out = stdout().lock();
    if json {
        let mut all = to_json(&devices, &groups);
        if let (Value::Array(all), false) = (&mut all, counted.is_empty()) {
            let counted: BTreeMap<_, _> = counted.into_iter().collect();
            all.push(json!({ "module": counted }));
        }
        writeln!(out, "{all:#}")?;
    } else {
        write!(out, "{}", text(&devices, &groups, args.all))?;
        write!(out, "{}", module_text(&counted, args.all))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn add(group: &mut Group, name: String, device: &str, value: u64) {
    group
        .entry(name)
        .or_default()
        .insert(device.to_owned(), value);
}

fn of_objects(objects: &[Numbers]) -> Group {
    let mut group = Group::new();

    for device in objects {
        for (name, value) in device.iter() {
            add(&mut group, name.to_owned(), &device.ifname, value);
        }
    }
    group
}

/// Groups the counters of ports. Only port numbers above 1 are shown, because most devices have one
/// port.
fn of_ports(ports: &[Numbers]) -> Group {
    let mut group = Group::new();

    for port in ports {
        for (name, value) in port.iter() {
            let name = match port.port {
                None | Some(1) => name.to_owned(),
                Some(number) => format!("{name}, port {number}"),
            };
            add(&mut group, name, &port.ifname, value);
        }
    }
    group
}

fn of_pools(pools: &[Pool]) -> Group {
    let mut group = Group::new();

    for pool in pools {
        let numbers = [
            ("total", pool.total),
            ("used", pool.used),
            ("high", pool.high),
            ("buffers", pool.buffers),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                let name = format!("{} {name}", pool.class);
                add(&mut group, name, &pool.device, value);
            }
        }
    }
    group
}

/// Groups the bytes of kernel memory that keys take, by user.
fn of_key_owners(owners: &[Owner]) -> Group {
    let mut group = Group::new();

    for owner in owners {
        let name = match owner.user.as_deref() {
            None => "total".to_owned(),
            Some(KERNEL) => KERNEL.to_owned(),
            Some(user) => format!("user {user}"),
        };
        if let Some(bytes) = owner.bytes {
            add(&mut group, name, &owner.device, bytes);
        }
    }
    group
}

fn text(devices: &[&String], groups: &[Group; 4], all: bool) -> String {
    let mut rows = Vec::new();

    for (title, group) in GROUPS.into_iter().zip(groups) {
        let mut lines: Vec<Vec<String>> = Vec::new();

        for (name, values) in group {
            let values: Vec<_> = devices.iter().map(|&device| values.get(device)).collect();
            if all || values.iter().flatten().any(|&&value| value != 0) {
                let mut line = vec![format!("  {name}")];
                line.extend(values.into_iter().map(or_dash));
                lines.push(line);
            }
        }
        if !lines.is_empty() {
            rows.push(vec![title.to_uppercase()]);
            rows.append(&mut lines);
        }
    }
    if let Some(first) = rows.first_mut() {
        first.extend(devices.iter().map(|&device| device.clone()));
    }
    render_numbers(&rows)
}

/// Shows what the module has counted for all devices together.
fn module_text(counted: &[(String, u64)], all: bool) -> String {
    let mut rows = vec![vec!["IB_MKEY".to_owned(), "ALL DEVICES".to_owned()]];

    rows.extend(
        counted
            .iter()
            .filter(|(_, count)| all || *count != 0)
            .map(|(name, count)| vec![format!("  {name}"), count.to_string()]),
    );
    if rows.len() == 1 {
        return String::new();
    }
    format!("\n{}", render_numbers(&rows))
}

fn to_json(devices: &[&String], groups: &[Group; 4]) -> Value {
    let each = devices.iter().map(|&device| {
        let of_device = |group: &Group| -> BTreeMap<String, u64> {
            group
                .iter()
                .filter_map(|(name, values)| Some((name.clone(), *values.get(device)?)))
                .collect()
        };
        let [objects, counters, memory, key_memory] = groups;

        json!({
            "device": device,
            "objects": of_device(objects),
            "counters": of_device(counters),
            "device_memory": of_device(memory),
            "key_memory": of_device(key_memory),
        })
    });

    each.collect()
}
