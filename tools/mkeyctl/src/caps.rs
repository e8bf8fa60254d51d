// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl caps`: shows the limits of devices.

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    process::ExitCode,
};

use ibmkey::{
    sys::{
        ib_uverbs_mkey_caps,
        IBMKEY_CAP_ATOMIC,
        IBMKEY_CAP_DM,
        IBMKEY_CAP_INDEXED,
        IBMKEY_CAP_INTERLEAVED,
        IBMKEY_CAP_LIST,
        IBMKEY_CAP_REQUEST,
        IBMKEY_DM_HOST,
        IBMKEY_DM_NODE,
        IBMKEY_DM_P2P,
        IBMKEY_DM_PMEM,
        IB_MKEY_CAP_COHERENT_SHIFT, //
    },
    verbs::Device,
    Errno, //
};
use serde_json::{
    json,
    Value, //
};

use crate::{
    devices,
    table::{
        self,
        size, //
    },
};

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`; all of them if left out
    device: Option<String>,
}

/// A device and its limits.
struct Line {
    name: String,
    /// `None` if ib_mkey has not extended the device.
    caps: Option<ib_uverbs_mkey_caps>,
}

const FLAGS: [(u32, &str); 6] = [
    (IBMKEY_CAP_DM, "dm"),
    (IBMKEY_CAP_LIST, "list"),
    (IBMKEY_CAP_INTERLEAVED, "interleaved"),
    (IBMKEY_CAP_INDEXED, "indexed"),
    (IBMKEY_CAP_ATOMIC, "atomic"),
    (IBMKEY_CAP_REQUEST, "request"),
];
const CLASSES: [(u32, &str); 4] = [
    (IBMKEY_DM_HOST, "host"),
    (IBMKEY_DM_NODE, "node"),
    (IBMKEY_DM_P2P, "p2p"),
    (IBMKEY_DM_PMEM, "pmem"),
];

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let devices = devices::list()?;
    let chosen = devices::choose(&devices, args.device.as_deref())?;
    let mut status = ExitCode::SUCCESS;
    let mut lines = Vec::new();
    for device in &chosen {
        match look(device) {
            Ok(line) => lines.push(line),
            Err(error) => {
                crate::report(error);
                status = ExitCode::FAILURE;
            }
        }
    }

    // If the command line names a device, the exit status tells whether it is extended.
    if let (Some(name), [Line { caps: None, .. }]) = (&args.device, lines.as_slice()) {
        return Err(devices::not_extended(name).into());
    }

    let mut out = stdout().lock();
    if json {
        let all: Vec<_> = lines.iter().map(to_json).collect();
        writeln!(out, "{:#}", Value::Array(all))?;
    } else if !lines.is_empty() {
        write!(out, "{}", table(&lines))?;
    }
    Ok(status)
}

fn look(device: &Device<'_>) -> Result<Line, String> {
    let name = device.name().to_owned();
    let context = device
        .open()
        .map_err(|errno| devices::not_opened(&name, errno))?;
    let caps = match context.caps() {
        Ok(caps) => Some(caps),
        Err(Errno::EOPNOTSUPP) => None,
        Err(errno) => return Err(format!("{name}: cannot be queried: {errno}")),
    };

    Ok(Line { name, caps })
}

/// Returns the flags without those of coherent classes, and these classes.
fn coherent(caps: &ib_uverbs_mkey_caps) -> (u64, u64) {
    let classes = caps.flags >> IB_MKEY_CAP_COHERENT_SHIFT;

    (
        caps.flags & !(classes << IB_MKEY_CAP_COHERENT_SHIFT),
        classes,
    )
}

/// Returns the names of the classes, with a remark at those that are not coherent.
fn classes(caps: &ib_uverbs_mkey_caps) -> Vec<String> {
    let (_, coherent) = coherent(caps);
    let mut all = names(u64::from(caps.dm_classes) & coherent, &CLASSES);
    let others = names(u64::from(caps.dm_classes) & !coherent, &CLASSES);

    all.extend(others.iter().map(|name| format!("{name} (not coherent)")));
    all
}

/// Returns the names of the set bits, and the unknown bits as one number.
fn names(bits: u64, known: &[(u32, &'static str)]) -> Vec<String> {
    let mut rest = bits;
    let mut names = Vec::new();

    for &(bit, name) in known {
        if bits & u64::from(bit) != 0 {
            names.push(name.to_owned());
            rest &= !u64::from(bit);
        }
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names
}

fn to_json(line: &Line) -> Value {
    match &line.caps {
        None => json!({ "device": line.name, "supported": false }),
        Some(caps) => json!({
            "device": line.name,
            "supported": true,
            "flags": names(coherent(caps).0, &FLAGS),
            "max_dm_size": caps.max_dm_size,
            "dm_classes": names(caps.dm_classes.into(), &CLASSES),
            "coherent_dm_classes": names(coherent(caps).1, &CLASSES),
            "max_entries": caps.max_entries,
            "max_indices": caps.max_indices,
            "max_dims": caps.max_dims,
            "max_depth": caps.max_depth,
        }),
    }
}

fn table(lines: &[Line]) -> String {
    let heading = [
        "DEVICE",
        "CAN",
        "DEVICE MEMORY",
        "CLASSES",
        "ENTRIES",
        "DIMS",
        "DEPTH",
    ];
    let mut rows = vec![heading.map(str::to_owned)];

    rows.extend(lines.iter().map(|line| {
        let none = || "-".to_owned();
        let list = |names: Vec<String>| {
            if names.is_empty() {
                none()
            } else {
                names.join(",")
            }
        };

        match &line.caps {
            None => [
                line.name.clone(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
            ],
            Some(caps) => [
                line.name.clone(),
                list(names(coherent(caps).0, &FLAGS)),
                size(caps.max_dm_size),
                list(classes(caps)),
                caps.max_entries.to_string(),
                caps.max_dims.to_string(),
                caps.max_depth.to_string(),
            ],
        }
    }));

    table::render(&rows)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn line(name: &str, caps: Option<ib_uverbs_mkey_caps>) -> Line {
        Line {
            name: name.to_owned(),
            caps,
        }
    }

    fn some_caps() -> ib_uverbs_mkey_caps {
        ib_uverbs_mkey_caps {
            comp_mask: 0,
            max_dm_size: 64 << 20,
            max_entries: 65536,
            max_dims: 8,
            max_depth: 8,
            dm_classes: 5,
            flags: 0x1_0000_1007,
            max_indices: 1 << 20,
        }
    }

    #[test]
    fn unknown_bits_are_not_hidden() {
        assert_eq!(names(0x1003, &FLAGS), ["dm", "list", "0x1000"]);
        assert!(names(0, &FLAGS).is_empty());
    }

    #[test]
    fn columns_line_up() {
        let text = table(&[line("rxe0", Some(some_caps())), line("a_long_name", None)]);

        assert_eq!(
            text,
            "DEVICE       CAN                         DEVICE MEMORY  CLASSES                  ENTRIES  DIMS  DEPTH\n\
             rxe0         dm,list,interleaved,0x1000  64 MiB         host,p2p (not coherent)  65536    8     8\n\
             a_long_name  -                           -              -                        -        -     -\n"
        );
    }

    #[test]
    fn json_says_what_is_missing() {
        assert_eq!(
            to_json(&line("rxe0", None)),
            json!({ "device": "rxe0", "supported": false })
        );
        assert_eq!(
            to_json(&line("rxe0", Some(some_caps())))["max_dm_size"],
            64 << 20
        );
    }
}
