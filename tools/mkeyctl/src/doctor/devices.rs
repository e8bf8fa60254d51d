// SPDX-License-Identifier: GPL-2.0

//! Checks that the devices are up, extended, and open to this user.

use std::{
    fs::OpenOptions,
    io::ErrorKind, //
};

use ibmkey::{
    verbs::Devices,
    Errno, //
};
use libc::{
    EACCES,
    EOPNOTSUPP,
    EPERM, //
};

use super::{
    machine::Machine,
    Finding, //
};

const DIR: &str = "sys/class/infiniband";

pub struct Device {
    name: String,
    /// The netdev of the device. Only rxe has this attribute.
    parent: Option<String>,
    /// The state of the first port, such as "4: ACTIVE".
    state: Option<String>,
    /// The device file that programs open.
    node: Option<String>,
    extended: Option<Result<(), Errno>>,
}

pub fn look(machine: &Machine, wanted: Option<&str>) -> Result<Vec<Device>, String> {
    let names = machine.names(DIR);
    let mut devices = Vec::new();

    if let Some(wanted) = wanted.filter(|&wanted| !names.iter().any(|name| name == wanted)) {
        return Err(match names.as_slice() {
            [] => format!("no device {wanted}: there are none"),
            names => format!("no device {wanted}: there are {}", names.join(", ")),
        });
    }
    for name in names {
        if wanted.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let value = |file: &str| {
            machine
                .read(&format!("{DIR}/{name}/{file}"))
                .map(|text| text.trim().to_owned())
        };
        devices.push(Device {
            parent: value("parent"),
            state: value("ports/1/state"),
            node: node(machine, &name),
            extended: machine.is_this().then(|| ask(&name)),
            name,
        });
    }
    Ok(devices)
}

fn node(machine: &Machine, name: &str) -> Option<String> {
    const VERBS: &str = "sys/class/infiniband_verbs";

    machine
        .names(VERBS)
        .into_iter()
        .find(|node| {
            machine
                .read(&format!("{VERBS}/{node}/ibdev"))
                .is_some_and(|text| text.trim() == name)
        })
        .map(|node| format!("dev/infiniband/{node}"))
}

fn ask(name: &str) -> Result<(), Errno> {
    let devices = Devices::list()?;
    let mut iter = devices.iter();
    let device = iter
        .find(|device| device.name() == name)
        .ok_or(Errno::EINVAL)?;

    device.open()?.caps().map(|_| ())
}

pub fn check(machine: &Machine, devices: &[Device]) -> Vec<Finding> {
    const CHECK: &str = "devices";

    if !devices.iter().any(|device| device.parent.is_some()) {
        return vec![match devices {
            [] => Finding::problem(
                CHECK,
                "there is no RDMA device",
                "rdma link add rxe0 type rxe netdev NETDEV",
            ),
            [first, ..] => Finding::problem(
                CHECK,
                format!(
                    "none of the devices is rxe (the first is {}), and others are left as they are",
                    first.name
                ),
                "rdma link add rxe0 type rxe netdev NETDEV",
            ),
        }];
    }
    devices
        .iter()
        .flat_map(|device| each(machine, device))
        .collect()
}

fn each(machine: &Machine, device: &Device) -> Vec<Finding> {
    let name = &device.name;
    let Some(parent) = &device.parent else {
        return vec![Finding::ok(
            "device",
            format!("{name} is not rxe and is left as it is"),
        )];
    };
    let mut findings = vec![match device.state.as_deref() {
        Some(state) if state.ends_with("ACTIVE") => {
            Finding::ok("device", format!("{name} on {parent} is active"))
        }
        state => Finding::problem(
            "device",
            format!(
                "{name} on {parent} is not active ({})",
                state.unwrap_or("no state")
            ),
            format!("ip link set {parent} up, and give it an address"),
        ),
    }];

    findings.push(permission(machine, device));
    findings.extend(device.extended.and_then(|asked| extended(name, asked)));
    findings
}

fn permission(machine: &Machine, device: &Device) -> Finding {
    const CHECK: &str = "permission";
    let Some(node) = &device.node else {
        return Finding::problem(
            CHECK,
            format!("{} has no node for programs", device.name),
            "modprobe ib_uverbs, and look for its lines in dmesg",
        );
    };

    match OpenOptions::new()
        .read(true)
        .write(true)
        .open(machine.path(node))
    {
        Ok(_) => Finding::ok(CHECK, format!("/{node} can be opened")),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Finding::problem(
            CHECK,
            format!("this user may not open /{node}"),
            format!("chmod a+rw /{node}, by a rule of udev for the next start, or run as root"),
        ),
        Err(error) => Finding::problem(
            CHECK,
            format!("/{node}: {error}"),
            "is udev running, or /dev the container's own? The node has to be there",
        ),
    }
}

/// Reports whether ib_mkey has extended the device. `asked` is the result of a query of its limits.
/// Returns `None` if the user may not query them, which another check reports.
fn extended(name: &str, asked: Result<(), Errno>) -> Option<Finding> {
    const CHECK: &str = "extended";

    match asked.map_err(Errno::get) {
        Ok(()) => Some(Finding::ok(CHECK, format!("{name} has keys"))),
        Err(EACCES | EPERM) => None,
        Err(EOPNOTSUPP) => Some(Finding::problem(
            CHECK,
            format!("{name} is not extended by ib_mkey"),
            "correct the problems above, or those that dmesg | grep ib_mkey shows, then make the link again",
        )),
        Err(errno) => Some(Finding::problem(
            CHECK,
            format!(
                "{name} cannot be queried: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
            "dmesg | grep ib_mkey",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use libc::EIO;

    use super::{
        super::Status,
        *, //
    };

    /// The tests of the program cannot do this, because it queries only devices of this machine.
    #[test]
    fn each_answer_of_a_device_is_a_finding() {
        let of = |errno| extended("rxe0", Errno::check(errno));

        assert_eq!(extended("rxe0", Ok(())).unwrap().status, Status::Ok);
        assert!(of(EACCES).is_none() && of(EPERM).is_none());
        let stock = of(EOPNOTSUPP).unwrap();
        assert_eq!(stock.status, Status::Problem);
        assert_eq!(stock.found, "rxe0 is not extended by ib_mkey");
        assert!(stock.remedy.unwrap().ends_with("then make the link again"));
        let broken = of(EIO).unwrap();
        assert_eq!(broken.status, Status::Problem);
        assert!(broken
            .found
            .contains("rxe0 cannot be queried: Input/output error"));
    }
}
