// SPDX-License-Identifier: GPL-2.0

//! Reads information about RDMA devices that the kernel offers by netlink. Runs the `rdma` program
//! of iproute2 to do so.

use std::{
    io::ErrorKind,
    process::Command, //
};

use serde::{
    de::{
        DeserializeOwned,
        Error as _, //
    },
    Deserialize,
    Deserializer,
    Serialize, //
};
use serde_json::Value;

use crate::regions::Lkey;

/// An MR of any kind.
#[derive(Deserialize, Serialize)]
pub struct Mr {
    #[serde(rename(deserialize = "ifname"))]
    pub device: String,
    pub mrn: u32,
    pub mrlen: u64,
    /// Only administrators see the lkey and the rkey.
    #[serde(default, deserialize_with = "hexadecimal")]
    pub lkey: Option<Lkey>,
    #[serde(default, deserialize_with = "hexadecimal")]
    pub rkey: Option<Lkey>,
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
        self.device == device && self.lkey == Some(Lkey(lkey))
    }
}

/// Reads an lkey or rkey, which the rdma program prints without `0x`.
fn hexadecimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Lkey>, D::Error> {
    Option::<String>::deserialize(deserializer)?
        .map(|text| u32::from_str_radix(&text, 16).map(Lkey))
        .transpose()
        .map_err(D::Error::custom)
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
    // PATH of a user often lacks the directory of the program.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("rdma")
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
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
    serde_json::from_str(&valid(&output.stdout)).map_err(|error| wrong(error.to_string()))
}

/// Returns the text with a mark for each byte that JSON does not allow. The rdma program prints the
/// names of processes as they are, and a process may choose any bytes as its name.
fn valid(json: &[u8]) -> String {
    // The program escapes line feeds, carriage returns and tabs in strings.
    let is_wrong = |c: char| c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t');

    String::from_utf8_lossy(json).replace(is_wrong, "\u{fffd}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_read() {
        let json = b"[{\"ifname\":\"rxe0\",\"mrn\":1,\"mrlen\":8,\"lkey\":\"773\",\n\
                     \"comm\":\"\xff\x1b[31m\\n\x7f\"}]";
        let mrs: Vec<Mr> = serde_json::from_str(&valid(json)).unwrap();

        assert_eq!(
            mrs.first().and_then(|mr| mr.comm.as_deref()),
            Some("\u{fffd}\u{fffd}[31m\n\u{fffd}")
        );
    }

    #[test]
    fn lkeys_have_one_form() {
        let mr: Mr = serde_json::from_str(
            r#"{"ifname":"rxe0","mrn":1,"mrlen":8,"lkey":"773","rkey":"1a2b3c4d"}"#,
        )
        .unwrap();
        let json = serde_json::to_value(&mr).unwrap();

        assert_eq!(json.get("lkey").unwrap(), "0x00000773");
        assert_eq!(json.get("rkey").unwrap(), "0x1a2b3c4d");
        assert!(mr.is("rxe0", 0x773));
    }
}
