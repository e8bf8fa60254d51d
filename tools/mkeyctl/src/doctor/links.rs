// SPDX-License-Identifier: GPL-2.0

//! Checks that the links of rxe come back at the next start. An instance of a unit of systemd makes
//! each of them.

use super::{
    machine::Machine,
    Finding, //
};

const CHECK: &str = "links";
const PREFIX: &str = "ib-mkey-rxe@";
const ENABLED_DIR: &str = "etc/systemd/system";

/// The directories with units that an installation of ib_mkey uses.
const UNIT_DIRS: [&str; 3] = [
    ENABLED_DIR,
    "usr/lib/systemd/system",
    "lib/systemd/system", //
];

/// Checks the link of the device `wanted`, or all links.
pub fn check(machine: &Machine, wanted: Option<&str>) -> Vec<Finding> {
    let is_installed = UNIT_DIRS
        .iter()
        .any(|dir| machine.exists(&format!("{dir}/{PREFIX}.service")));

    // The directory exists if systemd is the machine's first process.
    if !is_installed || !machine.exists("run/systemd/system") {
        return Vec::new();
    }
    let enabled = enabled(machine);
    let linked: Vec<_> = machine
        .names("sys/class/infiniband")
        .iter()
        .filter(|device| wanted.is_none_or(|wanted| wanted == *device))
        .filter_map(|device| machine.read(&format!("sys/class/infiniband/{device}/parent")))
        .map(|netdev| netdev.trim().to_owned())
        .collect();
    let has_link = |instance: &String| linked.iter().any(|netdev| escaped(netdev) == *instance);

    linked
        .iter()
        .map(|netdev| kept(netdev, &enabled))
        .chain(
            enabled
                .iter()
                .filter(|instance| wanted.is_none() && !has_link(instance))
                .map(|instance| missing(machine, instance)),
        )
        .collect()
}

fn kept(netdev: &str, enabled: &[String]) -> Finding {
    let instance = escaped(netdev);

    if enabled.contains(&instance) {
        Finding::ok(
            CHECK,
            format!("{PREFIX}{instance} makes the link on {netdev} at each start"),
        )
    } else {
        Finding::note(
            CHECK,
            format!("the link on {netdev} is lost at the next start"),
            format!(
                "systemctl enable '{PREFIX}{instance}' makes the link rxe_{netdev} from then on"
            ),
        )
    }
}

fn missing(machine: &Machine, instance: &String) -> Finding {
    let has_netdev = machine
        .names("sys/class/net")
        .iter()
        .any(|netdev| escaped(netdev) == *instance);

    if has_netdev {
        Finding::problem(
            CHECK,
            format!("{PREFIX}{instance} is enabled, and its netdev has no link"),
            format!("systemctl restart '{PREFIX}{instance}'; systemctl status shows why it fails"),
        )
    } else {
        Finding::note(
            CHECK,
            format!("{PREFIX}{instance} is enabled, and there is no such netdev"),
            format!("systemctl disable '{PREFIX}{instance}', or make the netdev"),
        )
    }
}

/// Returns the enabled instances of the unit: the netdevs, as systemd escapes them.
fn enabled(machine: &Machine) -> Vec<String> {
    let mut instances: Vec<_> = machine
        .names(ENABLED_DIR)
        .iter()
        .filter(|dir| dir.ends_with(".wants") || dir.ends_with(".requires"))
        .flat_map(|dir| machine.names(&format!("{ENABLED_DIR}/{dir}")))
        .filter_map(|unit| {
            let instance = unit.strip_prefix(PREFIX)?.strip_suffix(".service")?;
            (!instance.is_empty()).then(|| instance.to_owned())
        })
        .collect();

    instances.sort();
    instances.dedup();
    instances
}

/// Returns a name as `systemd-escape` prints it. The name of a netdev has no slash.
fn escaped(name: &str) -> String {
    name.bytes()
        .enumerate()
        .map(|(at, byte)| match byte {
            b'.' if at == 0 => "\\x2e".to_owned(),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("\\x{byte:02x}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_by_systemd() {
        for (name, wanted) in [
            ("eth0", "eth0"),
            ("enp1s0.100", "enp1s0.100"),
            ("br-lan", "br\\x2dlan"),
            (".hidden", "\\x2ehidden"),
            ("a@b", "a\\x40b"),
            ("ü", "\\xc3\\xbc"),
        ] {
            assert_eq!(escaped(name), wanted);
        }
    }
}
