// SPDX-License-Identifier: GPL-2.0

//! Reads information about RDMA devices that the kernel offers by netlink. Runs the `rdma` program
//! of iproute2 to do so.

use std::{
    io::ErrorKind,
    process::Command, //
};

use serde::{
    de::DeserializeOwned,
    Deserialize,
    Serialize, //
};
use serde_json::Value;

/// An MR of any kind.
#[derive(Deserialize, Serialize)]
pub struct Mr {
    #[serde(rename(deserialize = "ifname"))]
    pub device: String,
    pub mrn: u32,
    pub mrlen: u64,
    /// The lkey in hexadecimal. Only administrators see the lkey and the rkey.
    pub lkey: Option<String>,
    pub rkey: Option<String>,
    /// `None` if a kernel user has the PD.
    pub pdn: Option<u32>,
    /// `None` if a kernel user made the MR.
    pub pid: Option<u32>,
    pub comm: Option<String>,
}

impl Mr {
    /// Returns `true` if this is the MR with this device and lkey. Returns `false` if the lkey is
    /// not shown.
    pub fn is(&self, device: &str, lkey: u32) -> bool {
        let shown = self.lkey.as_deref().unwrap_or_default();

        self.device == device && u32::from_str_radix(shown, 16) == Ok(lkey)
    }
}

/// Named numbers of a device or of a port.
#[derive(Deserialize)]
pub struct Numbers {
    pub ifname: String,
    pub port: Option<u32>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

impl Numbers {
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rest
            .iter()
            .filter(|(name, _)| *name != "ifindex")
            .filter_map(|(name, value)| Some((name.as_str(), value.as_u64()?)))
    }
}

/// Returns the MRs of all devices.
pub fn mrs() -> Result<Vec<Mr>, String> {
    ask(&["resource", "show", "mr"])
}

/// Returns the number of objects of each kind on each device.
pub fn objects() -> Result<Vec<Numbers>, String> {
    ask(&["resource", "show"])
}

/// Returns the counters of all ports.
pub fn counters() -> Result<Vec<Numbers>, String> {
    ask(&["statistic", "show"])
}

fn ask<T: DeserializeOwned>(what: &[&str]) -> Result<Vec<T>, String> {
    let wrong = |why: String| format!("rdma {}: {why}", what.join(" "));
    let output = Command::new("rdma")
        .arg("-j")
        .args(what)
        .output()
        .map_err(|error| {
            wrong(match error.kind() {
                ErrorKind::NotFound => "not found: it is part of iproute2".to_owned(),
                _ => error.to_string(),
            })
        })?;

    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why = stderr.lines().next().unwrap_or("failed without a word");
        // The kernel has this socket only with ib_core.
        let remedy = if why.contains("NETLINK_RDMA") {
            ": the kernel's ib_core module is not loaded; mkeyctl doctor has the remedy"
        } else {
            ""
        };
        return Err(wrong(format!("{why}{remedy}")));
    }
    // If there are no objects, the program prints nothing, not even an empty list.
    if output.stdout.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.to_string()))
}
