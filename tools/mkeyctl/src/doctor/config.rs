// SPDX-License-Identifier: GPL-2.0

//! The options with which the kernel was configured.

use super::{
    machine::Machine,
    Finding, //
};

const CHECK: &str = "configuration";
const REMEDY: &str =
    "use a kernel with CONFIG_RUST and with CONFIG_RDMA_RXE=m; Debian has such ones";

/// The options that every kernel needs. Another check finds a built-in rdma_rxe.
const NEEDED: [&str; 4] = [
    "CONFIG_RUST",
    "CONFIG_INFINIBAND",
    "CONFIG_INFINIBAND_USER_ACCESS",
    "CONFIG_RDMA_RXE",
];

pub fn check(machine: &Machine) -> Finding {
    let Some((file, text)) = config(machine) else {
        return Finding::unknown(
            CHECK,
            "no file that this user may read has the options of the kernel",
            format!("look in zcat /proc/config.gz or in the kernel's package; {REMEDY}"),
        );
    };
    let is_on = |option: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .any(|(name, value)| name == option && matches!(value.trim(), "y" | "m"))
    };
    let missing: Vec<_> = NEEDED.into_iter().filter(|option| !is_on(option)).collect();

    if !missing.is_empty() {
        Finding::problem(
            CHECK,
            format!("the kernel was built without {}", missing.join(", ")),
            REMEDY,
        )
    } else {
        Finding::ok(CHECK, file)
    }
}

/// Returns the options of the kernel, and the name of the file that has them.
fn config(machine: &Machine) -> Option<(String, String)> {
    let release = &machine.release;
    let files = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];

    files
        .into_iter()
        .find_map(|file| {
            let text = machine.read(&file)?;
            Some((format!("/{file}"), text))
        })
        .or_else(|| {
            let bytes = machine.unpacked("gzip", "proc/config.gz")?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(("/proc/config.gz".to_owned(), text))
        })
}
