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
    provider,
    Finding,
    Status, //
};
use crate::devices::{
    node,
    unknown, //
};

const DIR: &str = "sys/class/infiniband";
const PERMISSION: &str = "permission";

pub struct Device {
    name: String,
    /// The netdev of the device. Only rxe has this attribute.
    parent: Option<String>,
    /// The state of the first port, such as "4: ACTIVE".
    state: Option<String>,
    /// The device file that programs open.
    node: Option<String>,
    /// The answer of the device. Devices of other machines are not asked.
    answer: Option<Answer>,
}

/// The answer to a query of a device's limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    /// libibverbs lists the device, which gave this answer.
    Listed(Result<(), Errno>),
    /// libibverbs does not list the device.
    Unlisted,
    /// libibverbs lists no devices because of an error.
    NoList(Errno),
    /// The device was deleted after its name was read.
    Gone,
}

pub fn look(machine: &Machine, wanted: Option<&str>) -> Result<Vec<Device>, String> {
    let names = machine.names(DIR);
    let mut devices = Vec::new();

    if let Some(wanted) = wanted.filter(|&wanted| !names.iter().any(|name| name == wanted)) {
        return Err(unknown(wanted, &names));
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
            node: node(&machine.path(""), &name).map(|node| node.display().to_string()),
            answer: machine
                .is_this()
                .then(|| still(ask(&name), machine.exists(&format!("{DIR}/{name}")))),
            name,
        });
    }
    Ok(devices)
}

fn ask(name: &str) -> Answer {
    let devices = match Devices::list() {
        Ok(devices) => devices,
        Err(errno) => return Answer::NoList(errno),
    };
    let mut iter = devices.iter();

    match iter.find(|device| device.name() == name) {
        Some(device) => {
            Answer::Listed(device.open().and_then(|context| context.caps().map(|_| ())))
        }
        None => Answer::Unlisted,
    }
}

/// Returns the answer, or `Gone` if the device failed to answer because it was deleted.
fn still(answer: Answer, exists: bool) -> Answer {
    match answer {
        Answer::Listed(Ok(())) => answer,
        _ if exists => answer,
        _ => Answer::Gone,
    }
}

pub fn check(machine: &Machine, devices: &[Device]) -> Vec<Finding> {
    const CHECK: &str = "devices";

    let counts = |device: &Device| device.parent.is_some() || device.answer == Some(Answer::Gone);

    if !devices.iter().any(counts) {
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
    if device.answer == Some(Answer::Gone) {
        return vec![Finding::problem(
            "device",
            format!("{name} was deleted during this check"),
            "run the command again",
        )];
    }
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
            if is_elsewhere(machine, parent) {
                format!("{parent} is in another network namespace: ip netns exec NETNS ip link set {parent} up")
            } else {
                format!("ip link set {parent} up, and give it an address")
            },
        ),
    }];

    if has_no_address(machine, name, parent) {
        findings.push(Finding::problem(
            "address",
            format!("{parent} of {name} has no IP address: no queue pair can be connected"),
            format!("ip addr add ADDRESS/PREFIX dev {parent}"),
        ));
    }
    findings.push(permission(machine, device));
    let may_open = findings
        .iter()
        .all(|it| it.check != PERMISSION || it.status == Status::Ok);
    findings.extend(answered(machine, device, may_open));
    findings
}

/// Returns `true` if the netdev is not among those of this network namespace.
fn is_elsewhere(machine: &Machine, netdev: &str) -> bool {
    let here = machine.names("sys/class/net");

    !here.is_empty() && !here.iter().any(|name| name == netdev)
}

/// Returns `true` if the netdev of a device has no address. The kernel makes a GID of each address.
/// The first port also has a link-local GID, even if the netdev has no such address. The addresses
/// of another network namespace cannot be seen.
fn has_no_address(machine: &Machine, name: &str, netdev: &str) -> bool {
    let dir = format!("{DIR}/{name}/ports/1/gids");
    let gids: Vec<_> = machine
        .names(&dir)
        .iter()
        .filter_map(|gid| machine.read(&format!("{dir}/{gid}")))
        .collect();

    let is_unset = |gid: &String| gid.trim().bytes().all(|byte| matches!(byte, b'0' | b':'));
    let addresses = machine.read("proc/net/if_inet6").unwrap_or_default();
    let has_ipv6 = addresses
        .lines()
        .any(|line| line.split_whitespace().last() == Some(netdev));

    !gids.is_empty()
        && gids
            .iter()
            .all(|gid| is_unset(gid) || gid.starts_with("fe80:"))
        && (gids.iter().all(is_unset) || !(has_ipv6 || is_elsewhere(machine, netdev)))
}

/// Reports what libibverbs and the device answered.
fn answered(machine: &Machine, device: &Device, may_open: bool) -> Vec<Finding> {
    let name = &device.name;
    // libibverbs lists only devices with a node, and the check above reports a node that is missing.
    let has_node = device
        .node
        .as_deref()
        .is_some_and(|node| machine.exists(node));
    let (listed, asked) = match device.answer {
        Some(Answer::Listed(asked)) => (Some(true), Some(asked)),
        Some(Answer::Unlisted) => (Some(false), None),
        Some(Answer::NoList(errno)) => return extended(name, Err(errno)).into_iter().collect(),
        Some(Answer::Gone) | None => (None, None),
    };

    has_node
        .then(|| provider::check(machine, name, listed))
        .into_iter()
        // Without the right to open the node, the answer is an error that tells nothing more.
        .chain(
            asked
                .filter(|asked| may_open || asked.is_ok())
                .and_then(|asked| extended(name, asked)),
        )
        .collect()
}

fn permission(machine: &Machine, device: &Device) -> Finding {
    const CHECK: &str = PERMISSION;
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

    use super::*;

    /// Returns the findings about an active device without a node. A deleted device has no files.
    fn without_node(answer: Answer) -> Vec<Finding> {
        let device = Device {
            name: "rxe0".to_owned(),
            parent: (answer != Answer::Gone).then(|| "eth0".to_owned()),
            state: Some("4: ACTIVE".to_owned()),
            node: None,
            answer: Some(answer),
        };

        check(&Machine::new("/".as_ref()).unwrap(), &[device])
    }

    /// libibverbs does not list the device, but not because of the provider library.
    #[test]
    fn a_device_without_a_node_is_one_problem() {
        let findings = without_node(Answer::Unlisted);
        let problems: Vec<_> = findings
            .iter()
            .filter(|finding| finding.status != Status::Ok)
            .map(|finding| finding.check)
            .collect();

        assert_eq!(problems, ["permission"]);
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn an_error_of_the_list_says_nothing_of_the_provider() {
        let findings = without_node(Answer::NoList(Errno::ENOSYS));
        let checks: Vec<_> = findings.iter().map(|finding| finding.check).collect();

        assert_eq!(checks, ["device", "permission", "extended"]);
    }

    #[test]
    fn a_device_that_was_deleted_is_not_unlisted() {
        let (good, bad) = (Answer::Listed(Ok(())), Answer::Listed(Errno::check(EIO)));

        for answer in [good, bad, Answer::Unlisted] {
            assert_eq!(still(answer, true), answer);
        }
        assert_eq!(still(Answer::Unlisted, false), Answer::Gone);
        assert_eq!(still(bad, false), Answer::Gone);
        let findings = without_node(Answer::Gone);
        let found: Vec<_> = findings.iter().map(|finding| &finding.found).collect();
        assert_eq!(found, ["rxe0 was deleted during this check"]);
    }

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
